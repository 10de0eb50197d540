"""Numbers in the formats of a GPU: which unit multiplies them, how operands are split for it, and
how results are rounded to nearest, ties to even, as `round_to` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.backends.cuda.device import Device
from roundwise.backends.cuda.plan import Plan
from roundwise.formats import FP32, FP64, FloatFormat


@dataclass(frozen=True)
class Products:
    """How the large products of a format are computed."""

    kind: str  # of `Device.gemm`
    parts: int = 0  # 16-bit numbers that an operand is split into
    left: tuple[int, ...] = ()  # which part of the one factor meets which part of the other
    right: tuple[int, ...] = ()


PRODUCTS = {
    "fp64": Products("float64"),
    "fp32": Products("float32"),
    "tf32": Products("tf32"),
    "fp16": Products("float16", 1, (0,), (0,)),
    "bf16": Products("bfloat16", 1, (0,), (0,)),
    "fp16x2": Products("float16", 2, (1, 0, 0), (0, 1, 0)),
    "bf16x3": Products("bfloat16", 3, (2, 1, 0, 1, 0, 0), (0, 1, 2, 0, 1, 0)),
}
"""16-bit units cut off what a sum in FP32 cannot hold, in every step of 16 products, instead of
rounding it: the smallest products come first, while the sum is small."""


def split(
    on: Device | Plan,
    products: Products,
    source: tuple[int, int],
    shape: tuple[int, int],
    out: tuple[int, int, int],
    order: tuple[int, ...],
    overflow: tuple[int, int],
) -> None:
    """Write 16-bit parts of an FP32 matrix, one section after the other, in the given order.

    `source` has an address and a row length; `out` these and the distance of two sections.
    `overflow` is a column, and where to note it if a number is too large for the format.
    """
    rows, columns = shape
    code = sum(part << 4 * section for section, part in enumerate(order))
    grid = -(-columns // 256), min(-(-rows // 4), 4096)
    is_bf16 = int(products.kind == "bfloat16")
    args = (*source, rows, columns, *out, len(order), code, products.parts, is_bf16, *overflow)
    on.launch("split", "split", grid, 256, args, np.float32)


def plain(real: Any) -> str:
    """The products of a type of numbers itself."""
    return "float64" if real == np.float64 else "float32"


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
