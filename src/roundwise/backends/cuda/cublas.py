"""cuBLAS by ctypes, for what CuPy does not let us do: products as parts of CUDA graphs.

The library is the one that CuPy has loaded. Each stream of a graph has a handle of its own, which
works in memory that we give it: a graph may not allocate any.
"""

from __future__ import annotations

import ctypes
import importlib
from ctypes import c_int, c_longlong, c_size_t, c_void_p
from functools import cache
from typing import Any

SPACE = 2**25
"""Bytes that cuBLAS asks for to work in, on Hopper; fewer elsewhere."""

_OPERAND, _BATCHED = (c_void_p, c_int, c_int), (c_void_p, c_int, c_int, c_longlong)
_HEAD = (c_void_p, *5 * (c_int,), c_void_p)
_SIGNATURES = {
    "gemmEx": (*_HEAD, *2 * _OPERAND, c_void_p, *_OPERAND, c_int, c_int),
    "gemmStridedBatchedEx": (
        *(*_HEAD, *2 * _BATCHED, c_void_p, *_BATCHED),
        *(c_int, c_int, c_int),
    ),
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

    def bind(self, stream: int, space: int, processors: int) -> None:
        """Work on that stream, in `SPACE` bytes there, on so many processors (0: all)."""
        self._call("cublasSetStream_v2", self._handle, c_void_p(stream))
        self._call("cublasSetWorkspace_v2", self._handle, c_void_p(space), c_size_t(SPACE))
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
