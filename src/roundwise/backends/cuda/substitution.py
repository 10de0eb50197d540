"""Triangular solves on the GPU with inverted diagonal blocks.

A solve with n unknowns is a chain of n / 256 steps for each triangle, each of which is a product with
an inverted block and one with what lies beside it. Launching them one by one would take longer
than they do, so that they are recorded as a CUDA graph, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from roundwise.backends.cuda.device import Device, address

if TYPE_CHECKING:
    from roundwise.backends.cuda.lu import Packed

BLOCK = 256
_TILE = 64  # W in kernels/lu.cu


def inverted_blocks(
    device: Device, a: Any, ld: int, n: int, is_upper: bool, out: Any, room: Any
) -> None:
    """Invert the diagonal blocks of L or U.

    Block i goes to the rows from ``256 i`` on of `out`, which has 256 columns and holds zeros.
    `room` has a quarter of a block for each.
    """
    real = a.dtype.type
    kind = "float64" if real == np.float64 else "float32"
    device.launch(
        *("lu", "invert_tiles", -(-n // _TILE), _TILE),
        (a, ld, n, int(is_upper), out, BLOCK),
        real,
    )
    whole, rest = divmod(n, BLOCK)
    for start, count, size in ((0, whole, BLOCK), (n - rest, 1, rest)):
        if not (count and size):
            continue
        for half in (_TILE, 2 * _TILE):
            for offset in range(0, size - half, 2 * half):
                other = min(half, size - offset - half)
                _combine(
                    device, a, ld, start, offset, half, other, count, is_upper, out, room, kind
                )


def _combine(
    device: Device,
    a: Any,
    ld: int,
    start: int,
    offset: int,
    half: int,
    other: int,
    count: int,
    is_upper: bool,
    out: Any,
    room: Any,
    kind: str,
) -> None:
    """From the inverses of two neighbouring diagonal blocks to that of both together.

    The corner of the inverse is ``-B^-1 C A^-1`` for L, and ``-A^-1 C B^-1`` for U.
    """
    middle = offset + half
    corner = (offset, middle) if is_upper else (middle, offset)
    sizes = (half, other) if is_upper else (other, half)
    steps_a, steps_out, steps_room = BLOCK * (ld + 1), BLOCK * BLOCK, room.shape[1] * room.shape[2]
    beside = address(out, start + corner[1], corner[1]), BLOCK
    before = address(out, start + corner[0], corner[0]), BLOCK
    C = address(a, start + corner[0], start + corner[1]), ld
    held = address(room), room.shape[2]
    device.gemm(
        (sizes[0], sizes[1], sizes[1]),
        *(C, beside, held, 1.0, 0.0, kind),
        batch=(count, steps_a, steps_out, steps_room),
    )
    device.gemm(
        (sizes[0], sizes[1], sizes[0]),
        *(before, held, (address(out, start + corner[0], corner[1]), BLOCK), -1.0, 0.0, kind),
        batch=(count, steps_out, steps_room, steps_out),
    )


class Substitution:
    """Solves with one set of factors, in one type, for one right-hand side at a time."""

    def __init__(self, packed: Packed, dtype: Any, flips: bool) -> None:
        xp = packed.device.xp
        self.packed, self.dtype, self.flips = packed, dtype.type, flips
        # Each step reads what the one before wrote: the two vectors are the same in all solves.
        self.right, self.solved = xp.empty(packed.n, dtype), xp.empty(packed.n, dtype)
        self._recorded: Any = None
        self._runs = 0

    def __call__(self, b: Any) -> Any:
        packed, xp = self.packed, self.packed.device.xp
        mixed = xp.multiply(b, packed.scale).astype(self.dtype, copy=False)
        self._mix(mixed, 1)
        if self.flips:
            self.right[:] = mixed
        else:
            self._reordered("gather", mixed, self.right)
        if self._recorded:
            self._recorded()
        else:
            self._steps()
            self._runs += 1
            if self._runs == 2:  # the kernels are compiled by now
                self._recorded = packed.device.recorded(self._steps)
        x = xp.empty_like(self.right)
        if self.flips:
            self._reordered("scatter", self.right, x)
        else:
            x[:] = self.right
        self._mix(x, 0)
        return x

    def _mix(self, x: Any, side: int) -> None:
        """The butterflies: U' b before, V y after; the other way round for the transpose."""
        if self.packed.butterflies is None:
            return
        before = side == 1
        diagonal = self.packed.butterflies[0 if before != self.flips else 1]
        n = self.packed.n
        self.packed.device.launch(
            *("butterfly", "butterfly", (max(1, -(-(n // 4) // 256)), 1), 256),
            *((x, n, n, diagonal, int(before)), self.dtype),
        )

    def _reordered(self, kernel: str, x: Any, out: Any) -> None:
        n = self.packed.n
        args = x, self.packed.order, out, n
        self.packed.device.launch(
            "substitution", kernel, -(-n // 256), 256, args, self.dtype, self.packed.lu.dtype.type
        )

    def _steps(self) -> None:
        """Both triangular solves, from `right` into `solved` and back into `right`."""
        upper, lower = (self.packed.inverses[1], self.packed.inverses[0])
        first, second = (upper, lower) if self.flips else (lower, upper)
        blocks = range(0, self.packed.n, BLOCK)
        for start in blocks:
            self._step(start, first, self.right, self.solved, forward=True)
        for start in reversed(blocks):
            self._step(start, second, self.solved, self.right, forward=False)

    def _step(self, start: int, inverse: Any, r: Any, y: Any, forward: bool) -> None:
        """``y_s = inverse_s r_s``, then subtract its product with what is below, or above."""
        n, lu = self.packed.n, self.packed.lu
        size = min(BLOCK, n - start)
        self._product(address(inverse, start), BLOCK, size, size, (r, start), (y, start), 0)
        begin, end = (start + size, n) if forward else (0, start)
        if end > begin:
            place = (start, begin) if self.flips else (begin, start)
            rows, columns = (size, end - begin) if self.flips else (end - begin, size)
            where = address(lu, *place)
            self._product(where, lu.shape[1], rows, columns, (y, start), (r, begin), 1)

    def _product(
        self,
        where: int,
        ld: int,
        rows: int,
        columns: int,
        x: tuple[Any, int],
        y: tuple[Any, int],
        subtracts: int,
    ) -> None:
        args = where, ld, rows, columns, address(*x), address(*y), subtracts
        types = self.dtype, self.packed.lu.dtype.type
        if self.flips:
            grid = -(-columns // 32)
            self.packed.device.launch("substitution", "columns_times", grid, 128, args, *types)
        else:
            grid = min(-(-rows // 8), 4096)
            self.packed.device.launch("substitution", "rows_times", grid, 256, args, *types)
