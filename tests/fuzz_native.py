"""Hostile arguments for the compiled module, and hostile numbers in text: `make fuzz-native`.

The kernels of cpp/native and cpp/sparse get shapes that do not fit, indices out of range, orders
that are none, and numbers from NaN to the smallest subnormal; the reader of numbers gets mutated
text. An argument may be refused with ValueError or TypeError. Nothing else may happen: a crash ends
the process that ran the input, whose seed is printed, and every array lies between guards whose
bytes must stay as they are. Emulated kernels leave the checks of shapes to their callers in Python,
and so get valid ones, with hostile numbers. (Files are fuzzed by ``tests/test_foreign_files.py``.)
Everything follows from the seeds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import fuzz_files
import numpy as np

from roundwise import _kernels
from roundwise.formats import get_format

GUARD = 16
NUMBERS = np.array([0, -0.0, 1, -1, 0.5, 3, 1e300, -1e300, 5e-324, 1e-310, np.inf, -np.inf, np.nan])
TEXTS = (
    b"1 2 3.5 -4e10 .5 5. +7 1e-400 1e400 nan -inf Infinity 0.1234567890123456789",
    b"3 3 4\n1 1 1.0\n2 2 -2e-3\n3 3 7\r\n1 3 1e5\n\t-0.0\v\f 1E+05 00.10e-00 1e",
    b"9007199254740993 179769313486231580793e289 2.2250738585072011e-308 4.9e-324 0000000001.0e-05",
)


class Arrays:
    """Makes arrays between guards, and tells whether the guards are whole."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._made: list[tuple[np.ndarray, int, int]] = []

    def length(self, n: int) -> int:
        """Mostly n; sometimes another length."""
        return n if self.rng.random() < 0.9 else int(self.rng.integers(0, 2 * n + 3))

    def array(self, values: Any, dtype: Any) -> np.ndarray:
        """The values in Fortran's order, between guards."""
        values = np.asarray(values).astype(dtype)
        whole = np.full(values.nbytes + 2 * 64 * GUARD, 0xA5, np.uint8)
        start = 64 * GUARD
        inner = whole[start : start + values.nbytes].view(dtype).reshape(values.shape, order="F")
        inner[...] = values
        self._made.append((whole, start, values.nbytes))
        return inner

    def numbers(self, *shape: int, dtype: Any = np.float64) -> np.ndarray:
        """Mostly normal numbers; sometimes hostile ones among them."""
        values = self.rng.standard_normal(shape)
        if self.rng.random() < 0.3:
            hostile = self.rng.random(shape) < self.rng.choice((0.05, 0.5))
            values = np.where(hostile, self.rng.choice(NUMBERS, shape), values)
        with np.errstate(all="ignore"):
            return self.array(values, dtype)

    def indices(self, n: int, count: int, dtype: Any = np.int32) -> np.ndarray:
        """Mostly in 0 .. n - 1; sometimes one is not."""
        values = self.rng.integers(0, max(n, 1), count)
        if count and self.rng.random() < 0.15:
            values[self.rng.integers(count)] = self.rng.choice((-1, n, n + 1, 2**31 - 1, -(2**31)))
        return self.array(values, dtype)

    def starts(self, n: int, entries: int, dtype: Any = np.int32) -> np.ndarray:
        """Mostly rising from 0 to the number of entries."""
        values = np.sort(self.rng.integers(0, entries + 1, n + 1))
        if n >= 0 and len(values):
            values[0], values[-1] = 0, entries
            if self.rng.random() < 0.15:
                values[self.rng.integers(n + 1)] = self.rng.choice((-1, entries + 1, 2**31 - 1, 5))
        return self.array(values, dtype)

    def order(self, n: int) -> np.ndarray:
        values = self.rng.permutation(n)
        if n and self.rng.random() < 0.1:
            values[self.rng.integers(n)] = self.rng.integers(-1, n + 2)
        return self.array(values, np.int32)

    def whole(self) -> bool:
        return all(
            (w[:start] == 0xA5).all() and (w[start + size :] == 0xA5).all()
            for w, start, size in self._made
        )


def dense(a: Arrays) -> None:
    n, m = (int(k) for k in a.rng.integers(0, 24, 2))
    dtype = a.rng.choice((np.float32, np.float64))
    threads = int(a.rng.choice((1, 1, 1, 2, 0, -1)))
    matrix = a.numbers(a.length(n), a.length(n), dtype=dtype)
    which = a.rng.integers(7)
    if which == 0:
        _kernels.native_lu(matrix, a.array(np.zeros(a.length(n)), np.int32), threads)
    elif which == 1:
        fmt = str(a.rng.choice(("fp32", "fp64", "fp64", "fp16", "none")))
        x, y = a.numbers(a.length(n), dtype=dtype), a.numbers(a.length(n), dtype=dtype)
        _kernels.native_matvec(matrix, fmt, x, y, bool(a.rng.integers(2)), threads)
    elif which == 2:
        fmt = "fp32" if dtype == np.float32 else "fp64"
        b = a.numbers(a.length(n), m, dtype=dtype)
        _kernels.native_getrs(matrix, fmt, b, bool(a.rng.integers(2)), threads)
    elif which == 3:
        _kernels.native_norms(matrix, 1)
    elif which == 4:
        x, y = a.numbers(a.length(n), dtype=dtype), a.numbers(a.length(n), dtype=dtype)
        _kernels.native_axpy(float(a.rng.choice(NUMBERS)), x, y)
    elif which == 5:
        x, b = a.numbers(a.length(n), m), a.numbers(a.length(n), m)
        square = a.numbers(a.length(n), a.length(n))
        block = int(a.rng.choice((0, 4, 8, 1, -1)))
        r = a.numbers(a.length(n), a.length(m))
        _kernels.native_exact_residual(square, bool(a.rng.integers(2)), x, b, r, block, 1)
    else:
        narrow, wide = a.array(np.zeros((n, m)), np.uint16), a.numbers(n, a.length(m), dtype=dtype)
        _kernels.native_convert(wide, narrow, str(a.rng.choice(("bf16", "fp16"))), 1)


def sparse(a: Arrays) -> None:
    n = int(a.rng.integers(0, 20))
    entries = int(a.rng.integers(0, 4 * n + 1)) if n else 0
    starts = a.starts(a.length(n), entries, np.int64)
    indices = a.indices(n, entries)
    which = a.rng.integers(4)
    if which == 0:
        rows = a.array(np.zeros(a.length(n)), np.int32)
        costs = a.array(np.abs(a.rng.standard_normal(a.length(entries))), np.float64)
        _kernels.sparse_assignment(starts, indices, costs, rows, int(a.rng.choice((0, 10, 10**6))))
    elif which == 1:
        _kernels.sparse_is_regular(starts.astype(np.int32), indices)
        values = a.numbers(a.length(entries))
        most = float(a.rng.choice((0, 10, 1e9)))
        short = a.array(starts, np.int32)
        lu = _kernels.LeftLookingLU(short, indices, values, bool(a.rng.integers(2)), *[most] * 4)
        lu.solve(a.numbers(a.length(n)), a.numbers(a.length(n)))
    else:
        pattern = _kernels.sparse_pattern(starts, a.array(indices, np.int64))
        order = a.order(pattern.n) if a.rng.random() < 0.5 else None
        _kernels.sparse_amd(pattern)
        _kernels.sparse_counts(pattern, order)
        symbolic = _kernels.sparse_analyse(pattern, order)
        kind = str(a.rng.choice(("cholesky", "ldl", "lu", "none")))
        place = a.array(np.argsort(symbolic.order), np.int32)
        if a.rng.random() < 0.2:
            place = a.order(a.length(n))
        plan = _kernels.SupernodalPlan(kind, symbolic, starts, indices, place, place)
        dtype = a.rng.choice((np.float32, np.float64))
        storage = a.numbers(a.length(plan.stored), dtype=dtype)
        values = a.numbers(a.length(entries), dtype=dtype)
        pivots = a.array(np.zeros(a.length(n)), np.int32)
        stop = a.array([0], np.int32)
        found = _kernels.supernodal_factorize(plan, values, storage, pivots, 1e-8, stop, 1)
        if found[0] == 0:  # other factors are not solved with
            b = a.numbers(a.length(n), 2, dtype=dtype)
            _kernels.supernodal_solve(plan, storage, pivots, b, bool(a.rng.integers(2)), 1)


FORMATS = [get_format(name) for name in ("bf16", "fp16", "tf32", "fp32", "fp64", "e4m3")]


def emulated(a: Arrays) -> None:
    n = int(a.rng.integers(1, 16))
    fmt = FORMATS[a.rng.integers(len(FORMATS))]
    kernel = _kernels.Format(
        p=fmt.p, emin=fmt.emin, max=float(fmt.max), subnormals=True, overflow=0
    )
    x, y = a.numbers(n), a.numbers(n)
    mode = int(a.rng.integers(5))
    _kernels.round(kernel, mode, int(a.rng.integers(2**63)), x, y, 1)
    narrow = fmt.p <= 11
    _kernels.dot(kernel, narrow, x, y)
    _kernels.axpy(kernel, narrow, float(a.rng.choice(NUMBERS)), x, y)
    matrix = a.numbers(n, n)
    _kernels.round(kernel, 0, 0, matrix.ravel(order="K"), a.numbers(n * n), 1)
    _kernels.lu(kernel, matrix, a.array(np.zeros(n), np.int32), 1)
    _kernels.matvec(kernel, matrix, bool(a.rng.integers(2)), x, y, 1)


def text(a: Arrays) -> None:
    rng = random.Random(int(a.rng.integers(2**63)))
    data = fuzz_files.mutated_text(rng.choice(TEXTS), rng)
    numbers = a.array(np.zeros(int(a.rng.integers(0, 30))), np.float64)
    count = _kernels.read_numbers(data, numbers)
    try:
        expected = [float(word) for word in data.split()]  # Python's own reader
    except ValueError:
        return
    if count < 0:  # ours takes no underscores and no digits of other scripts
        return
    assert count == len(expected)
    np.testing.assert_array_equal(numbers[:count], expected[: len(numbers)])


KINDS: dict[str, Callable[[Arrays], None]] = {
    "dense": dense,
    "sparse": sparse,
    "emulated": emulated,
    "text": text,
}


def run(seed: int, count: int) -> Counter[str]:
    """Try as many inputs; tell how many were refused."""
    rng = np.random.default_rng([19, seed])
    counts: Counter[str] = Counter()
    kinds = list(KINDS)
    for _ in range(count):
        kind = kinds[rng.choice(4, p=(0.3, 0.2, 0.1, 0.4))]
        arrays = Arrays(rng)
        try:
            KINDS[kind](arrays)
            counts[f"{kind}: computed"] += 1
        except (ValueError, TypeError):
            counts[f"{kind}: refused"] += 1
        assert arrays.whole(), f"{kind} of seed {seed} wrote beyond its arrays"
    return counts


def _reported(seed: int, count: int, queue: Any) -> None:
    queue.put(run(seed, count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--each", type=int, default=20_000, help="inputs of one seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    seeds = list(range(given.first, given.first + -(-given.inputs // given.each)))
    counts: Counter[str] = Counter()
    crashed = []
    while seeds:
        now, seeds = seeds[: given.jobs], seeds[given.jobs :]
        started = []
        for seed in now:
            queue = context.SimpleQueue()
            process = context.Process(target=_reported, args=(seed, given.each, queue))
            process.start()
            started.append((seed, process, queue))
        for seed, process, queue in started:
            process.join()
            if process.exitcode != 0:
                print(f"seed {seed} ended with {process.exitcode}", flush=True)
                crashed.append(seed)
            else:
                counts += queue.get()
        print(f"{sum(counts.values())} of {given.inputs}", file=sys.stderr, flush=True)
    print(f"{sum(counts.values())} inputs, {len(crashed)} seeds crashed or wrong")
    for name, count in sorted(counts.items()):
        print(f"  {name}: {count}")
    sys.exit(bool(crashed))


if __name__ == "__main__":
    main()
