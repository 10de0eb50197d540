"""The calls of `envelope.py` with their arrays on a GPU, against CuPy and torch there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import cupy
import cupyx.lapack
import cupyx.scipy.linalg
import cupyx.scipy.sparse as device_sparse
import torch
from cupyx.scipy.sparse import linalg as sparse_linalg
from drawn_calls import Call, prepare
from scipy import sparse

Thunk = Callable[[], Any]
DENSE_UP_TO = 2000
"""Sparse systems of at most this order are also solved by CuPy as dense ones."""


def moved(call: Call) -> Call:
    """The call with its arrays on the GPU."""
    there = copy.copy(call)
    matrices = tuple(_on_device(A) for A in call.sequence)
    vars(there).update(sequence=matrices, b=_on_device(call.b))
    return there


def _on_device(A: Any) -> Any:
    if sparse.issparse(A):
        return device_sparse.csr_matrix(sparse.csr_matrix(A))
    return cupy.asarray(A)


def on_host(x: Any) -> Any:
    return x.get() if isinstance(x, cupy.ndarray) else x.cpu().numpy()


def contenders(call: Call, ours: str) -> dict[str, Thunk]:
    """Our call and those of the peers; each ends when the GPU is done."""
    there = moved(call)
    solve = prepare(there)
    found = {ours: lambda A: solve(A, call.full_output)} | peers(there)

    def until_done(function: Callable[[Any], Any]) -> Thunk:
        turn = _cycled(there.sequence)

        def run() -> Any:
            x = function(turn())
            cupy.cuda.runtime.deviceSynchronize()
            return x.x if hasattr(x, "attempts") else x

        return run

    return {name: until_done(function) for name, function in found.items()}


def _cycled(matrices: tuple[Any, ...]) -> Thunk:
    """Each call takes the next matrix."""
    taken = [0]

    def turn() -> Any:
        taken[0] += 1
        return matrices[(taken[0] - 1) % len(matrices)]

    return turn


def peers(call: Call) -> dict[str, Callable[[Any], Any]]:
    """Functions of A. Factors for many solves are made by the first call, which is not timed."""
    b, meant = call.b, call.meant
    if call.entry == "lstsq":
        found = {"cupy.linalg.lstsq": lambda A: cupy.linalg.lstsq(A, b, rcond=None)[0]}
        return found | {"torch.linalg.lstsq": _by_torch(call, _least_squares)}
    if call.kind == "sparse":
        found = {"cupyx spsolve": lambda A: sparse_linalg.spsolve(meant(A).tocsr(), b)}
        if call.n <= DENSE_UP_TO:
            found["cupy.linalg.solve"] = lambda A: cupy.linalg.solve(meant(A).toarray(), b)
        return found
    if call.entry == "factor":
        trans = "NTH".index(call.trans)
        lu = cache(lambda: cupyx.scipy.linalg.lu_factor(call.A))
        return {"lu_solve": lambda A: cupyx.scipy.linalg.lu_solve(lu(), b, trans)}
    found = {"cupy.linalg.solve": lambda A: cupy.linalg.solve(meant(A), b)}
    found["torch.linalg.solve"] = _by_torch(call, torch.linalg.solve)
    if call.told == "positive definite" and call.kind == "dense":
        found["cupyx.lapack.posv"] = lambda A: cupyx.lapack.posv(A, b)
    return found


def _by_torch(call: Call, function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    b = torch.from_dlpack(call.b)
    return lambda A: function(torch.from_dlpack(call.meant(A)), b)


def _least_squares(A: Any, b: Any) -> Any:
    columns = b[:, None] if b.ndim == 1 else b
    x = torch.linalg.lstsq(A, columns).solution
    return x[:, 0] if b.ndim == 1 else x
