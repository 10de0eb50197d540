"""Rounding on the device, by array expressions: to nearest, ties to even, as `round_to` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from roundwise.formats import FP32, FP64, FloatFormat

ROWS = 2**24
"""About how many entries of a matrix are rounded at a time: it takes some arrays of that size."""


def computed_in(fmt: FloatFormat) -> Any:
    """The type that numbers of a format are stored in and computed with: FP32's below FP64."""
    return np.float64 if fmt == FP64 else np.float32


def is_rounded(fmt: FloatFormat) -> bool:
    """Whether numbers of the type that is computed with must be rounded to be of the format."""
    return fmt != FP64 and not (fmt.p >= FP32.p and fmt.emax >= FP32.emax)


def rounded(xp: Any, x: Any, fmt: FloatFormat) -> Any:
    """Numbers rounded to a format, in the type that it is computed with; infinite beyond `max`.

    ``q rint(x / q)`` with the power of two q that is the spacing of the format's numbers at x.
    """
    if not is_rounded(fmt):
        return x.astype(computed_in(fmt), copy=False)
    x = x.astype(np.float64, copy=False)
    exponents = xp.maximum(xp.frexp(x)[1] - 1, fmt.emin) - (fmt.p - 1)
    y = xp.ldexp(xp.rint(xp.ldexp(x, -exponents)), exponents)
    return xp.where(abs(y) > fmt.max, xp.copysign(np.inf, y), y).astype(np.float32)


def rounded_matrix(xp: Any, A: Any, fmt: FloatFormat) -> Any:
    """The same for a large matrix, some rows or columns at a time; in the same memory order."""
    if not is_rounded(fmt):
        return rounded(xp, A, fmt)
    result = xp.empty_like(A, dtype=np.float32)
    by_columns = A.flags.f_contiguous and not A.flags.c_contiguous
    lines, out = (A.T, result.T) if by_columns else (A, result)
    step = max(1, ROWS // max(1, lines.shape[1]))
    for first in range(0, len(lines), step):
        out[first : first + step] = rounded(xp, lines[first : first + step], fmt)
    return result
