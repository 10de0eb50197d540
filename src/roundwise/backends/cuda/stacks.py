"""Stacks of systems on the GPU: one kernel solves and verifies all of them, each where it lies.

Up to 32 unknowns some lanes of a warp have a system, beyond that a thread block (see the kernels).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count as count_from
from typing import Any

import numpy as np

from roundwise.backends.arrays import on_host
from roundwise.backends.cuda.device import Constants, Device

_LANES = 32
_THREADS = 128  # of a block of `solve_in_registers`
_PANEL = 16
_HELD = 4096
"""Doubles of a panel in shared memory: with what else is there, less than the 48 KiB that every
GPU has."""

_BLOCKS = 2  # that a processor runs at a time, as far as registers suffice
_TOGETHER = 8  # `most_columns` in kernels/stacks_in_blocks.cu
_ROWS = (64, 128, 256, 512)
_CORRECTIONS = 2
"""FP64 factors leave little to correct; rounding to single precision leaves more than that."""


def largest(is_complex: bool) -> int:
    """The most unknowns of a system that a thread block solves."""
    return _ROWS[-1] // (2 if is_complex else 1)


def solve_stack(
    device: Device, A: Any, B: Any, count: int, places: Sequence[Any], gate: Sequence[float]
) -> tuple[Any, Any, bool]:
    """X of `count` systems ``A[places[0][i]] X = B[places[1][i]]``, and what their errors are.

    A (m, n, n) and B (l, n, k) are of the same type: float32, float64, complex64 or complex128,
    with any strides. Places that are None stand for all in turn, or for the only one. `gate` has
    the tolerance, how the backward error grows to its bound and what the residuals add to that, the
    ratio of pivots that is suspicious, and the least and the largest divisor in range.

    The second array has an upper bound of each backward error, infinite where X does not pass. Last
    is whether there may be such a system: then the bounds are to be read, else nothing more has to
    come back.
    """
    xp, is_complex = device.xp, A.dtype.kind == "c"
    n, columns = B.shape[1:]
    X, bounds = xp.empty((count, n, columns), A.dtype), xp.empty(count)
    single = A.dtype.itemsize // (2 if is_complex else 1) == 4
    args = (
        *_given(A, places[0]),
        *_given(B, places[1]),
        *(X, bounds, count, n, columns, *gate, 0 if single else _CORRECTIONS),
        *((newest := _newest_refusal(device)), (ticket := next(_tickets))),
    )
    stored = np.float32 if single else np.float64
    constants = _constants(n, is_complex)
    sizes = dict(constants)
    if n <= _LANES:
        source, kernel = "numbers+stacks_in_registers", "solve_in_registers"
        grid, block = -(-count * sizes["WIDTH"] // _THREADS), _THREADS
    else:
        source, kernel = "numbers+stacks_in_blocks", "solve_in_blocks"
        grid, block = min(count, _BLOCKS * device.processors), 256
        numbers = grid * n * (n + 2 * _TOGETHER) * sizes["PARTS"]
        args = *args, xp.empty(numbers)
    device.launch(source, kernel, grid, block, args, np.float64, stored, constants)
    return X, bounds, int(on_host(newest)[0]) >= ticket


_tickets = count_from(1)


@cache
def _newest_refusal(device: Device) -> Any:
    """The largest ticket of a call that refused a system: it never has to be cleared."""
    newest = device.xp.zeros(1, np.uint64)
    device.synchronize()  # other streams use it, too
    return newest


def _given(array: Any, places: Any) -> tuple[Any, ...]:
    """An array as kernels take it: where it is, which part of it each system has, and its steps."""
    first, *others = (step // array.itemsize for step in array.strides)
    step = 0 if places is None and len(array) == 1 else first
    return array, 0 if places is None else places, step, *others


@cache
def _constants(n: int, is_complex: bool) -> Constants:
    """What the kernel for systems of n unknowns is compiled with: a few kernels serve all n."""
    parts = 2 if is_complex else 1
    if n <= _LANES:
        length = -(-n // 4) * 4
        width = 1 << (length - 1).bit_length()
        sizes = {"LENGTH": length, "WIDTH": width, "THREADS": _THREADS}
    else:
        rows = next(rows for rows in _ROWS if rows >= n)
        sizes = {"ROWS": rows, "PANEL": min(_PANEL, _HELD // (rows * parts))}
    return ("PARTS", parts), *sizes.items()
