"""The arithmetic of the calling thread: IEEE 754's while a solve runs, whatever others have set.

A shared library that was linked with -ffast-math flushes subnormal numbers to zero in the thread
that loads it, and a caller may round in another direction. Kernels set the mode for themselves;
what NumPy, LAPACK and Python compute between them (scaling, norms, comparisons) needs it as well: a
matrix of subnormal numbers would be zero, and one that has some of them another matrix.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import roundwise._kernels as _kernels

_AS_IT_IS = nullcontext()


def ieee_arithmetic() -> AbstractContextManager[None]:
    """Within it, this thread rounds to nearest and keeps subnormal numbers."""
    return _AS_IT_IS if _kernels.has_ieee_arithmetic() else _kernels.IeeeArithmetic()
