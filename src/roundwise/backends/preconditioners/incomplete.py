"""Incomplete factorizations with levels of fill: what a factorization would keep of its fill-in.

ILU(k) of any A with a full diagonal, and IC(k), the same for symmetric positive definite A with
``U = D L'``. Where a pivot is too small, or not positive, the diagonal is shifted (Manteuffel 1980;
Scott & Tuma 2014): `Incomplete.shift` tells by how much of it. With enough levels the factors are
complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import roundwise._kernels as _kernels
from roundwise.backends.contract import ArithmeticFailure
from roundwise.backends.preconditioners.contract import STORED_IN, Array, arrays_of, as_block
from roundwise.backends.preconditioners.multigrid import FAILURES
from roundwise.formats import FP32, FloatFormat, get_format
from roundwise.machine.threads import get_num_threads


class Incomplete:
    """``M = L U`` near A; `apply` substitutes with both.

    Parameters
    ----------
    A : sparse
        Square.
    format : str or FloatFormat
        Of storage: fp64, fp32, bf16 or fp16.
    levels : int
        Of fill: 0 keeps the pattern of A.
    definite : bool
        Whether A is symmetric positive definite: then M is, too.

    Examples
    --------
    >>> from roundwise.problems import convection_diffusion_2d
    >>> A = convection_diffusion_2d(20, 0.1, (1.0, 3.0)).A
    >>> Incomplete(A, "bf16").entries == A.nnz
    True
    """

    def __init__(
        self, A: Any, format: str | FloatFormat = FP32, levels: int = 0, definite: bool = False
    ) -> None:
        self.format, self.name = get_format(format), f"{'ic' if definite else 'ilu'}/{levels}"
        if self.format not in STORED_IN:
            known = ", ".join(fmt.name for fmt in STORED_IN)
            raise ValueError(f"no factors are stored in {self.format}; choose {known}")
        arrays = arrays_of(A, self.name, self.format)
        made: tuple[Any, ...] = definite, levels, get_num_threads()
        result, found = _kernels.iterative_incomplete(self.format.name, *(*arrays, *made))
        if found is None:
            raise ArithmeticFailure(FAILURES[result], self.name, self.format)
        self.n, self._factors = len(arrays[0]) - 1, found

    @property
    def bytes(self) -> int:
        return int(self._factors.bytes)

    @property
    def entries(self) -> int:
        """Those of L and U, the diagonal of U included."""
        return self._factors.levels[0][1]

    @property
    def shift(self) -> float:
        """Of the diagonal, whose entries are scaled to about 1."""
        return self._factors.levels[0][2]

    def apply(self, R: Any) -> Array:
        block, was_vector = as_block(R, self.n)
        Z = np.empty_like(block, order="F")
        _kernels.preconditioner_apply(self._factors, block, Z, get_num_threads())
        return Z[:, 0] if was_vector else Z
