"""Arrays of the processor and of GPUs: which module an array belongs to, and its norms.

NumPy's functions take CuPy's arrays, but not both kinds at once, and nothing is copied to the host
unless `on_host` is asked to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

import roundwise._kernels as _kernels
from roundwise.backends.real_form import RealForm, SparseRealForm

GPUS: dict[int, Any] = {}
"""The GPUs that there is a backend for, by CUDA's number: they have kernels for what follows."""


def device_of(x: Any) -> Any:
    """The GPU that an array is on; None if there is no backend for it."""
    return GPUS.get(getattr(getattr(x, "device", None), "id", -1))


def array_module(x: Any) -> Any:
    """NumPy, or the module that a GPU's array is of: CuPy. It has NumPy's functions."""
    return np if isinstance(x, np.ndarray) else sys.modules[type(x).__module__.partition(".")[0]]


def is_sparse(A: Any) -> bool:
    """Whether A is one of SciPy's sparse matrices; SciPy's own test of an array takes longer."""
    return not isinstance(A, np.ndarray) and issparse(A)


def is_real_form(A: Any) -> bool:
    """Whether A stands for a complex matrix."""
    return not isinstance(A, np.ndarray) and isinstance(A, RealForm | SparseRealForm)


def on_host(x: Any) -> NDArray[Any]:
    """An array in the processor's memory: itself if it is there, else a copy.

    Waits until the array is computed: what solves read back are scalars and norms of columns.
    """
    return x if isinstance(x, np.ndarray) else np.asarray(array_module(x).asnumpy(x))


def norms_of_blocks(blocks: Sequence[Any], weights: Any = None) -> list[NDArray[np.float64]]:
    """The column norms of several blocks, read back together."""
    if isinstance(blocks[0], np.ndarray):
        return [column_norms(X, weights) for X in blocks]
    if device := device_of(blocks[0]):
        return device_norms(device, blocks, weights)
    joined = column_norms(array_module(blocks[0]).concatenate(list(blocks), axis=1), weights)
    return np.split(joined, np.cumsum([X.shape[1] for X in blocks[:-1]]))


def column_norms(X: Any, weights: Any = None) -> NDArray[np.float64]:
    """The max norm of each column, its entries weighted, on the host; NaN if a column has one."""
    if isinstance(X, np.ndarray):
        norms = np.empty(X.shape[1])
        _kernels.native_max_norms(np.asfortranarray(X, dtype=np.float64), weights, norms)
        return norms
    if device := device_of(X):
        return device_norms(device, [X], weights)[0]
    magnitudes = abs(X)
    if weights is not None:
        magnitudes *= weights[:, None]
    return on_host(magnitudes.max(axis=0)) if magnitudes.size else np.zeros(X.shape[1])


def device_norms(device: Any, blocks: Sequence[Any], weights: Any) -> list[NDArray[np.float64]]:
    """Column norms of blocks by a kernel for each, and one copy to the host."""
    ends = list(accumulate(X.shape[1] for X in blocks))
    parts = [slice(end - X.shape[1], end) for X, end in zip(blocks, ends, strict=True)]
    found = device.xp.empty(ends[-1])
    for X, part in zip(blocks, parts, strict=True):
        steps = (step // X.itemsize for step in X.strides)
        args = X, *steps, len(X), 0 if weights is None else weights, found[part]
        if X.shape[1]:
            device.launch(
                "twofold+exact", "column_norms", X.shape[1], 512, args, stored=X.dtype.type
            )
    norms = on_host(found)
    return [norms[part] for part in parts]
