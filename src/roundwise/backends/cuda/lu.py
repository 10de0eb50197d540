"""LU factorization on the GPU, stored by rows.

Panels of 64 columns are ours (kernels/lu.cu); what is right of them is updated by products in the
action's format. Formats below FP64 store their factors in FP32: "fp16" means that the operands of
the large products are rounded to fp16 and the sums are FP32's, "fp16x2" that each operand is kept
as a sum of two fp16 numbers (three products, Markidis et al. 2018), and so on.

Pivoting, from the most careful to the boldest:

- ``"tournament"``: groups of 256 rows each propose 64 pivot rows, the winners meet again, until
  one group is left (Grigori, Demmel & Xiang 2011);
- ``"local"``: the first 256 rows propose alone. Multipliers above 1 are possible, though rare on
  matrices without structure; on others the gate decides;
- ``"butterfly"``: local after a random butterfly, which destroys structure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.cuda.device import Device, address, storage_type
from roundwise.backends.cuda.products import PRODUCTS, plain, split
from roundwise.backends.cuda.residual import row_sums
from roundwise.backends.cuda.substitution import BLOCK, Substitution, inverted_blocks
from roundwise.formats import FloatFormat

PANEL = 64  # W in kernels/lu.cu
GROUP = 256  # the most rows that a thread block selects pivots from
WINDOW = 128  # rows that local pivoting looks at
_SPREAD, _STRIP = 128, 16
_NEVER = np.iinfo(np.int32).max
MOST_PLANS = 16
_PLANS: dict[Any, Any] = {}
"""What a factorization launches depends on n, format and pivoting alone."""

PIVOTINGS = ("tournament", "local", "butterfly")


def factorize(device: Device, A: Any, fmt: FloatFormat, pivoting: str, seed: int = 0) -> Packed:
    """Factors of A, a square matrix of float64 or float32 in either memory order."""
    flipped = not A.flags.c_contiguous and A.flags.f_contiguous
    work = _Work(device, A.T if flipped else A, fmt, seed if pivoting == "butterfly" else None)
    work.factorize(everywhere=pivoting == "tournament")
    return work.packed(flipped)


@dataclass
class Packed:
    """``L U`` of the matrix, or of its transpose if `flipped`, with its rows in `order`."""

    device: Device
    fmt: FloatFormat
    n: int
    lu: Any  # by rows, perhaps with some more columns
    order: Any
    flipped: bool
    scale: float  # the factors are those of scale A
    butterflies: tuple[Any, Any] | None
    inverses: tuple[Any, Any]  # of the diagonal blocks of L and U
    _substitutions: dict[Any, Substitution] = field(default_factory=dict)

    @property
    def pivots(self) -> Any:
        """The magnitudes of U's diagonal."""
        xp = self.device.xp
        return xp.abs(xp.diagonal(self.lu[:, : self.n])).astype(np.float64)

    def solve(self, B: Any, dtype: Any = np.float64, transpose: bool = False) -> Any:
        """``A X = B`` by substitution, computed in `dtype`, for a vector or a block of columns."""
        key = np.dtype(dtype), transpose != self.flipped
        if key not in self._substitutions:
            self._substitutions[key] = Substitution(self, *key)
        substitution = self._substitutions[key]
        if B.ndim == 1:
            return substitution(B)
        xp = self.device.xp
        X = xp.empty(B.shape, dtype=dtype, order="F")
        for j in range(B.shape[1]):
            X[:, j] = substitution(B[:, j])
        return X

    def dense(self) -> tuple[Any, Any, Any]:
        """L, U and the order of the rows, in float64."""
        xp, lu = self.device.xp, self.lu[:, : self.n].astype(np.float64)
        return xp.tril(lu, -1) + xp.eye(self.n), xp.triu(lu), self.order


class _Work:
    """A matrix that is being factorized, and the memory that it takes."""

    def __init__(self, device: Device, A: Any, fmt: FloatFormat, seed: int | None) -> None:
        xp = device.xp
        self.device, self.fmt, self.n = device, fmt, len(A)
        self.real, self.products = storage_type(fmt), PRODUCTS[fmt.name]
        n = self.n
        self.ld = ld = -(-n // 32) * 32
        self.width = min(n, outer_width(n))
        self.scale, self.butterflies = 1.0, None
        if self.products.parts and fmt.emax < 127:
            largest = row_sums(device, A)[1]
            self.scale = math.ldexp(1.0, -math.frexp(largest)[1]) if largest else 1.0
        real, blocks = self.real, -(-n // BLOCK)
        halves = len(self.products.left) * self.width
        self.arena, arrays = _arena(
            xp,
            a=((n, ld), real),
            order=((n,), np.int32),
            status=((2,), np.int32),  # no pivot, and overflow, at column ...
            block=((PANEL, PANEL), real),
            moves=((-(-n // PANEL), 4 * PANEL), np.int32),
            candidates=((2, -(-n // GROUP) * PANEL), np.int32),
            inverse_L=((blocks * BLOCK, BLOCK), real),
            inverse_U=((blocks * BLOCK, BLOCK), real),
            room=((blocks, BLOCK // 2, BLOCK // 2), real),
            halves_L=((n if halves else 0, halves), np.uint16),
            halves_U=((halves, ld), np.uint16),
        )
        self.__dict__.update(arrays)
        if seed is None:
            xp.multiply(A, self.scale, out=self.a[:, :n], casting="unsafe")
        else:
            self._mix(A, seed)
        self.order[:] = xp.arange(n, dtype=np.int32)
        self.status[:] = _NEVER
        self.inverse_L[:] = self.inverse_U[:] = 0

    def _mix(self, A: Any, seed: int) -> None:
        """U' A V with random butterflies U and V."""
        n, xp = self.n, self.device.xp
        rng = np.random.default_rng(seed)
        quarter = max(1, n // 4)
        self.butterflies = tuple(
            xp.asarray(np.exp(rng.uniform(-0.05, 0.05, 8 * quarter))) for _ in range(2)
        )
        side = n // 4 + n % 4
        steps = tuple(step // A.itemsize for step in A.strides)
        self.device.launch(
            *("butterfly", "butterfly_both", (-(-side // 32), -(-side // 8)), 256),
            (A, *steps, n, *self.butterflies, self.scale, self.a, self.ld),
            *(self.real, A.dtype.type),
        )

    def at(self, row: int, column: int) -> tuple[int, int]:
        """Address and row length of the part of the matrix that starts there."""
        return address(self.a, row, column), self.ld

    def launch(self, kernel: str, grid: int, block: int, *args: Any) -> None:
        self.device.launch("lu", kernel, grid, block, args, self.real)

    def factorize(self, everywhere: bool) -> None:
        key = self.n, self.fmt.name, everywhere
        plan = _PLANS.get(key)
        if plan is None:
            plan = self.device.planned(lambda: self._eliminate(everywhere), self.arena)
            _PLANS[key] = plan
            while len(_PLANS) > MOST_PLANS:
                _PLANS.pop(next(iter(_PLANS)))
        plan.run(self.arena)
        self._check()

    def _eliminate(self, everywhere: bool) -> None:
        n = self.n
        for first in range(0, n, self.width):
            end = min(first + self.width, n)
            self._panel(first, end, everywhere)
            self._outside(first, end)
        for is_upper, inverse in ((False, self.inverse_L), (True, self.inverse_U)):
            inverted_blocks(self.device, self.a, self.ld, n, is_upper, inverse, self.room)

    def _check(self) -> None:
        pivot, overflow = self.status.tolist()
        if min(pivot, overflow) < _NEVER:
            status = Status.OVERFLOW if overflow <= pivot else Status.ZERO_PIVOT
            raise ArithmeticFailure(status, "LU factorization", self.fmt, min(pivot, overflow))

    def _panel(self, first: int, end: int, everywhere: bool) -> None:
        """Factorize the columns from first to end."""
        for column in range(first, end, PANEL):
            w = min(PANEL, end - column)
            moves = address(self.moves, column // PANEL)
            self._select(column, w, moves, everywhere)
            self.launch(
                *("permute", -(-(end - first) // _STRIP), 256),
                *(address(self.a, 0, first), self.ld, column, end - first),
                *(end - first, 0, moves, 1, 0),
            )
            below, right = self.n - column - w, end - column - w
            blocks = -(-below // _SPREAD)
            self.launch(
                *("spread", blocks + -(-right // _SPREAD) + 1, _SPREAD, self.a),
                *(self.ld, column, column, w, self.n, end, self.block, blocks),
            )
            if right:
                self.device.gemm(
                    (below, right, w),
                    *(self.at(column + w, column), self.at(column, column + w)),
                    *(self.at(column + w, column + w), -1.0, 1.0, plain(self.real)),
                )

    def _select(self, column: int, w: int, moves: int, everywhere: bool) -> None:
        rows = self.n - column
        rows, group = (rows, GROUP) if everywhere else (min(WINDOW, rows), WINDOW)
        candidates, into = 0, 0
        while True:
            groups = -(-rows // group)
            winners = address(self.candidates, into)
            self.launch(
                *(
                    "select_pivots",
                    groups,
                    group,
                    self.a,
                    self.ld,
                    column,
                    column,
                    w,
                    rows,
                ),
                *(candidates, winners, int(groups == 1), self.block, moves, self.status),
            )
            if groups == 1:
                return
            candidates, into, rows = winners, 1 - into, groups * PANEL

    def _outside(self, first: int, end: int) -> None:
        """Move the rows left and right of a panel, and update what is right of it."""
        n, panels = self.n, -(-(end - first) // PANEL)
        others = n - (end - first)
        self.launch(
            *("permute", -(-others // _STRIP) + 1, 256, self.a, self.ld, first, others),
            *(first, end - first, address(self.moves, first // PANEL), panels, self.order),
        )
        right, kind = n - end, plain(self.real)
        if not right:
            return
        for start in range(first, end, BLOCK):
            rows, rest = min(BLOCK, end - start), end - min(start + BLOCK, end)
            self.launch(
                *("solve_top", -(-right // _SPREAD), _SPREAD, self.a, self.ld),
                *(start, rows // PANEL, end, n),
            )
            self.device.gemm(
                (rest, right, rows),
                *(self.at(start + BLOCK, start), self.at(start, end)),
                *(self.at(start + BLOCK, end), -1.0, 1.0, kind),
            )
        self._update(first, end, end, n)

    def _update(self, first: int, end: int, left: int, right: int) -> None:
        """``A22 -= L21 U12`` for the columns from left to right."""
        below, k, columns, products = self.n - end, end - first, right - left, self.products
        result = self.at(end, left)
        if not products.parts:
            L, U = self.at(end, first), self.at(first, left)
            self.device.gemm((below, columns, k), L, U, result, -1.0, 1.0, products.kind)
            return
        sections = len(products.left)
        length_L, length_U = sections * k, self.halves_U.shape[1]
        L, U = (address(self.halves_L), length_L), (address(self.halves_U), length_U)
        overflow = first, address(self.status, 1)
        of_L, of_U = self.at(end, first), self.at(first, left)
        split(self.device, products, of_L, (below, k), (*L, k), products.left, overflow)
        split(
            *(self.device, products, of_U, (k, columns), (*U, k * length_U)),
            *(products.right, overflow),
        )
        shape = below, columns, length_L
        self.device.gemm(shape, L, U, result, -1.0, 1.0, products.kind)

    def packed(self, flipped: bool) -> Packed:
        return Packed(
            *(self.device, self.fmt, self.n, self.a, self.order, flipped, self.scale),
            *(self.butterflies, (self.inverse_L, self.inverse_U)),
        )


def _arena(xp: Any, **shapes: tuple[tuple[int, ...], Any]) -> tuple[Any, dict[str, Any]]:
    """Arrays that share one piece of memory, and that piece."""
    ends = {}
    end = 0
    for name, (shape, dtype) in shapes.items():
        end += -(-math.prod(shape) * np.dtype(dtype).itemsize // 256) * 256
        ends[name] = end
    arena, start, arrays = xp.empty(end, dtype=np.uint8), 0, {}
    for name, (shape, dtype) in shapes.items():
        size = math.prod(shape) * np.dtype(dtype).itemsize
        arrays[name] = arena[start : start + size].view(dtype).reshape(shape)
        start = ends[name]
    return arena, arrays


def outer_width(n: int) -> int:
    """How many columns are eliminated before what is right of them is updated."""
    return 256 if n <= 4096 else 512 if n < 24000 else 1024
