"""The probe of a dense matrix on a GPU: `probe.row_features`, computed there.

Nothing is read back but the inner products of 64 rows, and their diagonal entries and lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.arrays import array_module, device_of, on_host
from roundwise.backends.cuda.probe import probe_rows
from roundwise.features.probe import ROWS, angles_from


def device_row_features(A: Any) -> dict[str, float]:
    """``diagonal_share``, ``coherence`` and ``remainder`` of a matrix of moderate size."""
    n = len(A)
    count = min(ROWS, n)
    device = device_of(A)
    read = _read(A, count) if device is None else probe_rows(device, A, count)
    if not np.isfinite(read).all():  # nothing is known of such rows
        return {"diagonal_share": 0.0, "coherence": float(n), "remainder": 0.0}
    coherence, remainder = angles_from(read[: count * count].reshape(count, count).copy("F"), n)
    sizes, lengths_of = read[count * count : -count], read[-count:]
    shares = np.divide(sizes, lengths_of, out=np.zeros(count), where=lengths_of > 0)
    share = float(np.sort(shares)[count // 2])
    return {"diagonal_share": share, "coherence": coherence, "remainder": remainder}


def _read(A: Any, count: int) -> NDArray[np.float64]:
    """As `probe_rows` computes it by kernels: for any array module."""
    xp, n = array_module(A), len(A)
    rows = np.arange(count) * n // count
    sampled = (A if A.flags.c_contiguous else A.T)[rows]
    squares = sampled * sampled
    norms = xp.sqrt(squares.sum(axis=1))
    diagonal = sampled[np.arange(count), rows]
    squares[np.arange(count), rows] = 0.0  # it does not count for the scale of a column
    weights = xp.where(norms > 0, 1.0 / xp.maximum(norms, np.finfo(np.float64).tiny), 0.0)
    lengths = xp.sqrt((weights * weights) @ squares)
    longest = lengths.max()
    scaled = sampled / xp.where(lengths > 0, lengths, xp.where(longest > 0, longest, 1.0))
    gram = (scaled @ scaled.T).reshape(-1)
    return on_host(xp.concatenate([gram, abs(diagonal), norms]))
