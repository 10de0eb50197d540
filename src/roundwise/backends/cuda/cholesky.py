"""Cholesky factorization on the GPU, in the formats that LU has.

FP64 and FP32 are cuSOLVER's. In lower formats its FP32 factorizes the diagonal blocks, and what is
below them is updated by products in the format. The factors are kept as those of an LU
factorization, ``(L D^-1) (D L')`` with D the diagonal of L, and are applied by the same code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.cuda.device import Device, address, storage_type
from roundwise.backends.cuda.lu import Packed, moderating_scale
from roundwise.backends.cuda.products import PRODUCTS, split
from roundwise.backends.cuda.substitution import Triangles, invert_blocks
from roundwise.formats import FloatFormat

WIDTH = 512
_KERNEL = "Cholesky factorization"
_NEVER = np.iinfo(np.int32).max


def factorize(device: Device, A: Any, fmt: FloatFormat) -> Packed:
    """Factors of a symmetric positive definite A, of which the lower triangle is read."""
    xp, n, real = device.xp, len(A), storage_type(fmt)
    scale = moderating_scale(device, A, fmt)
    triangles, _ = Triangles.allocate(device, n, real)
    triangles.prepare(device)
    a = triangles.lu[:, :n]
    if PRODUCTS[fmt.name].kind in ("float64", "float32"):
        a[...] = _diagonal(device, A.astype(real), fmt)
    else:
        xp.multiply(A, scale, out=a, casting="unsafe")
        _eliminate(device, triangles.lu, n, fmt)
    diagonal, lower = xp.diagonal(a).copy(), xp.tril(a, -1)
    a[...] = lower.T * diagonal[:, None]
    a += lower / diagonal
    xp.fill_diagonal(a, diagonal * diagonal)
    invert_blocks(device, triangles, False, 0, n)
    invert_blocks(device, triangles, True, 0, n)
    return Packed(triangles, fmt, scale=scale)


def _diagonal(device: Device, block: Any, fmt: FloatFormat) -> Any:
    """L of a block, by cuSOLVER."""
    L = device.cholesky(block)
    if not bool(device.xp.isfinite(L).all()):
        raise ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, _KERNEL, fmt)
    return device.xp.tril(L)


def _eliminate(device: Device, a: Any, n: int, fmt: FloatFormat) -> None:
    """L in the lower triangle of a, panel by panel."""
    xp, ld, products = device.xp, a.shape[1], PRODUCTS[fmt.name]
    sections = max(1, len(products.left))
    status = xp.full(1, _NEVER, dtype=np.int32)
    halves = [
        xp.empty((n, sections * WIDTH), dtype=np.uint16) for _ in range(2 * bool(products.parts))
    ]
    for first in range(0, n, WIDTH):
        end = min(first + WIDTH, n)
        k = end - first
        L = _diagonal(device, xp.ascontiguousarray(a[first:end, first:end]), fmt)
        a[first:end, first:end] = L
        below = n - end
        if not below:
            break
        a[end:n, first:end] = device.solve_triangular(L, a[end:n, first:end].T).T
        panel = address(a, end, first), ld
        left = right = panel
        if products.parts:
            left, right = ((address(half), sections * k) for half in halves)
            for out, order in ((left, products.left), (right, products.right)):
                overflow = first, address(status)
                split(device, products, panel, (below, k), (*out, k), order, overflow)
        size = 2 if products.parts else a.itemsize
        for start in range(end, n, 2 * WIDTH):  # block columns, from the diagonal down
            stop, skip = min(start + 2 * WIDTH, n), start - end
            device.gemm(
                (n - start, stop - start, sections * k),
                (left[0] + skip * left[1] * size, left[1]),
                (right[0] + skip * right[1] * size, right[1]),
                *((address(a, start, start), ld), -1.0, 1.0, products.kind),
                transpose_B=True,
            )
    if int(status[0]) < _NEVER:
        raise ArithmeticFailure(Status.OVERFLOW, _KERNEL, fmt, int(status[0]))
