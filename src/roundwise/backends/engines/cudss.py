"""NVIDIA's cuDSS: sparse LU and Cholesky on a GPU, in FP32 and FP64.

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

Both are ordered by nested dissection, on several threads of the processor. Most of a first solve
goes into that; a pattern is ordered once, whatever formats follow. (On an H200 minimum degree took
longer on every system of ``benchmarks/bench_cudss.py``, and its factors, too. cuDSS's ``L D L'``
lost half of the digits of a saddle point without saying so.) The last bits of results change from
call to call: cuDSS's deterministic mode takes one column at a time, and five times as long.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.contract import Status
from roundwise.backends.engines.cudss_library import DEFINITE, GENERAL, Cudss, library_path
from roundwise.backends.engines.pooled import PooledEngine
from roundwise.backends.native.storage import COMPLEX_DTYPES
from roundwise.formats import FloatFormat

NESTED_DISSECTION = 4
"""Of `cudssReorderingAlg_t`."""


class CudssLU(PooledEngine):
    """LU with static pivoting."""

    name = "cudss"
    orderings = ("nd",)
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
        return Cudss(self.matrix_type, rows, values, NESTED_DISSECTION, order, self.matching)


class ComplexCudssLU(CudssLU):
    """The same of complex matrices."""

    dtypes = COMPLEX_DTYPES


class CudssCholesky(CudssLU):
    """``L L'``."""

    name, suits = "cudss-cholesky", "positive definite"
    matrix_type, matching = DEFINITE, False
    breakdown = Status.NOT_POSITIVE_DEFINITE
