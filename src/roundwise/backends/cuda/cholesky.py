"""Cholesky factorization on the GPU, stored by rows: ``A = U' U``.

In FP64, FP32 and TF32 it is cuSOLVER's. In the formats of 16-bit units, it works by columns of
panels: cuSOLVER factorizes a panel's diagonal block in FP32, cuBLAS solves for the rows below, and
what is right of the panel is updated by products in the format, of the lower triangle alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from roundwise.backends.arrays import on_host
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.cuda.cublas import space_for
from roundwise.backends.cuda.device import Device, address, storage_type
from roundwise.backends.cuda.lu import Packed, moderating_scale
from roundwise.backends.cuda.plan import Plan, run_plan
from roundwise.backends.cuda.products import PRODUCTS, split
from roundwise.backends.cuda.substitution import Triangles, invert_blocks
from roundwise.formats import FloatFormat

WIDTH = 512
_KERNEL = "Cholesky factorization"
_NEVER = np.iinfo(np.int32).max


def factorize(device: Device, A: Any, fmt: FloatFormat) -> Packed:
    """Factors of a symmetric positive definite A."""
    xp, n, real = device.xp, len(A), storage_type(fmt)
    by_units = PRODUCTS[fmt.name].parts > 0
    scale = moderating_scale(device, A, fmt)
    spaces = (2, space_for(n)), np.uint8
    triangles, arrays = Triangles.allocate(device, n, real, is_symmetric=True, spaces=spaces)
    a = triangles.lu[:, :n]
    xp.multiply(A, scale, out=a, casting="unsafe")
    if by_units:
        failed = _eliminate(device, triangles.lu, n, fmt)
        a[...] = xp.tril(a).T.copy()
    else:
        failed = xp.zeros(2, dtype=np.int32)
        device.cholesky((address(triangles.lu), triangles.ld), n, real, address(failed), upper=True)

    def invert(plan: Plan) -> None:
        triangles.prepare(plan)
        invert_blocks(plan, triangles, True, 0, n)

    run_plan(device, ("inverses of U", n, real), invert, triangles.arena, arrays["spaces"])
    indefinite, overflow = on_host(failed).tolist()
    if indefinite:
        raise ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, _KERNEL, fmt)
    if overflow:
        raise ArithmeticFailure(Status.OVERFLOW, _KERNEL, fmt, overflow - 1)
    return Packed(triangles, fmt, scale=scale)


def _eliminate(device: Device, a: Any, n: int, fmt: FloatFormat) -> Any:
    """L in the lower triangle of a, panel by panel.

    Returns whether it was not positive definite, and the column after the one that overflowed.
    """
    xp, ld, products = device.xp, a.shape[1], PRODUCTS[fmt.name]
    sections, real = len(products.left), a.dtype.type
    panels = range(0, n, WIDTH)
    indefinite = xp.zeros(len(panels), dtype=np.int32)
    status = xp.full(1, _NEVER, dtype=np.int32)
    halves = [xp.empty((n, sections * WIDTH), dtype=np.uint16) for _ in range(2)]
    for number, first in enumerate(panels):
        end = min(first + WIDTH, n)
        k, below = end - first, n - end
        corner = address(a, first, first), ld
        device.cholesky(corner, k, real, address(indefinite, number), upper=False)
        if not below:
            break
        panel = address(a, end, first), ld
        device.divide_by_triangle(corner, k, panel, below, real)
        left, right = ((address(half), sections * k) for half in halves)
        for out, order in ((left, products.left), (right, products.right)):
            overflow = first, address(status)
            split(device, products, panel, (below, k), (*out, k), order, overflow)
        for start in range(end, n, 2 * WIDTH):  # block columns, from the diagonal down
            stop, skip = min(start + 2 * WIDTH, n), start - end
            device.gemm(
                (n - start, stop - start, sections * k),
                (left[0] + skip * left[1] * 2, left[1]),
                (right[0] + skip * right[1] * 2, right[1]),
                *((address(a, start, start), ld), -1.0, 1.0, products.kind),
                transpose_B=True,
            )
    overflown = xp.where(status < _NEVER, status + 1, 0)
    return xp.concatenate([(indefinite != 0).any()[None], overflown]).astype(np.int32)
