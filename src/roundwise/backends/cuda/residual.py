"""Residuals in double-double on the GPU, and the sizes of a matrix, each in one pass over it; the
probe of some of its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.arrays import on_host
from roundwise.backends.cuda.device import Device, address
from roundwise.backends.native import exact

_PARTS = 64  # of the columns, where a thread has a row
_STEP = 4  # products that a unit of tensors sums at a time
_MOST_PRODUCTS = 16  # of a block: a taste, fewer take longer, more count against the gate
_EXACT = "residual_exact", 64  # the kernel in twice the precision for several columns


def block_for(n: int) -> int:
    """The products of a block, where residuals of several columns are computed in FP64.

    Their known error is that of any number of columns: larger blocks would leave the refinement
    of a single one less room below the gate.
    """
    return min(exact.block_for(n), _MOST_PRODUCTS)


def residual(device: Device, A: Any, X: Any, B: Any, block: int = exact.EXACT) -> Any:
    """``B - A X`` for blocks of float64 columns, rounded at the end.

    The error is at most what `exact.error_of` says of n and the block. Several columns are one
    kernel, which sums blocks of products as docs/accuracy.md has it; one column is always computed
    in twice the precision: its kernel waits for memory anyway.
    """
    xp, n = device.xp, len(A)
    columns = 1 if X.ndim == 1 else X.shape[1]
    R = xp.empty(B.shape, dtype=np.float64, order="F")
    if columns > 1:
        group = block // _STEP * _STEP
        side = 64 if group and columns > 32 else 32
        sizes = (n, columns, group) if group else (n, columns)
        kernel, threads = (f"residual_groups_{side}", side**2 // 32) if group else _EXACT
        args = *_steps(A), *sizes, *_steps(X), *_steps(B), *_steps(R)
        grid = -(-n // side), -(-columns // side)
        device.launch("twofold+columns", kernel, grid, threads, args, np.float64, A.dtype.type)
        return R
    by_rows, ld = _layout(A)
    x, b, r = (xp.ascontiguousarray(M.reshape(-1)) for M in (X, B, R))
    if by_rows:
        _launch(device, "residual_rows", -(-n // 8), 256, (A, ld, n, x, b, r), A)
    else:
        width = -(-n // _PARTS)
        partial, blocks = xp.empty((_PARTS, n, 2)), -(-n // 128)
        _launch(device, "residual_columns", (blocks, _PARTS), 128, (A, ld, n, width, x, partial), A)
        _launch(device, "residual_finish", blocks, 128, (n, _PARTS, partial, b, r), A)
    return r.reshape(B.shape)


def row_sums(device: Device, A: Any) -> tuple[float, float]:
    """``||A||_inf`` and ``max |a_ij|``, not finite if A has numbers that are not."""
    xp, (rows, columns) = device.xp, A.shape
    by_rows, ld = _layout(A)
    parts = 1 if by_rows else _PARTS
    found = xp.empty((2, parts, rows))
    sums, largest = address(found[0]), address(found[1])
    if by_rows:
        _launch(
            device, "sizes_of_rows", -(-rows // 8), 256, (A, ld, rows, columns, sums, largest), A
        )
    else:
        grid, width = (-(-rows // 128), _PARTS), -(-columns // _PARTS)
        args = A, ld, rows, columns, width, sums, largest
        _launch(device, "sizes_of_columns", grid, 128, args, A)
    bits = xp.zeros(2, dtype=np.uint64)
    _launch(device, "largest_sizes", -(-rows // 256), 256, (sums, largest, rows, parts, bits), A)
    norm, most = on_host(bits).view(np.float64).tolist()
    return norm, math.inf if math.isnan(most) else most


def _steps(M: Any) -> tuple[Any, int, int]:
    """A matrix, and the distances of its rows and columns."""
    down, across = (step // M.itemsize for step in M.strides)
    return M, down, across


def _layout(A: Any) -> tuple[bool, int]:
    """Whether rows are contiguous (columns otherwise), and the distance of two."""
    _, down, across = _steps(A)
    by_rows = across == 1 or A.shape[1] == 1
    return by_rows, down if by_rows else across


def _launch(device: Device, kernel: str, grid: Any, block: int, args: Any, A: Any) -> None:
    device.launch("twofold+exact", kernel, grid, block, args, np.float64, A.dtype.type)


def probe_rows(device: Device, A: Any, count: int) -> NDArray[np.float64]:
    """Inner products of `count` rows, scaled by columns; their diagonal entries; their lengths.

    It takes four kernels, a product, and one copy to the host.
    A is contiguous; of a Fortran-ordered one, columns are looked at.
    """
    A = A if A.flags.c_contiguous else A.T
    n, xp = len(A), device.xp
    found = xp.empty(count * count + 2 * count)
    columns, scaled = xp.empty(n), xp.empty((count, n))
    longest = xp.zeros(1, dtype=np.uint64)
    diagonal, lengths = (found[count * count :][i * count :] for i in range(2))
    types, blocks, rows = {"stored": A.dtype.type}, -(-n // 128), (A, n, n, count)
    device.launch("look", "row_lengths", count, 256, (*rows, diagonal, lengths), **types)
    of_columns = (*rows, lengths, columns, longest)
    device.launch("look", "column_lengths", blocks, 128, of_columns, **types)
    device.launch("look", "scaled_rows", blocks, 128, (*rows, columns, longest, scaled), **types)
    matrix, gram = (address(scaled), n), (address(found), count)
    shape = count, count, n
    device.gemm(shape, matrix, matrix, gram, 1.0, 0.0, "float64", transpose_B=True)
    return on_host(found)
