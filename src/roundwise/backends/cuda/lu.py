"""LU factorization on the GPU, stored by rows.

Panels of 64 columns are ours (kernels/lu.cu); what is right of them is updated by products in the
action's format. Formats below FP64 store their factors in FP32: "fp16" means that the operands of
the large products are rounded to fp16 and the sums are FP32's, "fp16x2" that each operand is kept
as a sum of two fp16 numbers (three products, Markidis et al. 2018), and so on.

Pivoting, from the most careful to the boldest:

- ``"partial"``: cuSOLVER's, in FP64 and FP32;
- ``"tournament"``: groups of 256 rows each propose 64 pivot rows, the winners meet again, until
  one group is left (Grigori, Demmel & Xiang 2011);
- ``"local"``: the first 256 rows propose alone. Multipliers above 1 are possible, though rare on
  matrices without structure; on others the gate decides;
- ``"butterfly"``: local after a random butterfly, which destroys structure;
- ``"diagonal"``: none. For matrices with a heavy diagonal, and positive definite ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.backends.arrays import on_host
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.cuda.device import Device, storage_type
from roundwise.backends.cuda.elimination import Elimination, Pivots
from roundwise.backends.cuda.residual import row_sums
from roundwise.backends.cuda.substitution import DeviceSubstitution, Triangles
from roundwise.formats import FP32, FloatFormat

PIVOTS: dict[str, Pivots] = {
    "tournament": "all",
    "local": "window",
    "butterfly": "window",
    "diagonal": "diagonal",
}


def factorize(
    device: Device, A: Any, fmt: FloatFormat, pivoting: str, seed: int = 0
) -> Packed | PartialFactors:
    """Factors of A, a square matrix of float64 or float32 in either memory order."""
    if pivoting == "partial":
        return PartialFactors(device, A, fmt)
    flipped = not A.flags.c_contiguous and A.flags.f_contiguous
    A = A.T if flipped else A
    scale = moderating_scale(device, A, fmt)
    work = Elimination(device, len(A), fmt)
    a, butterflies = work.a[:, : work.n], None
    if pivoting == "butterfly":
        butterflies = _mixed(device, A, scale, work, seed)
    else:
        device.xp.multiply(A, scale, out=a, casting="unsafe")
    pivots = work.run(PIVOTS[pivoting])
    return Packed(work.triangles, fmt, flipped, scale, butterflies, pivots)


def moderating_scale(device: Device, A: Any, fmt: FloatFormat) -> float:
    """The power of two by which A is multiplied, so that a short format can hold its numbers."""
    if fmt.emax >= FP32.emax:
        return 1.0
    largest = row_sums(device, A)[1]
    return math.ldexp(1.0, -math.frexp(largest)[1]) if largest else 1.0


def _mixed(device: Device, A: Any, scale: float, work: Elimination, seed: int) -> tuple[Any, Any]:
    """Put U' A V with random butterflies U and V into the work, and return their diagonals."""
    n, rng = work.n, np.random.default_rng(seed)
    size = 8 * max(1, n // 4)
    U, V = (device.xp.asarray(np.exp(rng.uniform(-0.05, 0.05, size))) for _ in range(2))
    side = n // 4 + n % 4
    steps = tuple(step // A.itemsize for step in A.strides)
    device.launch(
        *("butterfly", "butterfly_both", (-(-side // 32), -(-side // 8)), 256),
        (A, *steps, n, U, V, scale, work.a, work.ld),
        *(work.a.dtype.type, A.dtype.type),
    )
    return U, V


@dataclass
class Packed:
    """``L U`` of the matrix, or of its transpose if `flipped`, with its rows in some order."""

    triangles: Triangles
    fmt: FloatFormat
    flipped: bool = False
    scale: float = 1.0  # the factors are those of scale A
    butterflies: tuple[Any, Any] | None = None
    pivots: Any = None
    """The magnitudes of U's diagonal, on the host; None of a Cholesky factorization."""

    @property
    def diagonal(self) -> Any:
        """The magnitudes of U's diagonal, on the host, read now."""
        diagonal = self.device.xp.diagonal(self.triangles.lu[:, : self.n])
        return on_host(abs(diagonal).astype(np.float64))

    @property
    def device(self) -> Device:
        return self.triangles.device

    @property
    def n(self) -> int:
        return self.triangles.n

    def solve(self, B: Any, dtype: Any = np.float64, transpose: bool = False) -> Any:
        """``A X = B`` by substitution, computed in `dtype`, for a vector or a block of columns."""
        transposed = transpose != self.flipped
        B = self.device.xp.multiply(B, self.scale).astype(dtype, copy=False)
        B = self._mix(B, transposed, before=True)
        X = DeviceSubstitution(self.triangles, dtype, transposed)(B)
        return self._mix(X, transposed, before=False)

    def _mix(self, X: Any, transposed: bool, before: bool) -> Any:
        """The butterflies: U' b before, V y after; the other way round for the transpose."""
        if self.butterflies is None:
            return X
        xp, diagonal = self.device.xp, self.butterflies[0 if before != transposed else 1]
        X = xp.array(X, order="F")
        columns = 1 if X.ndim == 1 else X.shape[1]
        args = X, self.n, self.n, diagonal, int(before)
        grid = max(1, -(-(self.n // 4) // 256)), columns
        self.device.launch("butterfly", "butterfly", grid, 256, args, X.dtype.type)
        return X

    def dense(self) -> tuple[Any, Any, Any]:
        """L, U and the order of the rows, in float64."""
        xp, lu = self.device.xp, self.triangles.lu[:, : self.n].astype(np.float64)
        if self.triangles.is_symmetric:
            return xp.triu(lu).T, xp.triu(lu), self.triangles.order
        return xp.tril(lu, -1) + xp.eye(self.n), xp.triu(lu), self.triangles.order


class PartialFactors:
    """cuSOLVER's LU with partial pivoting, and its substitution."""

    def __init__(self, device: Device, A: Any, fmt: FloatFormat) -> None:
        self.device, self.fmt, self.n = device, fmt, len(A)
        self.lu, self.swaps = device.lu_factor(A.astype(storage_type(fmt), copy=False))
        self.pivots = on_host(device.xp.abs(device.xp.diagonal(self.lu)).astype(np.float64))
        column, smallest = (int(self.pivots.argmin()), float(self.pivots.min()))
        if smallest == 0:
            raise ArithmeticFailure(Status.ZERO_PIVOT, "LU factorization", fmt, column)
        if not math.isfinite(float(self.pivots.max())):
            raise ArithmeticFailure(Status.OVERFLOW, "LU factorization", fmt)

    def solve(self, B: Any, dtype: Any = np.float64, transpose: bool = False) -> Any:
        """``A X = B`` by substitution, in the type of the factors."""
        B = B.astype(self.lu.dtype, copy=False)
        return self.device.lu_solve((self.lu, self.swaps), B, transpose).astype(dtype, copy=False)

    def dense(self) -> tuple[Any, Any, Any]:
        """L, U and the order of the rows, in float64."""
        xp, lu = self.device.xp, self.lu.astype(np.float64)
        order = list(range(self.n))
        for row, other in enumerate(self.swaps.tolist()):
            order[row], order[other] = order[other], order[row]
        return xp.tril(lu, -1) + xp.eye(self.n), xp.triu(lu), xp.asarray(order)
