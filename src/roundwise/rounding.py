"""Rounding to a format: `round_to` for arrays, and `round_scalar`, the definition.

`round_to` runs compiled code that works on bit patterns. `round_scalar` rounds one number in exact
rational arithmetic; the tests compare the two.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.formats import FP64, FloatFormat, Overflow, get_format
from roundwise.machine.threads import get_num_threads

Mode = Literal["nearest", "toward_zero", "up", "down", "stochastic"]
MODES: tuple[str, ...] = get_args(Mode)

__all__ = ["MODES", "round_scalar", "round_to"]


@cache
def kernel_format(fmt: FloatFormat) -> _kernels.Format:
    """The format in the form that the compiled kernels take."""
    if fmt.p > FP64.p:
        raise ValueError(
            f"{fmt} has more bits than float64, which cannot hold its numbers; use fp64"
        )
    overflow = get_args(Overflow).index(fmt.overflow)
    return _kernels.Format(fmt.p, fmt.emin, fmt.max, fmt.subnormals, overflow)


@overload
def round_to(
    x: float, fmt: str | FloatFormat, mode: Mode = ..., rng: Any = ..., out: None = ...
) -> float: ...
@overload
def round_to(
    x: NDArray[np.floating[Any]],
    fmt: str | FloatFormat,
    mode: Mode = ...,
    rng: Any = ...,
    out: NDArray[np.floating[Any]] | None = ...,
) -> NDArray[Any]: ...
def round_to(
    x: Any,
    fmt: str | FloatFormat,
    mode: Mode = "nearest",
    rng: np.random.Generator | int | None = None,
    out: NDArray[Any] | None = None,
) -> Any:
    """Round every element of ``x`` to a number of a format.

    Parameters
    ----------
    x : float or array of float64 or float32
        Any shape, strides and order.
    fmt : str or FloatFormat
    mode : {"nearest", "toward_zero", "up", "down", "stochastic"}
        ``nearest`` breaks ties to the even significand. ``stochastic`` rounds up with
        probability (x - below) / (above - below), which is exact for normal results.
    rng : numpy.random.Generator or int
        Only for ``stochastic``, which draws one 64-bit key from it. Element i (in C order)
        uses number i of that key's counter-based stream, so that the result depends neither
        on threads nor on the memory layout.
    out : array, optional
        Of x's shape and dtype; may be x itself.

    Returns
    -------
    Array of x's shape and dtype (a float for a Python number). A float32 array rounded to a
    format with a wider range than float32 overflows as float32 does.

    Examples
    --------
    >>> rw.round_to(1 + 2**-8 + 2**-40, "bf16")  # through float32 this would be 1.0
    1.0078125
    """
    fmt = get_format(fmt)
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    key = 0
    if mode == "stochastic":
        if rng is None:
            raise ValueError("mode 'stochastic' needs rng; pass a numpy.random.Generator or a seed")
        key = int(np.random.default_rng(rng).integers(2**64, dtype=np.uint64))
    is_number = isinstance(x, int | float) and not isinstance(x, np.generic)
    x = np.asarray(x, dtype=np.float64 if is_number else None)
    if x.dtype not in (np.float64, np.float32) or not x.dtype.isnative:
        raise TypeError(f"round_to takes float64 or float32, got {x.dtype}; convert with astype")
    if out is not None:
        if not isinstance(out, np.ndarray) or not out.flags.writeable:
            raise TypeError("out must be a writeable array; pass numpy.empty_like(x)")
        if out.shape != x.shape or out.dtype != x.dtype:
            raise ValueError(
                f"out is {out.dtype} of shape {out.shape}; pass {x.dtype} of shape {x.shape}"
            )
        if out is not x and np.may_share_memory(x, out):
            x = x.copy()
    result = _round_array(x, fmt, mode, key, out)
    if is_number:
        return float(result)
    return result[()] if x.ndim == 0 and out is None else result


def _round_array(
    x: NDArray[Any], fmt: FloatFormat, mode: str, key: int, out: NDArray[Any] | None
) -> NDArray[Any]:
    within_float32 = fmt.p <= 24 and fmt.emin >= -126 and fmt.emax <= 127
    if x.dtype == np.float32 and not within_float32:
        # Overflow to float32's infinity is documented; signalling NaNs would warn, too.
        with np.errstate(over="ignore", invalid="ignore"):
            wide = _round_array(x.astype(np.float64), fmt, mode, key, None)
            narrow = wide.astype(np.float32)
        if out is None:
            return narrow
        out[...] = narrow
        return out
    # Stochastic rounding numbers elements in C order; other modes can take any memory order.
    order: Literal["C", "K"] = "C" if mode == "stochastic" else "K"
    target = np.empty_like(x, order=order) if out is None else out
    source, sink = x, target
    both_c = x.flags.c_contiguous and target.flags.c_contiguous
    both_f = x.flags.f_contiguous and target.flags.f_contiguous
    if not (both_c or (both_f and order == "K")):
        source = np.ascontiguousarray(x)
        sink = np.empty_like(source)
    read, written = (array.reshape(-1, order="A") for array in (source, sink))
    _kernels.round(kernel_format(fmt), MODES.index(mode), key, read, written, get_num_threads())
    if sink is not target:
        target[...] = sink
    return target


def round_scalar(
    x: float | Fraction, fmt: str | FloatFormat, mode: Mode = "nearest", draw: float = 0.5
) -> float:
    """Round one number by the definition, in exact arithmetic; slow, and meant to be read.

    ``x`` may be a `Fraction`, such as the exact result of an operation. ``draw`` in [0, 1)
    decides a stochastic rounding: up if it is below (x - below) / (above - below).

    Parameters
    ----------
    x : float or Fraction
    fmt : str or FloatFormat
    mode : str
        As for `round_to`.
    draw : float
        For stochastic rounding.

    Examples
    --------
    >>> from fractions import Fraction
    >>> rw.rounding.round_scalar(Fraction(1, 3), "bf16")
    0.333984375
    """
    fmt = get_format(fmt)
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    if isinstance(x, float) and math.isnan(x):
        return x
    sign = math.copysign(1.0, x) if isinstance(x, float) else (-1.0 if x < 0 else 1.0)
    overflowed = sign * {"inf": math.inf, "nan": math.nan, "saturate": fmt.max}[fmt.overflow]
    if isinstance(x, float) and math.isinf(x):
        return overflowed
    magnitude = abs(Fraction(x))
    if magnitude == 0:
        return sign * 0.0

    if magnitude < Fraction(fmt.min_normal):
        spacing = Fraction(fmt.min_subnormal)
    else:
        # The e with 2**e <= magnitude < 2**(e + 1).
        e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        e -= magnitude < Fraction(2) ** e
        spacing = Fraction(2) ** (e - fmt.p + 1)
    below, rest = divmod(magnitude, spacing)  # the neighbours are below and below + 1 spacings
    away = {
        "nearest": rest > spacing / 2 or (rest == spacing / 2 and below % 2 == 1),
        "toward_zero": False,
        "up": rest > 0 and sign > 0,
        "down": rest > 0 and sign < 0,
        "stochastic": draw < rest / spacing,
    }[mode]
    rounded = (below + away) * spacing
    if rounded <= Fraction(fmt.max):
        return sign * float(rounded)
    if (mode, sign) in {("toward_zero", 1), ("toward_zero", -1), ("up", -1), ("down", 1)}:
        return sign * fmt.max
    return overflowed
