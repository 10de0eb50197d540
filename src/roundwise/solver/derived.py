"""What follows from factors: determinants, inverses, a SciPy operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, splu

from roundwise.algorithms.scaling import ScaledMatrix
from roundwise.backends import ArithmeticFailure
from roundwise.backends.arrays import on_host
from roundwise.backends.real_form import RealForm, compressed, compressed_block
from roundwise.formats import FP64
from roundwise.methods import DEFAULT_METHOD, SAFE
from roundwise.solver.factored import Factored
from roundwise.solver.trust.examining import SUSPICIOUS, Singularity

if TYPE_CHECKING:
    from roundwise.solver.factorization import Factorization


def slogdet(factored: Factored) -> tuple[float, float]:
    """The sign of A's determinant, and the logarithm of its magnitude, from FP64's LU.

    0 and minus infinity if A is singular, which is known exactly where `SolveFailed` would say so.
    """
    matrix = factored.matrix
    method = SAFE if matrix.is_sparse else DEFAULT_METHOD
    try:
        factors = matrix.backend.analyse(matrix.A, method).factorize(matrix.A, FP64)
    except ArithmeticFailure:
        return 0.0, -math.inf
    examiner = factored.examiner
    if examiner.shows_signs(factors) and examiner.singularity is Singularity.SINGULAR:
        return 0.0, -math.inf
    pivots = on_host(factors.U.diagonal())
    sign = float(np.prod(np.sign(pivots))) * _parity(factors.perm) * _parity(factors.order)
    return sign, float(np.log(np.abs(pivots)).sum()) + _exponents(matrix) * math.log(2)


def complex_slogdet(factored: Factored) -> tuple[complex, float]:
    """The same for a complex matrix in its real form: the sign is a number of modulus 1, or 0."""
    matrix = factored.matrix
    if matrix.is_sparse:
        try:
            factors = splu(compressed(matrix.A).tocsc())
        except RuntimeError:  # SuperLU's word for a zero pivot
            return 0.0, -math.inf
        pivots = factors.U.diagonal()
        parity = _parity(factors.perm_r) * _parity(factors.perm_c)
    else:
        LU, swaps = _complex_lu(matrix)
        pivots = on_host(LU.diagonal())
        parity = -1 if np.count_nonzero(swaps != np.arange(len(swaps))) % 2 else 1
    sizes = np.abs(pivots)
    if not sizes.min() > SUSPICIOUS * sizes.max() and (
        not sizes.all() or factored.examiner.singularity is Singularity.SINGULAR
    ):
        return 0.0, -math.inf
    # Each complex row and column is two of the real form, scaled alike.
    logarithm = float(np.log(sizes).sum()) + _exponents(matrix) / 2 * math.log(2)
    return complex(np.prod(pivots / sizes)) * parity, logarithm


def _complex_lu(matrix: ScaledMatrix) -> tuple[Any, NDArray[Any]]:
    """LU of a dense complex matrix, as LAPACK packs it, and its swaps of rows."""
    if isinstance(matrix.A, RealForm):
        LU, swaps, _ = lapack.zgetrf(matrix.A.values)
        return LU, swaps
    backend: Any = matrix.backend  # type: ignore[attr-defined]
    LU, swaps = backend.device.lu_factor(compressed_block(matrix.A, backend.xp))
    return LU, on_host(swaps)


def _exponents(matrix: ScaledMatrix) -> int:
    """The e for which ``det A = 2**e det(scaled A)``."""
    exponents = sum(int(e.sum()) for e in (matrix.rows, matrix.columns) if e is not None)
    if matrix.rows is not None and matrix.rows.size == 1:
        exponents += int(matrix.rows[0]) * (matrix.n - 1)
    return exponents


def _parity(order: NDArray[np.int32] | None) -> int:
    """1 for an even permutation, -1 for an odd one: by the lengths of its cycles."""
    if order is None:
        return 1
    sign, seen = 1, np.zeros(len(order), dtype=bool)
    targets = on_host(order).tolist()
    for start in range(len(order)):
        length, place = 0, start
        while not seen[place]:
            seen[place] = True
            place, length = targets[place], length + 1
        if length and length % 2 == 0:
            sign = -sign
    return sign


class InverseOperator(LinearOperator):  # type: ignore[misc]
    """``A^-1`` as SciPy's Krylov solvers take it: every product passes the gate."""

    def __init__(self, factorization: Factorization) -> None:
        super().__init__(factorization.dtype, factorization.shape)
        self._factorization = factorization

    def _matvec(self, x: Any) -> Any:
        return self._factorization.solve(np.ravel(x))

    def _rmatvec(self, x: Any) -> Any:
        return self._factorization.solve(np.ravel(x), "H")

    def _matmat(self, X: Any) -> Any:
        return self._factorization.solve(X)

    def _rmatmat(self, X: Any) -> Any:
        return self._factorization.solve(X, "H")
