"""Products in the formats of a GPU: which unit multiplies, and how operands are split for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.backends.cuda.device import Device


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
    device: Device,
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
    device.launch("split", "split", grid, 256, args, np.float32)


def plain(real: Any) -> str:
    """The products of a type of numbers itself."""
    return "float64" if real == np.float64 else "float32"
