"""cuBLAS and the driver by ctypes, for what CuPy does not let us do with CUDA graphs.

Products become parts of a graph: each of its streams has a handle of its own of the cuBLAS that
CuPy has loaded, which works in memory that we give it, as a graph may not allocate any. And kernels
keep the priorities of the streams that they were recorded from: CuPy's graphs forget them, and
kernels that others wait for would queue behind large products.
"""

from __future__ import annotations

import ctypes
import importlib
from ctypes import c_int, c_longlong, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any

SPACE = 2**25
"""Bytes that cuBLAS asks for to work in, on Hopper; fewer elsewhere."""


def space_for(n: int) -> int:
    """Bytes for the products of a factorization: no more than some copies of a small matrix."""
    return min(SPACE, max(2**20, 16 * (-(-n // 64) * 64) ** 2))


_OPERAND, _BATCHED = (c_void_p, c_int, c_int), (c_void_p, c_int, c_int, c_longlong)
_HEAD = (c_void_p, *5 * (c_int,), c_void_p)
_SIGNATURES = {
    "gemmEx": (*_HEAD, *2 * _OPERAND, c_void_p, *_OPERAND, c_int, c_int),
    "gemmStridedBatchedEx": (*(*_HEAD, *2 * _BATCHED, c_void_p, *_BATCHED), *(c_int, c_int, c_int)),
}
"""The parameters of products, by CuPy's names for them."""


@cache
def library() -> Any:
    """The library with all functions that we need; None if there is none."""
    cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
    runtime = importlib.import_module("cupy_backends.cuda.api.runtime")
    for name in (cublas.__file__, f"libcublas.so.{runtime.runtimeGetVersion() // 1000}"):
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(found, "cublasSetSmCountTarget") and hasattr(found, "cublasSetWorkspace_v2"):
            return found
    return None


class Handle:
    """cuBLAS on one stream at a time."""

    def __init__(self) -> None:
        self._library, self._handle = library(), c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        for name, types in _SIGNATURES.items():
            getattr(self._library, _symbol(name)).argtypes = types

    def bind(self, stream: int, space: int, size: int, processors: int) -> None:
        """Work on that stream, in so many bytes there, on so many processors (0: all)."""
        self._call("cublasSetStream_v2", self._handle, c_void_p(stream))
        self._call("cublasSetWorkspace_v2", self._handle, c_void_p(space), c_size_t(size))
        self._call("cublasSetSmCountTarget", self._handle, c_int(processors))

    def product(self, name: str, args: Any) -> None:
        """A product by CuPy's name of it, with CuPy's arguments behind the handle."""
        self._call(_symbol(name), self._handle, *args)

    def _call(self, name: str, *args: Any) -> None:
        if status := getattr(self._library, name)(*args):
            raise RuntimeError(f"{name} of cuBLAS failed with status {status}")


@cache
def handles(number: int) -> tuple[Handle, Handle]:
    """Those of the two streams of a plan, on a device, which is current."""
    return Handle(), Handle()


def _symbol(name: str) -> str:
    return f"cublas{name[0].upper()}{name[1:]}"


_USE_NODE_PRIORITY = 8  # CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY of cuda.h


class PrioritizedGraph:
    """A recorded graph, ready to be launched; it belongs to this object."""

    def __init__(self, driver: Any, recorded: Any) -> None:
        self._driver, self._recorded, self._ready = driver, recorded, c_void_p()
        graph, flags = c_void_p(recorded.graph), c_uint64(_USE_NODE_PRIORITY)
        made = driver.cuGraphInstantiateWithFlags(ctypes.byref(self._ready), graph, flags)
        if made:
            raise RuntimeError(f"CUDA could not make a graph ready (error {made})")

    def launch(self, stream: Any) -> None:
        if failed := self._driver.cuGraphLaunch(self._ready, c_void_p(stream.ptr)):
            raise RuntimeError(f"CUDA could not launch a graph (error {failed})")

    def __del__(self) -> None:
        if self._ready:
            self._driver.cuGraphExecDestroy(self._ready)


def with_priorities(recorded: Any) -> Any:
    """CuPy's graph made ready again, with priorities; itself where the driver has none."""
    driver = _driver()
    return recorded if driver is None else PrioritizedGraph(driver, recorded)


@cache
def _driver() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # another system than Linux: CuPy's graphs work there, too
        return None
    return driver if hasattr(driver, "cuGraphInstantiateWithFlags") else None
