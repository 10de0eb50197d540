"""NVIDIA's cuDSS: sparse LU, Cholesky and ``L D L'`` on a GPU, in FP32 and FP64.

It needs CuPy and the package ``nvidia-cudss-cu12`` or ``-cu13`` (the extras ``cudss12`` and
``cudss13``). A, right-hand sides and answers are copied to the GPU and back; residuals and the gate
stay on the processor, where A is.

Engines
-------
cudss
    LU of any matrix, after a matching if cuDSS sees fit. Pivots stay within a block; tiny ones are
    replaced (`Factors.replaced_pivots`).
cudss-cholesky
    Of symmetric positive definite matrices.
cudss-ldl
    Of symmetric matrices.

Orderings
---------
amd
    Approximate minimum degree.
nd
    Nested dissection, on several threads of the processor. Most of a first solve goes into it; a
    pattern is ordered once, whatever formats follow.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.contract import Status
from roundwise.backends.engines.cudss_library import (
    DEFINITE,
    GENERAL,
    SYMMETRIC,
    Cudss,
    library_path,
)
from roundwise.backends.engines.pooled import PooledEngine
from roundwise.backends.native.storage import COMPLEX_DTYPES
from roundwise.formats import FloatFormat

ORDERINGS = {"amd": 3, "nd": 4}
"""cuDSS's number of each (`cudssReorderingAlg_t`)."""


class CudssLU(PooledEngine):
    """LU with static pivoting."""

    name = "cudss"
    orderings = tuple(ORDERINGS)
    package = "nvidia-cudss-cu13"
    remedy = "pip install 'roundwise[cudss13]' (or cudss12; NVIDIA GPUs)"
    runs_on = "cuda"

    matrix_type: ClassVar[int] = GENERAL

    @property
    def installed(self) -> bool:
        return library_path() is not None and find_spec("cupy") is not None

    def analysed(
        self,
        rows: tuple[NDArray[np.int64], NDArray[np.int64]],
        values: NDArray[Any],
        fmt: FloatFormat,
        ordering: str,
        order: NDArray[Any] | None,
    ) -> Cudss:
        chosen = ORDERINGS[ordering]
        return Cudss(self.matrix_type, rows, values, chosen, order, self.matching)


class ComplexCudssLU(CudssLU):
    """The same of complex matrices."""

    dtypes = COMPLEX_DTYPES


class CudssCholesky(CudssLU):
    """``L L'``."""

    name, suits = "cudss-cholesky", "positive definite"
    matrix_type, matching = DEFINITE, False
    breakdown = Status.NOT_POSITIVE_DEFINITE


class CudssLDL(CudssLU):
    """``L D L'`` with pivots on the diagonal."""

    name, suits = "cudss-ldl", "symmetric"
    matrix_type, matching = SYMMETRIC, False
