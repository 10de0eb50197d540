"""Triangular solves on the GPU with inverted diagonal blocks.

A solve with n unknowns is a chain of n / 256 steps for each triangle, each of which is a product
with an inverted block and one with what lies beside it. All of them are one plan for each n.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from roundwise.backends.cuda.device import Device, address
from roundwise.backends.cuda.plan import Plan, run_plan
from roundwise.backends.cuda.products import plain

_TILE = 64  # W in kernels/lu.cu


BLOCK = 256  # unknowns that a step of substitution solves for


@dataclass(eq=False)
class Triangles:
    """``L U`` in one array, or ``U' U``; everything in one piece of memory, so that plans fit all
    of a size."""

    device: Device
    n: int
    real: Any  # the type of the factors
    arena: Any
    lu: Any  # by rows; its row length is a multiple of 32
    order: Any  # which row of the matrix each row is
    inverse_L: Any  # of diagonal blocks, one below the other
    inverse_U: Any
    room: Any
    vectors: dict[Any, tuple[Any, Any]]  # two of each type, to solve in
    is_symmetric: bool = False  # U' U, rows in their order; what is below the diagonal is not read

    def __post_init__(self) -> None:
        self._solving, self._solved = threading.Lock(), None  # type: Any, Any

    @contextmanager
    def lent(self) -> Iterator[None]:
        """The vectors, for one solve at a time: also on the device, whatever streams solves are on.

        So threads may share factors.
        """
        cuda = self.device.xp.cuda
        with self._solving:
            stream = cuda.get_current_stream()
            if self._solved is None:
                self._solved = cuda.Event(disable_timing=True)
            else:
                stream.wait_event(self._solved)
            yield
            self._solved.record(stream)

    @property
    def ld(self) -> int:
        """The length of a row in memory."""
        return int(self.lu.shape[1])

    @classmethod
    def allocate(
        cls,
        device: Device,
        n: int,
        real: Any,
        is_symmetric: bool = False,
        **more: tuple[tuple[int, ...], Any],
    ) -> tuple[Triangles, dict[str, Any]]:
        """Room for factors of n unknowns, and for more arrays, given by shape and type.

        It has to be prepared.
        """
        blocks = -(-n // BLOCK)
        arena, arrays = _arena(
            device.xp,
            lu=((n, -(-n // 32) * 32), real),
            order=((n,), np.int32),
            inverse_L=((blocks * BLOCK, BLOCK), real),
            inverse_U=((blocks * BLOCK, BLOCK), real),
            room=((blocks, BLOCK // 2, BLOCK // 2), real),
            vectors_32=((2, n), np.float32),
            vectors_64=((2, n), np.float64),
            **more,
        )
        of_type = {
            np.dtype(np.float32): tuple(arrays.pop("vectors_32")),
            np.dtype(np.float64): tuple(arrays.pop("vectors_64")),
        }
        names = ("lu", "order", "inverse_L", "inverse_U", "room")
        own = {name: arrays.pop(name) for name in names}
        made = cls(device, n, real, arena, vectors=of_type, is_symmetric=is_symmetric, **own)
        return made, arrays

    def prepare(self, on: Device | Plan, status: Any = None) -> None:
        """Put the rows in their order, and clear the inverses and the numbers of a status."""
        count, failures = self.inverse_L.size, (0, 0) if status is None else (status.size, status)
        args = self.n, self.order, count, self.inverse_L, self.inverse_U, *failures
        on.launch("lu", "prepare", min(1024, -(-count // 256)), 256, args, self.real)


def _arena(xp: Any, **shapes: tuple[tuple[int, ...], Any]) -> tuple[Any, dict[str, Any]]:
    """Arrays that share one piece of memory, and that piece."""
    sizes = {
        name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in shapes.items()
    }
    arena = xp.empty(sum(-(-size // 256) * 256 for size in sizes.values()), dtype=np.uint8)
    start, arrays = 0, {}
    for name, (shape, dtype) in shapes.items():
        arrays[name] = arena[start : start + sizes[name]].view(dtype).reshape(shape)
        start += -(-sizes[name] // 256) * 256
    return arena, arrays


def invert_blocks(
    on: Device | Plan, triangles: Triangles, is_upper: bool, first: int, end: int
) -> None:
    """Invert the diagonal blocks of L or U from row `first` to `end`.

    Tiles first, then pairs of neighbours, twice. `first` is the first row of a block; or all rows
    are in the same one.
    """
    lu = triangles.lu
    out = triangles.inverse_U if is_upper else triangles.inverse_L
    start, held = address(lu, first, first), address(out, first, first % BLOCK)
    args = start, triangles.ld, end - first, int(is_upper), held, BLOCK
    on.launch("lu", "invert_tiles", -(-(end - first) // _TILE), _TILE, args, triangles.real)
    whole, rest = divmod(end - first, BLOCK)
    for start, count, size in ((first, whole, BLOCK), (end - rest, 1, rest)):
        if not (count and size):
            continue
        for half in (_TILE, 2 * _TILE):
            for offset in range(0, size - half, 2 * half):
                other = min(half, size - offset - half)
                sizes = (half, other) if is_upper else (other, half)
                corner = (offset, offset + half) if is_upper else (offset + half, offset)
                _combine(on, triangles, out, start, corner, sizes, count)


def _combine(
    on: Device | Plan,
    triangles: Triangles,
    out: Any,
    start: int,
    corner: tuple[int, int],
    sizes: tuple[int, int],
    count: int,
) -> None:
    """From the inverses of two neighbouring diagonal blocks to that of both together.

    The corner of the inverse is ``-B^-1 C A^-1`` for L, and ``-A^-1 C B^-1`` for U. The same is
    done for `count` blocks, 256 rows apart.
    """
    lu, ld, room = triangles.lu, triangles.ld, triangles.room
    kind, gemm = plain(triangles.real), on.gemm
    steps_lu, steps_out, steps_room = BLOCK * (ld + 1), BLOCK * BLOCK, room.shape[1] * room.shape[2]
    (row, column), (height, width) = corner, sizes
    inside = start % BLOCK
    behind = address(out, start + column, inside + column), BLOCK
    before = address(out, start + row, inside + row), BLOCK
    C = address(lu, start + row, start + column), ld
    result = address(out, start + row, inside + column), BLOCK
    held = address(room), room.shape[2]
    steps = count, steps_lu, steps_out, steps_room
    gemm((height, width, width), C, behind, held, 1.0, 0.0, kind, batch=steps)
    steps = count, steps_out, steps_room, steps_out
    gemm((height, width, height), before, held, result, -1.0, 0.0, kind, batch=steps)


class Half(NamedTuple):
    """One of the two triangular solves of a substitution."""

    upper: bool  # the triangle that is stored there
    transposed: bool  # whether it is its transpose that is solved with
    forward: bool  # from the first unknown to the last


_PLAIN = Half(False, False, True), Half(True, False, False)
_TRANSPOSED = Half(True, True, True), Half(False, True, False)
_SYMMETRIC = Half(True, True, True), Half(True, False, False)


class DeviceSubstitution:
    """``L U X = B``, or ``(L U)' X = B``, in a type of numbers.

    A vector is solved for by kernels that read each number of the factors once. For a block of
    columns all steps are products.
    """

    def __init__(self, triangles: Triangles, dtype: Any, transposed: bool) -> None:
        self._triangles, self._dtype = triangles, np.dtype(dtype)
        order = triangles.order
        if triangles.is_symmetric:
            self._halves, self._before, self._after = _SYMMETRIC, None, None
        elif transposed:
            self._halves, self._before, self._after = _TRANSPOSED, None, order
        else:
            self._halves, self._before, self._after = _PLAIN, order, None

    def __call__(self, B: Any) -> Any:
        """X; B is a vector, or a block of columns, which is overwritten."""
        if B.ndim == 2 and B.shape[1] > 1:
            return self._block(B)
        return self._vector(B.reshape(-1)).reshape(B.shape)

    def _vector(self, b: Any) -> Any:
        with self._triangles.lent():
            return self._in_vectors(b)

    def _in_vectors(self, b: Any) -> Any:
        triangles = self._triangles
        right, _ = triangles.vectors[self._dtype]
        b = triangles.device.xp.ascontiguousarray(b)
        self._reordered(None if self._before is None else "gather", b, right)
        key = "substitution", triangles.n, triangles.real, self._dtype, self._halves
        run_plan(triangles.device, key, self._steps, triangles.arena)
        x = triangles.device.xp.empty_like(right)
        self._reordered(None if self._after is None else "scatter", right, x)
        return x

    def _block(self, B: Any) -> Any:
        """In memory of its own, by products in the type of the factors; nothing is recorded."""
        triangles, xp = self._triangles, self._triangles.device.xp
        real, columns, gemm = triangles.real, B.shape[1], triangles.device.gemm
        right = xp.ascontiguousarray(B if self._before is None else B[self._before], dtype=real)
        solved, kind = xp.empty_like(right), plain(real)

        def step(half: Half, start: int, r: Any, y: Any) -> None:
            size, end, beside = self._beside(start, half.forward)
            known, rest = (address(y, start), columns), (address(r, beside), columns)
            turned = {"transpose_A": half.transposed}
            inverse = address(self._inverse(half), start), BLOCK
            right_of = address(r, start), columns
            gemm((size, columns, size), inverse, right_of, known, 1.0, 0.0, kind, **turned)
            place = (start, beside) if half.transposed else (beside, start)
            matrix, shape = (address(triangles.lu, *place), triangles.ld), (end - beside, columns)
            gemm((*shape, size), matrix, known, rest, -1.0, 1.0, kind, **turned)

        self._both(step, right, solved)
        X = right
        if self._after is not None:
            X = xp.empty_like(right)
            X[self._after] = right
        return X.astype(self._dtype, copy=False)

    def _reordered(self, kernel: str | None, x: Any, out: Any) -> None:
        """A copy, its numbers in another order if a kernel says in which."""
        if kernel is None:
            out[:] = x
            return
        n, order = self._triangles.n, self._triangles.order
        self._launch(self._triangles.device, kernel, -(-n // 256), 256, x, order, out, n)

    def _steps(self, plan: Plan) -> None:
        """Both triangular solves of a vector, in the memory of the factors."""

        def step(half: Half, start: int, r: Any, y: Any) -> None:
            size, end, beside = self._beside(start, half.forward)
            block, solved = (address(self._inverse(half), start), BLOCK), address(y, start)
            self._product(plan, half, block, (size, size), address(r, start), solved, 0)
            if end > beside:
                place, shape = (beside, start), (end - beside, size)
                if half.transposed:
                    place, shape = place[::-1], shape[::-1]
                matrix = address(self._triangles.lu, *place), self._triangles.ld
                self._product(plan, half, matrix, shape, solved, address(r, beside), 1)

        self._both(step, *self._triangles.vectors[self._dtype])

    def _both(self, step: Callable[[Half, int, Any, Any], None], right: Any, solved: Any) -> None:
        """All steps of both triangular solves, from the first array into the second, and back.

        A step is ``y_s = inverse_s r_s``, then r minus its product with what is below, or above.
        """
        blocks = range(0, self._triangles.n, BLOCK)
        for half in self._halves:
            for start in blocks if half.forward else reversed(blocks):
                step(half, start, right, solved)
            right, solved = solved, right

    def _inverse(self, half: Half) -> Any:
        return self._triangles.inverse_U if half.upper else self._triangles.inverse_L

    def _beside(self, start: int, forward: bool) -> tuple[int, int, int]:
        """The size of a block; the end and the beginning of the unknowns after it, or before it."""
        n = self._triangles.n
        size = min(BLOCK, n - start)
        return (size, n, start + size) if forward else (size, start, 0)

    def _product(
        self,
        plan: Plan,
        half: Half,
        matrix: tuple[int, int],
        shape: tuple[int, int],
        x: int,
        y: int,
        subtracts: int,
    ) -> None:
        args = *matrix, *shape, x, y, subtracts
        if half.transposed:
            self._launch(plan, "columns_times", -(-shape[1] // 32), 128, *args)
        else:
            self._launch(plan, "rows_times", min(-(-shape[0] // 8), 4096), 256, *args)

    def _launch(self, on: Device | Plan, kernel: str, grid: int, block: int, *args: Any) -> None:
        types = self._dtype.type, self._triangles.real
        on.launch("substitution", kernel, grid, block, args, *types)
