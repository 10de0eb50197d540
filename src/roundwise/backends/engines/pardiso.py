"""MKL PARDISO: sparse LU, Cholesky and ``L D L'`` in FP32 and FP64, on several threads.

It needs the package ``mkl`` (the extra of that name; x86 only).

Engines
-------
pardiso
    LU of any matrix. A matching brings large entries to the diagonal and scales the matrix; then
    pivots stay within a block of columns, and tiny ones are replaced (`Factors.replaced_pivots`).
pardiso-cholesky
    Of symmetric positive definite matrices.
pardiso-ldl
    Of symmetric matrices, with pivots of 1 x 1 and 2 x 2, after a symmetric matching.

Orderings
---------
mmd
    Minimum degree; often the better one in two dimensions.
metis
    Nested dissection by METIS.

The matching of the first values serves later ones too. If more pivots had to be replaced than for
the first, the matrix is matched and analysed anew.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.contract import Status
from roundwise.backends.engines.mkl import METIS, MINIMUM_DEGREE, Pardiso, library_path
from roundwise.backends.engines.pooled import PooledEngine
from roundwise.backends.native.storage import COMPLEX_DTYPES
from roundwise.formats import FP32, FP64, FloatFormat

ORDERINGS = {"mmd": MINIMUM_DEGREE, "metis": METIS}


class PardisoLU(PooledEngine):
    """LU with matching, scaling and static pivoting."""

    name = "pardiso"
    orderings = tuple(ORDERINGS)
    package = "mkl"
    remedy = "pip install 'roundwise[mkl]' (x86 only)"

    matrix_type: ClassVar[int] = 11
    tiny: ClassVar[dict[FloatFormat, int]] = {FP32: 7, FP64: 13}
    """Pivots below ``10**-tiny`` of the matrix's size are replaced."""

    @property
    def installed(self) -> bool:
        return library_path() is not None

    def analysed(
        self,
        rows: tuple[NDArray[np.int64], NDArray[np.int64]],
        values: NDArray[Any],
        fmt: FloatFormat,
        ordering: str,
        order: NDArray[Any] | None,
    ) -> Pardiso:
        tiny, chosen = self.tiny[fmt], ORDERINGS[ordering]
        return Pardiso(self.matrix_type, *rows, values, chosen, order, self.matching, tiny)


class ComplexPardisoLU(PardisoLU):
    """The same of complex matrices."""

    matrix_type, dtypes = 13, COMPLEX_DTYPES


class PardisoCholesky(PardisoLU):
    """``L L'``."""

    name, suits = "pardiso-cholesky", "positive definite"
    matrix_type, matching = 2, False
    breakdown = Status.NOT_POSITIVE_DEFINITE


class PardisoLDL(PardisoLU):
    """``L D L'`` with 1 x 1 and 2 x 2 pivots, after a symmetric matching and scaling."""

    name, suits = "pardiso-ldl", "symmetric"
    matrix_type = -2
    tiny: ClassVar[dict[FloatFormat, int]] = {FP32: 7, FP64: 8}
