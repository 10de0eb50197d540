"""A list of launches and products that is run as one CUDA graph.

Launching a kernel through CuPy takes longer than many of ours run, most of it to pack arguments.
A plan packs them once. All memory that it works in is one array, the arena; where an argument is
an address in it, it moves with the arena. For each place of the arena the plan is recorded as a
graph: CuPy's pool gives the same memory again and again.
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

MOST_PLANS, MOST_GRAPHS = 32, 16
_RECORDING = threading.Lock()  # of graphs: the handles of cuBLAS are shared
_KEEPING = threading.Lock()  # of plans: held for a look-up, never while one is recorded
_PLANS: dict[Any, Plan] = {}


def kept_plan(
    device: Device, key: Any, record: Callable[[Plan], None], arena: Any, spaces: Any = None
) -> Plan:
    """The plan of that name; what ``record(plan)`` adds to it must depend on the name alone.

    `spaces` is the part of the arena that cuBLAS works in, for both streams, if there are products.
    The plan that was not used for the longest time goes when there are too many.
    """
    key = device.number, key
    with _KEEPING:
        plan = _PLANS.pop(key, None)
        if plan is not None:
            _PLANS[key] = plan  # the last one used is the last to go
            return plan
    # Threads may record the same plan at the same time: each has a recorder of its own.
    plan = Plan(device, arena)
    record(plan)
    plan.space = 0 if spaces is None else address(spaces) - address(arena)
    plan.finished()
    with _KEEPING:
        plan = _PLANS.setdefault(key, plan)
        while len(_PLANS) > MOST_PLANS:
            del _PLANS[next(iter(_PLANS))]
    return plan


class Plan:
    """Launches and products that are recorded first, then run for any arena of the same size.

    `launch` and `gemm` take what a `Device`'s take, but nothing runs until `run`. Only the thread
    that made it records into it: what others launch meanwhile goes to their own streams.
    """

    def __init__(self, device: Device, arena: Any) -> None:
        self._device, self._start, self._size = device, address(arena), arena.nbytes
        self._items: list[tuple[str, int, Any]] = []  # kind, stream, what
        self._values: Any = []  # of all arguments of kernels; later an array
        self._signals: dict[Any, int] = {}
        self._events: list[Any] = []
        self._graphs: dict[int, Any] = {}  # by the arena's address
        self._stream = 0  # while recording: 1 is the second one
        self.space = 0  # where cuBLAS may work, behind the arena's start
        self._lock = threading.Lock()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it, what is added runs on a second stream, beside the caller's."""
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
        what = (_handle(function), *blocks[:3], block, 1, 1, 0, len(self._values))
        self._items.append(("launch", self._stream, what))
        self._values.extend(a if isinstance(a, int) else address(a) for a in args)

    def gemm(self, *args: Any, **kwargs: Any) -> None:
        """Add a product, as `Device.gemm` runs it; its handle is that of who runs the plan."""
        name, rest = self._device.product(*args, **kwargs)
        if name:
            self._items.append(("product", self._stream, (name, rest)))

    def signal(self, name: Any) -> None:
        """Note that all so far on this stream is done."""
        self._signals[name] = len(self._signals)
        self._items.append(("signal", self._stream, self._signals[name]))

    def await_signal(self, name: Any) -> None:
        """Let this stream wait for a signal; for one that never comes, not at all."""
        if name in self._signals:
            self._items.append(("wait", self._stream, self._signals[name]))

    def finished(self) -> None:
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
        self._main = cuda.Stream(non_blocking=True)
        self._aside = cuda.Stream(non_blocking=True, priority=HIGHEST_PRIORITY)
        self._events = [cuda.Event(disable_timing=True) for _ in range(len(self._signals) + 2)]

    def _is_inside(self, value: Any) -> Any:
        return (value >= self._start) & (value < self._start + self._size)

    def run(self, arena: Any) -> None:
        """Launch everything; the current stream goes on when all of it is done."""
        with self._lock:
            graph = self._graphs.get(address(arena))
            if graph is None:
                if (distance := address(arena) - self._start) != 0:
                    self._move(distance)
                if self._has_products and not self._device.records_products:
                    self._run_at_once()
                    return
                graph = self._graph()
            graph.launch(self._device.xp.cuda.get_current_stream())

    def _graph(self) -> Any:
        """A CUDA graph of everything, for this place of the arena."""
        main, streams = self._main, (self._main, self._aside)
        handles = cublas.handles(self._device.number) if self._has_products else ()
        share = int(SHARE * self._device.processors) if self._has_two_streams else 0
        with _RECORDING, main:
            for i, handle in enumerate(handles):
                space = self._start + self.space + i * cublas.SPACE
                handle.bind(streams[i].ptr, space, 0 if i else share)
            main.begin_capture()
            try:
                self._fork(main, lambda name, stream, args: handles[stream].product(name, args))
            finally:
                graph = cublas.with_priorities(main.end_capture())
        self._graphs[self._start] = graph
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.pop(next(iter(self._graphs)))
        return graph

    def _run_at_once(self) -> None:
        """Without a graph: through CuPy, where cuBLAS itself cannot be reached."""
        cuda, functions = self._device.xp.cuda, self._device.cublas
        caller, handle = cuda.get_current_stream(), cuda.device.get_cublas_handle()
        streams = caller, self._aside

        def product(name: str, stream: int, args: Any) -> None:
            streams[stream].use()
            getattr(functions, name)(handle, *args)

        try:
            self._fork(caller, product)
        finally:
            caller.use()

    def _fork(self, main: Any, product: Callable[[str, int, Any], None]) -> None:
        """Launch everything on a stream and the second one, which waits for it, and it in turn."""
        if self._has_two_streams:
            self._aside.wait_event(_recorded(self._events[-1], main))
        self._launch_all((main, self._aside), product)
        if self._has_two_streams:
            main.wait_event(_recorded(self._events[-2], self._aside))

    def _launch_all(
        self, streams: tuple[Any, Any], product: Callable[[str, int, Any], None]
    ) -> None:
        launch, pointers = self._device.driver.launchKernel, [stream.ptr for stream in streams]
        for kind, stream, what in self._items:
            if kind == "launch":
                launch(*what[:8], pointers[stream], what[8], 0)
            elif kind == "product":
                product(what[0], stream, what[1])
            elif kind == "signal":
                self._events[what].record(streams[stream])
            else:
                streams[stream].wait_event(self._events[what])

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


def _handle(function: Any) -> int:
    """CUDA's handle of a kernel that CuPy compiled."""
    return int(getattr(function, "kernel", function).ptr)


def address(array: Any, row: int = 0, column: int = 0) -> int:
    """Where an entry of a matrix by rows, or of a vector, is in the device's memory."""
    offset = row if array.ndim == 1 else row * array.shape[-1] + column
    data = array.data
    start = data.ptr if hasattr(data, "ptr") else array.ctypes.data  # NumPy's stands in for tests
    return int(start) + offset * int(array.itemsize)
