"""Gaussian elimination on the GPU: which kernels and products follow each other.

The matrix is worked through by outer panels of 256 to 1024 columns, each by panels of 64. What is
right of an outer panel is updated in two parts: first the columns of the next outer panel, which
is then factorized on a stream of its own, while the rest is updated on the caller's (lookahead).
The rest is updated some columns at a time: products on 16-bit units hold on to their processors
until they end, and between two of them the panel's kernels get theirs.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from roundwise.backends.arrays import on_host
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.cuda.cublas import space_for
from roundwise.backends.cuda.device import Device, address, storage_type
from roundwise.backends.cuda.plan import Plan, run_plan
from roundwise.backends.cuda.products import PRODUCTS, plain, split
from roundwise.backends.cuda.substitution import BLOCK, Triangles, invert_blocks
from roundwise.formats import TF32, FloatFormat

PANEL = 64  # W in kernels/lu.cu
GROUP = 256  # rows that a thread block of a tournament selects pivots from
_SPREAD, _STRIP = 128, 16  # columns or rows of a thread block in kernels/lu.cu
_NEVER = np.iinfo(np.int32).max

Pivots = Literal["all", "window", "diagonal"]
"""The rows that a panel's pivots are selected from; those of the diagonal stay where they are."""

AT_ONCE = 1e11
"""About how many operations of the rest are one product on 16-bit units: 0.2 ms on an H200."""


class Elimination:
    """A matrix that is being factorized, in the memory of its factors."""

    def __init__(self, device: Device, n: int, fmt: FloatFormat) -> None:
        self.device, self.fmt, self.n = device, fmt, n
        self.real, self.products = storage_type(fmt), PRODUCTS[fmt.name]
        self.width = min(n, outer_width(n, len(self.products.left)))
        # Within an outer panel, too, 11 bits suffice for a format that has no more.
        self._inner = "tf32" if fmt.p <= TF32.p else plain(self.real)
        halves, ld = len(self.products.left) * self.width, -(-n // 32) * 32
        self.triangles, arrays = Triangles.allocate(
            *(device, n, self.real),
            facts=((n + 1,), np.float64),
            block=((PANEL, PANEL), self.real),
            ahead=((min(BLOCK, self.width), -(-self.width // 4) * 4), self.real),
            moves=((-(-n // PANEL), 4 * PANEL), np.int32),
            candidates=((2, -(-n // GROUP) * PANEL), np.int32),
            # 16-bit parts of L: those of one outer panel are still in use when the next come.
            halves_L=((2, n * halves), np.uint16),
            halves_next=((halves, self.width), np.uint16),
            halves_rest=((halves, ld), np.uint16),
            spaces=((2, space_for(n)), np.uint8),
        )
        self.a, self.ld = self.triangles.lu, self.triangles.ld
        # Two numbers of 32 bits, no pivot and overflow at column ...; the magnitudes of pivots.
        self._facts, self._status = arrays["facts"], arrays["facts"][:1].view(np.int32)
        self._block, self._ahead = arrays["block"], arrays["ahead"]
        self._moves, self._candidates = arrays["moves"], arrays["candidates"]
        self._halves_L, self._spaces = arrays["halves_L"], arrays["spaces"]
        self._halves_next, self._halves_rest = arrays["halves_next"], arrays["halves_rest"]

    def run(self, pivots: Pivots) -> Any:
        """Factorize `a` in place, and return the magnitudes of the pivots, on the host."""
        key, arena = ("LU", self.n, self.fmt.name, pivots), self.triangles.arena
        run_plan(self.device, key, lambda plan: self._eliminate(plan, pivots), arena, self._spaces)
        facts = on_host(self._facts)
        pivot, overflow = facts[:1].view(np.int32).tolist()
        if min(pivot, overflow) < _NEVER:
            status = Status.OVERFLOW if overflow <= pivot else Status.ZERO_PIVOT
            raise ArithmeticFailure(status, "LU factorization", self.fmt, min(pivot, overflow))
        return facts[1:]

    def _eliminate(self, plan: Plan, pivots: Pivots) -> None:
        """Record all steps."""
        self._plan = plan
        moves = pivots != "diagonal"  # rows
        n, width = self.n, self.width
        with plan.aside():
            self.triangles.prepare(plan, self._status)
            self._outer_panel(0, min(width, n), pivots)
        for first in range(0, n, width):
            end, ahead = min(first + width, n), min(first + 2 * width, n)
            half = first // width % 2
            with plan.aside():
                if end < n and self.products.parts:
                    self._split_L(first, end, half)
                plan.signal(("factorized", first))
                if end < n:
                    invert_blocks(plan, self.triangles, False, first, end)
                    plan.await_signal(("updated", first - width))
                    if moves:
                        self._permute(first, end, (end, ahead))
                    self._top_by_inverses(first, end, (end, ahead))
                    self._update(first, end, (end, ahead), self._halves_next, half, math.inf)
                    self._outer_panel(end, ahead, pivots)
            plan.await_signal(("factorized", first))
            if moves:
                self._permute_rest(first, end, ahead)
            if ahead < n:
                self._top(first, end, (ahead, n))
                self._update(first, end, (ahead, n), self._halves_rest, half, AT_ONCE)
            plan.signal(("updated", first))
        # Those of L are inverted but for the last outer panel, if these consist of whole blocks.
        inverted = 0 if width % BLOCK else (n - 1) // width * width
        invert_blocks(plan, self.triangles, False, inverted, n)
        invert_blocks(plan, self.triangles, True, 0, n)
        args = self.a, self.ld, n, address(self._facts, 1)
        self._launch("sizes_of_diagonal", -(-n // 256), 256, *args)

    def _outer_panel(self, first: int, end: int, pivots: Pivots) -> None:
        """Factorize the columns from first to end."""
        for column in range(first, end, PANEL):
            w = min(PANEL, end - column)
            if pivots == "diagonal":
                args = self.a, self.ld, column, w, self._block, self._status
                self._launch("factor_top", 1, PANEL, *args)
            else:
                self._select(column, w, pivots == "all")
                self._permute(column, column + w, (first, end))
            below, right = self.n - column - w, end - column - w
            blocks = -(-below // _SPREAD)
            self._launch(
                *("spread", blocks + -(-right // _SPREAD) + 1, _SPREAD, self.a),
                *(self.ld, column, column, w, self.n, end, self._block, blocks),
            )
            L, U = self._at(column + w, column), self._at(column, column + w)
            self._subtract((below, right, w), L, U, self._at(column + w, column + w))

    def _select(self, column: int, w: int, everywhere: bool) -> None:
        """Find the pivots of a panel, and the moves that bring them to the top."""
        local = window(self.n, len(self.products.left))
        rows, group = self.n - column, GROUP if everywhere else local
        rows = rows if everywhere else min(rows, group)
        candidates, into = 0, 0
        while True:
            groups = -(-rows // group)
            winners, moves = address(self._candidates, into), self._moves_of(column)
            self._launch(
                *("select_pivots", groups, group, self.a, self.ld, column, column, w, rows),
                *(candidates, winners, int(groups == 1), self._block, moves, self._status),
            )
            if groups == 1:
                return
            candidates, into, rows = winners, 1 - into, groups * PANEL

    def _permute(self, first: int, end: int, columns: tuple[int, int]) -> None:
        """Move the rows as the panels between first and end ask for, in some columns."""
        start, count = address(self.a, 0, columns[0]), columns[1] - columns[0]
        moves, panels = self._moves_of(first), -(-(end - first) // PANEL)
        args = start, self.ld, first, count, count, 0, moves, panels, 0
        self._launch("permute", -(-count // _STRIP), 256, *args)

    def _permute_rest(self, first: int, end: int, ahead: int) -> None:
        """Move the rows in all columns but those from first to ahead, and their numbers."""
        count, moves = self.n - (ahead - first), self._moves_of(first)
        args = (
            self.a,
            self.ld,
            first,
            count,
            first,
            ahead - first,
            moves,
            -(-(end - first) // PANEL),
        )
        self._launch("permute", -(-count // _STRIP) + 1, 256, *args, self.triangles.order)

    def _top(self, first: int, end: int, columns: tuple[int, int]) -> None:
        """Rows of U right of an outer panel, in many columns: a thread has one."""
        left, right = columns
        for start in range(first, end, BLOCK):
            stop = min(start + BLOCK, end)
            self._launch(
                *("solve_top", -(-(right - left) // _SPREAD), _SPREAD, self.a, self.ld),
                *(start, (stop - start) // PANEL, left, right),
            )
            self._top_below(start, stop, end, columns)

    def _top_by_inverses(self, first: int, end: int, columns: tuple[int, int]) -> None:
        """The same in the few columns of the next outer panel, which would not fill the device."""
        left, right = columns
        count, length = right - left, self._ahead.shape[1]
        for start in range(first, end, BLOCK):
            stop = min(start + BLOCK, end)
            size, held = stop - start, (address(self._ahead), length)
            args = *self._at(start, left), size, count, *held
            self._launch("copy_rows", size, _SPREAD, *args)
            inverse = address(self.triangles.inverse_L, start, start % BLOCK), BLOCK
            product = (size, count, size), inverse, held, self._at(start, left)
            self._plan.gemm(*product, 1.0, 0.0, self._inner)
            self._top_below(start, stop, end, columns)

    def _top_below(self, start: int, stop: int, end: int, columns: tuple[int, int]) -> None:
        """The update of the other rows of an outer panel with some of its rows of U."""
        left, right = columns
        shape = end - stop, right - left, stop - start
        self._subtract(shape, self._at(stop, start), self._at(start, left), self._at(stop, left))

    def _update(
        self, first: int, end: int, columns: tuple[int, int], halves: Any, half: int, at_once: float
    ) -> None:
        """The update below an outer panel with its rows of U, in some columns.

        `at_once` is about how many operations a product may have.
        """
        left, right = columns
        count, below, k = right - left, self.n - end, end - first
        products, kind, U = self.products, self.products.kind, self._at(first, left)
        if not products.parts:
            self._subtract((below, count, k), self._at(end, first), U, self._at(end, left), kind)
            return
        sections, length = len(products.left), halves.shape[1]
        out = address(halves), length, k * length
        split(self._plan, products, U, (k, count), out, products.right, self._overflow(first))
        L = address(self._halves_L, half), sections * k
        step = int(max(256, min(count, at_once / (2 * below * sections * k)) // 256 * 256))
        for start in range(0, count, step):
            shape = below, min(step, count - start), sections * k
            U = address(halves, 0, start), length
            self._subtract(shape, L, U, self._at(end, left + start), kind)

    def _split_L(self, first: int, end: int, half: int) -> None:
        products, k = self.products, end - first
        out = address(self._halves_L, half), len(products.left) * k, k
        source, shape = self._at(end, first), (self.n - end, k)
        split(self._plan, products, source, shape, out, products.left, self._overflow(first))

    def _overflow(self, column: int) -> tuple[int, int]:
        return column, address(self._status, 1)

    def _moves_of(self, column: int) -> int:
        return address(self._moves, column // PANEL)

    def _at(self, row: int, column: int) -> tuple[int, int]:
        """Address and row length of the part of the matrix that starts there."""
        return address(self.a, row, column), self.ld

    def _launch(self, kernel: str, grid: int, block: int, *args: Any) -> None:
        self._plan.launch("lu", kernel, grid, block, args, self.real)

    def _subtract(
        self,
        shape: tuple[int, int, int],
        A: tuple[int, int],
        B: tuple[int, int],
        C: tuple[int, int],
        kind: str = "",
    ) -> None:
        """``C -= A B``."""
        self._plan.gemm(shape, A, B, C, -1.0, 1.0, kind or self._inner)


def window(n: int, sections: int) -> int:
    """Rows that local pivoting looks at: for large n updates hide what more of them take.

    Twice as many make the entries of U grow less, which the bits of split formats are worth.
    """
    return GROUP if n >= 24000 or (n >= 12000 and sections > 1) else GROUP // 2


def outer_width(n: int, sections: int) -> int:
    """How many columns are eliminated before what is right of them is updated.

    Products of split formats are longer by the number of their sections, and need no more.
    """
    wide = {0: n >= 24000, 1: n >= 12000}.get(sections, False)
    return 1024 if wide else 512
