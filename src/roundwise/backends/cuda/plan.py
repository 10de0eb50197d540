"""Launches and products in a fixed order: run one by one at first, later as one CUDA graph.

Launching a kernel through CuPy takes longer than many of ours run, most of it to pack arguments.
A plan packs them once. The first run of a plan launches while it records, so that a new size costs
no more than its launches. From the run after `DIRECT_RUNS` others on, a graph is launched.

All memory that a plan works in is one array, the arena; where an argument is an address in it, it
moves with the arena. A graph belongs to one place of the arena: CuPy's pool gives the same memory
again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from roundwise.backends.cuda import cublas

if TYPE_CHECKING:
    from roundwise.backends.cuda.device import Device

HIGHEST_PRIORITY = -5
SHARE = 0.9
"""Of the processors, for the products of the caller's stream while the second stream is at work.
cuBLAS would take all of them, and the small kernels of the second stream would wait."""

DIRECT_RUNS = 2
"""Runs at one place of memory before a graph is recorded there. A taste: who solves a size three
times will solve it again. ``python benchmarks/gpu_parts.py plans`` on an H200: recording LU takes 2
to 9 ms for n = 1000 to 8192, and saves 0.2 to 0.5 ms a run; substitution 0.2 to 1.5, and 0.1."""

MOST_ITEMS = 50_000
"""Launches and products that plans and their graphs may hold, all together. A taste: about the
graphs of 60 systems with 4096 unknowns, or of 10 with 32 768."""

MOST_GRAPHS = 16
"""Of one plan: as many threads may solve systems of one size. A taste."""

_CHUNK = 4096  # numbers: arguments are packed in arrays of that length
_HANDLES = threading.Lock()  # cuBLAS's handles are shared: one thread enqueues or records at a time
_KEEPING = threading.Lock()  # of plans: held for a look-up, never while one is run
_PLANS: dict[tuple[Device, Any], Plan] = {}  # the least recently used one is the first


def run_plan(
    device: Device, key: Any, record: Callable[[Plan], None], arena: Any, spaces: Any = None
) -> None:
    """Run what ``record(plan)`` adds to a plan, which must depend on the key alone.

    The current stream goes on when all of it is done. `spaces` is the part of the arena that cuBLAS
    works in, for both streams, if there are products.
    """
    with _KEEPING:
        plan = _PLANS.pop((device, key), None)
        if plan is not None:
            _PLANS[device, key] = plan
    if plan is not None:
        has_grown = plan.run(arena)
    else:
        # Threads may record the same plan at the same time: each has a recorder of its own.
        plan, has_grown = Plan(device, arena, spaces), True
        plan.first_run(record)
    if has_grown:
        with _KEEPING:
            _PLANS.setdefault((device, key), plan)
            while len(_PLANS) > 1 and sum(plan.size for plan in _PLANS.values()) > MOST_ITEMS:
                del _PLANS[next(iter(_PLANS))]


def held() -> tuple[int, int, int]:
    """How many plans are kept, how many graphs they have, and how many items all of these hold."""
    with _KEEPING:
        plans = list(_PLANS.values())
    return len(plans), sum(plan.graphs for plan in plans), sum(plan.size for plan in plans)


class Plan:
    """Launches and products that can be run again for any arena of the same size.

    `launch` and `gemm` take what a `Device`'s take. Only the thread that made the plan adds to it,
    in `first_run`: what others launch meanwhile goes to their own streams.
    """

    def __init__(self, device: Device, arena: Any, spaces: Any = None) -> None:
        self._device, self._start, self._size = device, address(arena), arena.nbytes
        self._space = 0 if spaces is None else address(spaces) - self._start
        self._space_size = 0 if spaces is None else spaces.nbytes // 2
        self._items: list[tuple[str, int, Any]] = []  # kind, stream, what
        self._values: list[Any] = []  # arrays of the arguments of kernels
        self._places: list[Any] = []  # arrays of their addresses
        self._used = _CHUNK  # numbers of the last array
        self._signals: dict[Any, int] = {}
        self._graphs: dict[int, Any] = {}  # by the arena's address; least recently used first
        self._runs: dict[int, int] = {}  # at a place without a graph
        self._stream = 0  # while recording: 1 is the second one
        self._has_products = False
        self._lock = threading.Lock()

    @property
    def graphs(self) -> int:
        """How many graphs it has."""
        return len(self._graphs)

    @property
    def size(self) -> int:
        """How many launches, products and signals it holds, those of its graphs included."""
        return len(self._items) * (1 + len(self._graphs))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it, what is added runs on a second stream, beside the caller's."""
        if "start" not in self._signals:
            self.signal("start")
            self._stream = 1
            self._add("fork", self._signals["start"])
        self._stream = 1
        try:
            yield
        finally:
            self._stream = 0

    def launch(
        self,
        source: str,
        kernel: str,
        grid: int | tuple[int, ...],
        block: int,
        args: tuple[Any, ...],
        real: Any = np.float64,
        stored: Any = None,
    ) -> None:
        """Add a kernel, as `Device.launch` runs it."""
        function = self._device.kernel(source, kernel, real, stored)
        blocks = ((grid,) if isinstance(grid, int) else grid) + (1, 1)
        self._add("launch", (_handle(function), *blocks[:3], block, 1, 1, 0, self._packed(args)))

    def gemm(self, *args: Any, **kwargs: Any) -> None:
        """Add a product, as `Device.gemm` runs it; its handle is that of who runs the plan."""
        name, rest = self._device.product(*args, **kwargs)
        if name:
            self._has_products = True
            self._add("product", (name, rest))

    def signal(self, name: Any) -> None:
        """Note that all so far on this stream is done."""
        self._signals[name] = len(self._signals)
        self._add("signal", self._signals[name])

    def await_signal(self, name: Any) -> None:
        """Let this stream wait for a signal; for one that never comes, not at all."""
        if name in self._signals:
            self._add("wait", self._signals[name])

    def first_run(self, record: Callable[[Plan], None]) -> None:
        """Record the plan, and launch on the current stream what is recorded."""
        with self._lock, self._enqueued() as self._enqueue:
            record(self)
            if "start" in self._signals:
                with self.aside():
                    self.signal("end")
                self.await_signal("end")
        self._moving = [self._is_inside(values) for values in self._values]
        self._runs[self._start] = 1

    def run(self, arena: Any) -> bool:
        """Launch everything; the current stream goes on when all of it is done.

        Returns whether a graph was recorded.
        """
        with self._lock:
            place = address(arena)
            graph = self._graphs.pop(place, None)
            is_new = graph is None and self._is_worth_a_graph(place)
            if graph is None and place != self._start:
                self._move(place - self._start)
            if is_new:
                graph = self._graph()
            if graph is not None:
                self._graphs[place] = graph
                graph.launch(self._device.xp.cuda.get_current_stream())
            else:
                with self._enqueued() as enqueue:
                    for item in self._items:
                        enqueue(*item)
            for kept in (self._graphs, self._runs):
                if len(kept) > MOST_GRAPHS:
                    del kept[next(iter(kept))]
            return is_new

    def _is_worth_a_graph(self, place: int) -> bool:
        """Whether enough runs at this place went without; this one is counted."""
        runs = self._runs.pop(place, 0)
        if runs >= DIRECT_RUNS and (self._device.records_products or not self._has_products):
            return True
        self._runs[place] = runs + 1
        return False

    def _add(self, kind: str, what: Any) -> None:
        item = kind, self._stream, what
        self._items.append(item)
        self._enqueue(*item)

    def _packed(self, args: tuple[Any, ...]) -> int:
        """Keep arguments; where a kernel finds the addresses of their values."""
        count = len(args)
        if self._used + count > _CHUNK:
            values = np.zeros(_CHUNK, dtype=np.int64)
            self._values.append(values)
            self._places.append(values.ctypes.data + 8 * np.arange(_CHUNK, dtype=np.uintp))
            self._used, self._first = 0, int(self._places[-1].ctypes.data)
        start, self._used = self._used, self._used + count
        self._values[-1][start : self._used] = [
            a if isinstance(a, int) else address(a) for a in args
        ]
        return self._first + 8 * start

    def _graph(self) -> Any:
        """A CUDA graph of everything, for this place of the arena."""
        lanes = _lanes(self._device)
        with lanes.recorded, self._enqueued(lanes.recorded) as enqueue:
            lanes.recorded.begin_capture()
            try:
                for item in self._items:
                    enqueue(*item)
            finally:
                graph = lanes.recorded.end_capture()
        return cublas.with_priorities(graph)

    @contextmanager
    def _enqueued(self, main: Any = None) -> Iterator[Callable[[str, int, Any], None]]:
        """What puts an item on a stream, the current one and a second one, or captures it there."""
        device, cuda, lanes = self._device, self._device.xp.cuda, _lanes(self._device)
        caller = cuda.get_current_stream()
        streams = caller if main is None else main, lanes.aside
        launch, pointers = device.driver.launchKernel, [stream.ptr for stream in streams]
        own = cublas.handles(device.number) if device.records_products and self._space else ()

        def bind(i: int, processors: int) -> None:
            if own:
                space = self._start + self._space + i * self._space_size
                own[i].bind(pointers[i], space, self._space_size, processors)

        def enqueue(kind: str, stream: int, what: Any) -> None:
            if kind == "launch":
                launch(*what[:8], pointers[stream], what[8], 0)
            elif kind == "product" and own:
                own[stream].product(*what)
            elif kind == "product":  # through CuPy, where cuBLAS itself cannot be reached
                streams[stream].use()
                getattr(device.cublas, what[0])(cuda.device.get_cublas_handle(), *what[1])
                caller.use()
            elif kind == "signal":
                lanes.event(what).record(streams[stream])
            else:
                streams[stream].wait_event(lanes.event(what))
                if kind == "fork":
                    bind(0, int(SHARE * device.processors))

        with _HANDLES:
            bind(0, 0)
            bind(1, 0)
            yield enqueue

    def _is_inside(self, value: Any) -> Any:
        return (value >= self._start) & (value < self._start + self._size)

    def _move(self, distance: int) -> None:
        """Let all addresses in the arena follow it."""
        for values, moving in zip(self._values, self._moving, strict=True):
            values[moving] += distance
        start, end = self._start, self._start + self._size
        for i, (kind, stream, what) in enumerate(self._items):
            if kind == "product":
                args = [a + distance if start <= a < end else a for a in what[1]]
                self._items[i] = kind, stream, (what[0], args)
        self._start += distance


class _Lanes:
    """A thread's streams and events on a device."""

    def __init__(self, cuda: Any) -> None:
        self.recorded = cuda.Stream(non_blocking=True)
        self.aside = cuda.Stream(non_blocking=True, priority=HIGHEST_PRIORITY)
        self._cuda, self._events = cuda, []  # type: Any, list[Any]

    def event(self, number: int) -> Any:
        """An event of the plan that is enqueued."""
        while number >= len(self._events):
            self._events.append(self._cuda.Event(disable_timing=True))
        return self._events[number]


_OF_THREAD = threading.local()


def _lanes(device: Device) -> _Lanes:
    """Those of this thread on the device, which is current."""
    known: dict[Device, _Lanes] = _OF_THREAD.__dict__.setdefault("lanes", {})
    if device not in known:
        known[device] = _Lanes(device.xp.cuda)
    return known[device]


def _handle(function: Any) -> int:
    """CUDA's handle of a kernel that CuPy compiled."""
    return int(getattr(function, "kernel", function).ptr)


def address(array: Any, row: int = 0, column: int = 0) -> int:
    """Where an entry of a matrix by rows, or of a vector, is in the device's memory."""
    offset = row if array.ndim == 1 else row * array.shape[-1] + column
    data = array.data
    start = data.ptr if hasattr(data, "ptr") else array.ctypes.data  # NumPy's stands in for tests
    return int(start) + offset * int(array.itemsize)
