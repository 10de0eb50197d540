"""CUDA graphs whose kernels keep the priorities of the streams that they were recorded from.

CuPy's graphs forget them: kernels that others wait for would queue behind large products.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint64, c_void_p
from functools import cache
from typing import Any

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
