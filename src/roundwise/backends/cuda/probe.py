"""The probe of some rows of a matrix on a GPU: four kernels, a product, one copy to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.arrays import on_host
from roundwise.backends.cuda.device import Device, address


def probe_rows(device: Device, A: Any, count: int) -> NDArray[np.float64]:
    """Inner products of `count` rows, scaled by columns; their diagonal entries; their lengths.

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
