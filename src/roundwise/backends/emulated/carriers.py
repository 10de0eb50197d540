"""The hardware type that carries an emulated format, and the proof that this is exact.

An operation on numbers of a format F(p, emin, emax) is emulated by the hardware's operation in
a carrier G(P, Emin, Emax) followed by rounding to F. The double rounding is innocuous (gives
what one rounding of the exact result z gives) for + - * / sqrt if

    (1)  P >= 2p + 2,      (2)  emax <= Emax,      (3)  emin >= Emin - P + 3p.

Proof. Write q = 2**(emin-p+1) and Q = 2**(Emin-P+1) for the spacings near 0. Two roundings can
differ from one only if G rounds z to a midpoint m of two neighbours in F and z != m.

- z normal in F and in G: (1) suffices, a classical result (Figueroa, SIGNUM Newsl. 30, 1995).
- Sum below 2**emin: a multiple of q, so in F itself: nothing is rounded.
- Product: z has at most 2p bits. If it is not in G, a bit of it lies below Q, so that
  |z| < 2**(2p-1) Q = 2**(Emin-P+2p) <= q/2 by (3). The right result is 0, and G's is at most
  q/2, the midpoint, from which the tie goes to 0 as well.
- Quotient x/y below 2**emin: m is a multiple of q/2, and x - m y is a nonzero multiple of the
  last place of x or of that of m y. With X, Y < 2**p the integer significands, |z - m| =
  |x - m y| / |y| is at least |z|/X or (q/2)/Y, and so more than (q/2) 2**-(p+1) =
  2**(emin-2p-1). That is at least Q/2 if

      (4)  emin >= Emin - P + 2p + 1,

  which (3) implies: G's error, at most Q/2, does not reach m.
- Square root below 2**emin: m is a multiple of q/2, m < 2**emin = 2**(p-1) q, and z**2 - m**2
  is a nonzero multiple of q**2/4, so |z - m| > q 2**-(p+2), and G's error is below
  2**-P 2**(p-1) q <= 2**-(p+3) q.
- A format without subnormals has one midpoint below 2**emin, 2**(emin-1): a special case.
- Overflow: what G overflows, F does too by (2), and F's overflow threshold is a midpoint m.

(3) is no formality: it holds for bf16 in float32 with equality, and fails for tf32, whose
subnormal products would round twice. For formats with float32's own exponent range and p <= 11,
which satisfy (4), the kernels compute such products scaled up by 2**64
(cpp/emulated/rounders.hpp), where float32 holds them exactly. Figueroa's theorem needs round to
nearest, the only mode of the kernels.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from roundwise.formats import FP32, FP64, FloatFormat


def _same_numbers(f: FloatFormat, g: FloatFormat) -> bool:
    return dataclasses.replace(f, name=g.name) == g


def is_innocuous(fmt: FloatFormat, carrier: FloatFormat) -> bool:
    """Whether operations may be rounded to the carrier first; see the module's proof."""
    return _same_numbers(fmt, carrier) or (
        carrier.p >= 2 * fmt.p + 2
        and fmt.emax <= carrier.emax
        and fmt.emin >= carrier.emin - carrier.p + 3 * fmt.p
    )


@cache
def is_emulated(fmt: FloatFormat) -> bool:
    """Whether float32 or float64 carries the format exactly."""
    return is_innocuous(fmt, FP64) or _fits_float32(fmt)


def _fits_float32(fmt: FloatFormat) -> bool:
    has_guarded_products = fmt.p <= 11 and _same_numbers(dataclasses.replace(fmt, p=FP32.p), FP32)
    return has_guarded_products or is_innocuous(fmt, FP32)


@cache
def carrier_type(fmt: FloatFormat) -> type[np.floating[Any]]:
    """The narrowest of float32 and float64 in which the format is emulated exactly."""
    if not is_emulated(fmt):
        raise ValueError(
            f"{fmt.name} (p = {fmt.p}, emin = {fmt.emin}) cannot be emulated exactly in float64; "
            "choose fp64, or p <= 25 with emin >= 3p - 1075"
        )
    return np.float32 if _fits_float32(fmt) else np.float64
