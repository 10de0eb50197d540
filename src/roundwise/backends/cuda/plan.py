"""A list of launches and products that takes a few microseconds each to run.

Launching a kernel through CuPy takes longer than many of ours run, most of it to pack arguments.
A plan packs them once. All memory that it works in is one array, the arena; where an argument is
an address in it, it moves with the arena.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from roundwise.backends.cuda.device import Device

HIGHEST_PRIORITY = -5
SHARE = 0.76
"""Of the processors, for the products of the caller's stream while the second stream is at work.
cuBLAS would take all of them, and the small kernels of the second stream would wait."""


MOST_PLANS, MOST_GRAPHS = 32, 16
_PLANS: dict[Any, Plan] = {}


def kept_plan(device: Device, key: Any, run: Callable[[], None], arena: Any) -> Plan:
    """The plan of that name; what ``run()`` launches must depend on the name alone."""
    key = device.number, key
    plan = _PLANS.get(key)
    if plan is None:
        plan = _PLANS[key] = device.planned(run, arena)
        while len(_PLANS) > MOST_PLANS:
            _PLANS.pop(next(iter(_PLANS)), None)
    return plan


class Plan:
    """What was recorded by `Device.planned`, to be run for any arena of the same size."""

    def __init__(self, device: Device, arena: Any) -> None:
        self._device, self._start, self._size = device, address(arena), arena.nbytes
        self._items: list[tuple[str, int, Any]] = []  # kind, stream, what
        self._values: Any = []  # of all arguments of kernels; later an array
        self._signals: dict[Any, int] = {}
        self._events: list[Any] = []
        self._graphs: dict[int, Any] = {}  # by the arena's address
        self._stream = 0  # while recording: 1 is the second one
        self._lock = threading.Lock()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it, everything goes to the second stream."""
        self._stream = 1
        try:
            yield
        finally:
            self._stream = 0

    def add_launch(
        self, function: int, grid: tuple[int, ...], block: int, args: tuple[Any, ...]
    ) -> None:
        what = (function, *grid, block, 1, 1, 0, len(self._values))
        self._items.append(("launch", self._stream, what))
        self._values.extend(a if isinstance(a, int) else address(a) for a in args)

    def add_product(self, product: Any, args: tuple[int, ...]) -> None:
        """A product of cuBLAS; its first argument, the handle, is that of who runs the plan."""
        self._items.append(("product", self._stream, (product, args)))

    def add_signal(self, name: Any) -> None:
        self._signals[name] = len(self._signals)
        self._items.append(("signal", self._stream, self._signals[name]))

    def add_wait(self, name: Any) -> None:
        if name in self._signals:
            self._items.append(("wait", self._stream, self._signals[name]))

    def finished(self) -> Plan:
        """Pack the arguments: a kernel is given the addresses of its arguments' values."""
        self._values = np.array(self._values, dtype=np.int64)
        self._moving = self._is_inside(self._values)
        self._places = self._values.ctypes.data + 8 * np.arange(len(self._values), dtype=np.uintp)
        where = int(self._places.ctypes.data)
        self._items = [
            (kind, stream, (*what[:-1], where + 8 * what[-1]) if kind == "launch" else what)
            for kind, stream, what in self._items
        ]
        self._has_two_streams = any(stream for _, stream, _ in self._items)
        self._has_products = any(kind == "product" for kind, _, _ in self._items)
        cuda = self._device.xp.cuda
        self._aside = cuda.Stream(non_blocking=True, priority=HIGHEST_PRIORITY)
        self._events = [cuda.Event(disable_timing=True) for _ in range(len(self._signals) + 2)]
        return self

    def _is_inside(self, value: Any) -> Any:
        return (value >= self._start) & (value < self._start + self._size)

    def run(self, arena: Any) -> None:
        """Launch everything; the current stream goes on when all of it is done."""
        with self._lock:
            if graph := self._graphs.get(address(arena)):
                graph.launch(self._device.xp.cuda.get_current_stream())
                return
            if (distance := address(arena) - self._start) != 0:
                self._move(distance)
            cuda = self._device.xp.cuda
            if not self._has_products:
                self._graph().launch(cuda.get_current_stream())
                return
            caller, handle = cuda.get_current_stream(), cuda.device.get_cublas_handle()
            if not self._has_two_streams:
                self._launch_all((caller, caller), handle)
                return
            self._aside.wait_event(_recorded(self._events[-1], caller))
            try:
                self._launch_all((caller, self._aside), handle)
            finally:
                caller.use()
                caller.wait_event(_recorded(self._events[-2], self._aside))

    def _graph(self) -> Any:
        """A CUDA graph of all launches, kept for this place of the arena.

        CuPy's pool gives the same memory again and again. CuPy allows no cuBLAS in a graph.
        """
        stream = self._aside
        with stream:
            stream.begin_capture()
            self._launch_all((stream, stream), 0)
            graph = stream.end_capture()
        self._graphs[self._start] = graph
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.pop(next(iter(self._graphs)))
        return graph

    def _launch_all(self, streams: tuple[Any, Any], handle: int) -> None:
        launch = self._device.driver.launchKernel
        limited = limiter(handle) if self._has_two_streams else None
        pointers, current = [stream.ptr for stream in streams], 0
        share = int(SHARE * self._device.processors)
        for kind, stream, what in self._items:
            if kind == "launch":
                launch(*what[:8], pointers[stream], what[8], 0)
            elif kind == "product":
                if stream != current:
                    assert limited is not None
                    streams[stream].use()
                    limited(0 if stream else share)
                    current = stream
                what[0](handle, *what[1])
            elif kind == "signal":
                self._events[what].record(streams[stream])
            else:
                streams[stream].wait_event(self._events[what])
        if limited is not None:
            limited(0)

    def _move(self, distance: int) -> None:
        self._values[self._moving] += distance

        start, end = self._start, self._start + self._size
        self._items = [
            item
            if item[0] != "product"
            else (
                *item[:2],
                (item[2][0], [a + distance if start <= a < end else a for a in item[2][1]]),
            )
            for item in self._items
        ]
        self._start += distance


def _recorded(event: Any, stream: Any) -> Any:
    event.record(stream)
    return event


def limiter(handle: int) -> Any:
    """A function that limits cuBLAS to so many processors; 0 is no limit."""
    cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
    # CuPy does not have this function; the library that it has loaded does (from 11.5 on).
    target = getattr(ctypes.CDLL(cublas.__file__), "cublasSetSmCountTarget", None)
    if target is None:
        return lambda count: None
    return lambda count: target(ctypes.c_void_p(handle), count)


def address(array: Any, row: int = 0, column: int = 0) -> int:
    """Where an entry of a matrix by rows, or of a vector, is in the device's memory."""
    offset = row if array.ndim == 1 else row * array.shape[-1] + column
    data = array.data
    start = data.ptr if hasattr(data, "ptr") else array.ctypes.data  # NumPy's stands in for tests
    return int(start) + offset * int(array.itemsize)
