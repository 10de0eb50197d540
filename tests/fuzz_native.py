"""Hostile arguments for the compiled module, and hostile numbers in text: `make fuzz-native`.

The kernels get shapes that do not fit, indices out of range, orders that are none, arrays of
another type or memory order, and numbers from NaN to the smallest subnormal; the reader of numbers
gets mutated text. An argument may be refused with ValueError or TypeError. Nothing else may happen:
a crash ends the process that ran the input, whose seed is printed, and every array lies between
guards whose bytes must stay as they are. In the end every entry point of the module must have
computed something: one that refuses all that it gets has not been tried. (Files are fuzzed by
``tests/test_foreign_files.py``.) Everything follows from the seeds.
"""

from __future__ import annotations

import argparse
import faulthandler
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
HANGING = 3600  # seconds; a seed takes less than a minute
NUMBERS = np.array([0, -0.0, 1, -1, 0.5, 3, 1e300, -1e300, 5e-324, 1e-310, np.inf, -np.inf, np.nan])
TEXTS = (
    b"1 2 3.5 -4e10 .5 5. +7 1e-400 1e400 nan -inf Infinity 0.1234567890123456789",
    b"3 3 4\n1 1 1.0\n2 2 -2e-3\n3 3 7\r\n1 3 1e5\n\t-0.0\v\f 1E+05 00.10e-00 1e",
    b"9007199254740993 179769313486231580793e289 2.2250738585072011e-308 4.9e-324 0000000001.0e-05",
)
NOT_FUZZED = {
    "active_level": "takes no argument",
    "available_levels": "takes no argument",
    "native_bf16_levels": "takes no argument",
    "native_level": "takes no argument",
    "in_main_interpreter": "takes no argument",
    "usable_cores": "takes no argument",
    "has_ieee_arithmetic": "takes no argument",
    "IeeeArithmetic": "takes no argument",
    "move_others_aside": "takes no array, and is for one caller at a time",
    "move_others_back": "takes no argument",
    "ExpressFactors": "is made by express_factorize only",
    "StructuredFactors": "is made by structured_factorize only",
    "SparsePattern": "is made by sparse_pattern only",
    "Preconditioner": "is made by iterative_hierarchy and iterative_incomplete only",
    "SparseSymbolic": "is made by sparse_analyse only",
}


def entry_points() -> set[str]:
    """All that the module has to call, methods too, but for what `NOT_FUZZED` names."""
    found = {name for name in dir(_kernels) if name[0] != "_" and callable(getattr(_kernels, name))}
    for kind in [name for name in found if isinstance(getattr(_kernels, name), type)]:
        methods = vars(getattr(_kernels, kind)).items()
        found |= {f"{kind}.{name}" for name, one in methods if name[0] != "_" and callable(one)}
    return found - set(NOT_FUZZED)


class Counted:
    """The module, counting which of its entry points computed something."""

    def __init__(self) -> None:
        self.computed: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.counted(name, getattr(_kernels, name))

    def counted(self, name: str, entry: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            result = entry(*arguments, **named)
            self.computed[name] += 1
            return result

        return call


kernels = Counted()


class Arrays:
    """Makes arrays between guards, and tells whether the guards are whole."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._made: list[tuple[np.ndarray, int, int]] = []

    def size(self) -> int:
        """Mostly small; sometimes larger than the blocks of the kernels."""
        return int(self.rng.integers(0, 24 if self.rng.random() < 0.98 else 200))

    def length(self, n: int) -> int:
        """Mostly n; sometimes another length."""
        return n if self.rng.random() < 0.95 else int(self.rng.integers(0, 2 * n + 3))

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def threads(self) -> int:
        return int(self.rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 0, -1)))

    def block(self) -> int:
        return int(self.rng.choice((0, 0, 4, 8, 8, 64, 1, -1, 2**62)))

    def array(self, values: Any, dtype: Any, order: Any = "F") -> np.ndarray:
        """The values between guards; sometimes in an array that no kernel takes."""
        values = np.asarray(values)
        if dtype != np.complex128:
            values = values.real  # of indices that were made complex ones
        values = values.astype(dtype)
        whole = np.full(values.nbytes + 2 * 64 * GUARD, 0xA5, np.uint8)
        start = 64 * GUARD
        inner = whole[start : start + values.nbytes].view(dtype).reshape(values.shape, order=order)
        inner[...] = values
        self._made.append((whole, start, values.nbytes))
        return inner if self.rng.random() < 0.99 else self._spoiled(inner)

    def _spoiled(self, inner: np.ndarray) -> np.ndarray:
        """In another type, order or number of dimensions, with gaps, backwards, or read-only."""
        which = self.rng.integers(7)
        if which == 0:
            other = self.rng.choice((np.float16, np.int16, np.complex64, np.bool_))
            return np.ones(inner.shape, other)
        if which == 1:
            return inner.astype(inner.dtype.newbyteorder())
        if which == 2:
            return np.repeat(inner, 2, axis=0)[::2]
        if which == 3:
            return inner[::-1]
        if which == 4:
            return inner[..., None] if self.flag() else inner.ravel(order="K")
        if which == 5:
            return inner.T
        inner.flags.writeable = False
        return inner

    def numbers(self, *shape: int, dtype: Any = np.float64, order: Any = "F") -> np.ndarray:
        """Mostly normal numbers; sometimes hostile ones among them."""
        values = self.rng.standard_normal(shape)
        if self.rng.random() < 0.3:
            hostile = self.rng.random(shape) < self.rng.choice((0.05, 0.5))
            values = np.where(hostile, self.rng.choice(NUMBERS, shape), values)
        with np.errstate(all="ignore"):
            if dtype == np.complex128:
                values = values + 1j * self.rng.permutation(values)
            return self.array(values, dtype, order)

    def exponents(self, count: int) -> np.ndarray:
        values = (0, 0, 1, -1, 60, -1200, 2200, 2**31 - 1, -(2**31))
        return self.array(self.rng.choice(values, count), np.int32)

    def stored(self, *shape: int, dtype: Any) -> np.ndarray:
        """Numbers of this type, or, as uint16, the bits of some in a format of 16 bits."""
        if dtype != np.uint16:
            return self.numbers(*shape, dtype=dtype)
        return self.array(self.rng.integers(0, 2**16, shape), np.uint16)

    def matrix(self, n: int, dtype: Any = np.float64, definite: bool = False) -> np.ndarray:
        """Mostly n x n; the diagonal of one that may be positive definite is large."""
        shape = self.length(n), self.length(n)
        values = self.numbers(*shape, dtype=dtype)
        if definite and values.ndim == 2 and values.flags.writeable and self.rng.random() < 0.8:
            np.fill_diagonal(values, 4 * n + 1)
        return values

    def zeros(self, *shape: int, dtype: Any = np.int32) -> np.ndarray:
        return self.array(np.zeros(shape), dtype)

    def indices(self, n: int, count: int, dtype: Any = np.int32) -> np.ndarray:
        """Mostly in 0 .. n - 1; sometimes one is not."""
        values = self.rng.integers(0, max(n, 1), count)
        if count and self.rng.random() < 0.1:
            values[self.rng.integers(count)] = self.rng.choice((-1, n, n + 1, 2**31 - 1, -(2**31)))
        return self.array(values, dtype)

    def starts(self, n: int, entries: int, dtype: Any = np.int32) -> np.ndarray:
        """Mostly rising from 0 to the number of entries."""
        values = np.sort(self.rng.integers(0, entries + 1, n + 1))
        values[0], values[-1] = 0, entries
        if self.rng.random() < 0.1:
            values[self.rng.integers(n + 1)] = self.rng.choice((-1, entries + 1, 2**31 - 1, 5))
        return self.array(values, dtype)

    def compressed(
        self, n: int, dtype: Any = np.int32, diagonal: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """`indptr` and `indices` of a matrix of about n x n; its diagonal is stored on request."""
        if diagonal and n and self.rng.random() < 0.9:
            rows = [np.union1d(self.rng.integers(0, n, 3), [i]) for i in range(n)]
            starts = np.cumsum([0, *map(len, rows)])
            return self.array(starts, dtype), self.array(np.concatenate(rows), dtype)
        entries = int(self.rng.integers(0, 4 * n + 1)) if n else 0
        return self.starts(self.length(n), entries, dtype), self.indices(n, entries, dtype)

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


STORED = {np.uint16: ("bf16", "fp16"), np.float32: ("fp32",), np.float64: ("fp64",)}
PAIRS = [(s, t) for s in STORED for t in (np.float32, np.float64) if s != np.float64 or t == s]


def stored_as(a: Arrays, *choices: Any) -> tuple[Any, Any, str]:
    """A type of storage, one of arithmetic that is no narrower, and mostly a fitting format."""
    stored, computed = (choices or PAIRS)[a.rng.integers(len(choices or PAIRS))]
    names = STORED[stored] if a.rng.random() < 0.95 else ("fp16", "fp64", "none")
    return stored, computed, str(a.rng.choice(names))


def real_type(a: Arrays) -> Any:
    return a.rng.choice((np.float32, np.float64))


def factors(a: Arrays) -> None:
    n, dtype, threads = a.size(), real_type(a), a.threads()
    levels = [*_kernels.native_bf16_levels()] * 5
    level = str(a.rng.choice([*levels, "none"]))
    which = a.rng.integers(6)
    if which == 0:
        kernels.native_lu(a.matrix(n, dtype), a.zeros(a.length(n)), threads)
    elif which == 1:
        kernels.native_cholesky(a.matrix(n, dtype, definite=True), a.flag(), threads)
    elif which == 2:
        kernels.native_bf16_lu(a.matrix(n, np.float32), a.zeros(a.length(n)), level, threads)
    elif which == 3:
        matrix = a.matrix(n, np.float32, definite=True)
        kernels.native_bf16_cholesky(matrix, a.flag(), level, threads)
    elif which == 4:
        m, k = a.size(), 32 * int(a.rng.integers(4))
        single = {"dtype": np.float32}
        left, right = a.numbers(a.length(n), a.length(k), **single), a.numbers(k, m, **single)
        kernels.native_bf16_gemm(a.numbers(n, a.length(m), **single), left, right, level, threads)
    else:
        packed = a.zeros(a.length(2 * n), n, dtype=np.float32)
        kernels.native_complex_lu(a.matrix(n, np.complex128), packed, a.zeros(a.length(n)), threads)


def substitution(a: Arrays) -> None:
    n, columns = a.size(), int(a.rng.integers(0, 12))
    stored, computed, fmt = stored_as(a)
    threads, which = a.threads(), a.rng.integers(4)
    if which == 0:
        x, y = a.numbers(a.length(n), dtype=computed), a.numbers(a.length(n), dtype=computed)
        matrix = a.stored(a.length(n), a.length(n), dtype=stored)
        kernels.native_matvec(matrix, fmt, x, y, a.flag(), threads)
    elif which == 3:
        stored, computed, _ = stored_as(a, *(pair for pair in PAIRS if pair[0] != np.uint16))
        packed = a.numbers(a.length(2 * n), a.length(n), dtype=stored)
        b = a.numbers(a.length(n), a.length(2 * columns), dtype=computed)
        kernels.native_complex_getrs(packed, b, a.flag(), threads)
    else:
        packed = a.stored(a.length(n), a.length(n), dtype=stored)
        b = a.numbers(a.length(n), columns, dtype=computed)
        if which == 1:
            kernels.native_getrs(packed, fmt, b, a.flag(), threads)
        else:
            kernels.native_potrs(packed, fmt, b, threads)


def corrections(a: Arrays) -> None:
    n, columns, dtype = a.size(), int(a.rng.integers(0, 6)), real_type(a)
    packed = a.numbers(a.length(n), a.length(n), dtype=dtype)
    rows, places = (a.order(n) if a.flag() else None for _ in range(2))
    if a.flag():
        shape = (lambda: (a.length(n), a.length(columns))) if a.flag() else (lambda: (a.length(n),))
        matrix, (b, x, r) = a.matrix(n, real_type(a)), (a.numbers(*shape()) for _ in range(3))
        errors = a.numbers(a.length(columns if b.ndim == 2 else 1))
        norm, target = float(a.rng.choice(NUMBERS)), float(a.rng.choice((1e-10, -1.0, np.nan)))
        steps = int(a.rng.choice((0, 1, 3, 10, -1)))
        shorts = int(a.rng.choice((0, 4, 20, -1))), 1e-6
        limits = norm, target, a.block(), *shorts, steps
        kernels.native_refine(
            *(packed, a.flag(), a.flag(), rows, places, matrix, a.flag(), *limits),
            *(b, x, r, errors, a.threads(), a.threads()),
        )
        return
    r, x, total = (a.numbers(a.length(n), a.length(columns)) for _ in range(3))
    sizes, z_norms, norms = (a.numbers(a.length(columns)) for _ in range(3))
    orders = a.flag(), a.flag(), rows, places
    kernels.native_correct(packed, *orders, r, sizes, x, total, z_norms, norms, a.threads())


def passes(a: Arrays) -> None:
    n, m, dtype, threads = a.size(), a.size(), real_type(a), a.threads()
    which = a.rng.integers(13)
    if which == 0:
        kernels.native_norms(a.numbers(n, m, dtype=dtype), threads)
    elif which == 12:
        rounded = a.numbers(a.length(n), a.length(m), dtype=np.float32)
        kernels.native_norms_and_rounded(a.numbers(n, m), rounded, threads)
    elif which == 1:
        kernels.native_column_norms(a.numbers(n, m, dtype=dtype), threads)
    elif which == 2:
        target = a.numbers(a.length(n), a.length(m), dtype=dtype)
        kernels.native_copy(a.numbers(n, m, dtype=dtype), target, threads)
    elif which == 3:
        kernels.native_symmetric(a.matrix(n, dtype), threads)
    elif which == 4:
        products = a.numbers(a.length(m), a.length(m))
        kernels.native_gram(a.numbers(n, m), products, threads)
    elif which == 5:
        count = int(a.rng.integers(0, 12))
        lines, diagonal = a.indices(m, count, np.int64), a.indices(n, a.length(count), np.int64)
        largest, norms = a.numbers(a.length(count)), a.numbers(a.length(count))
        gram = a.numbers(a.length(count), a.length(count))
        kernels.native_look(a.numbers(n, m), lines, diagonal, largest, norms, gram, threads)
    elif which == 6:
        x, y = a.numbers(a.length(n), dtype=dtype), a.numbers(n, dtype=dtype)
        kernels.native_axpy(float(a.rng.choice(NUMBERS)), x, y)
    elif which == 7:
        V = a.numbers(m, a.length(n), dtype=dtype, order="C")
        w, h = a.numbers(n, dtype=dtype), a.numbers(a.length(m), dtype=dtype)
        kernels.native_orthogonalize(V, w, h)
    elif which == 9:
        largest = a.zeros(a.length(n)), a.zeros(a.length(m))
        scales = a.exponents(a.length(n)), a.exponents(a.length(m))
        kernels.native_largest_exponents(a.numbers(n, m), *scales, *largest, threads)
    elif which == 10:
        scales, scaled = (a.exponents(a.length(n)), a.exponents(m)), a.numbers(n, a.length(m))
        kernels.native_scale(a.numbers(n, m), *scales, scaled, threads)
    elif which == 11:
        transpose, lengths = a.flag(), (a.length(n), a.length(m))
        sums, weights = (a.numbers(one) for one in (lengths[::-1] if transpose else lengths))
        kernels.native_magnitude_sums(a.numbers(n, m), transpose, weights, sums, threads)
    else:
        pairs = [pair for pair in PAIRS if pair[0] != pair[1]]
        stored, computed, fmt = stored_as(a, *pairs)
        given = a.stored(n, m, dtype=stored), a.numbers(n, a.length(m), dtype=computed)
        source, target = given if a.flag() else given[::-1]
        kernels.native_convert(source, target, fmt, threads)


def columns(a: Arrays) -> None:
    """Norms, shifts and permutations of blocks of columns, and the angles of a look."""
    n, count, which, dtype = a.size(), int(a.rng.integers(0, 4)), a.rng.integers(12), real_type(a)
    if which == 0:
        kernels.native_angles(a.matrix(n, a.rng.choice((np.float64, np.complex128))))
    elif which <= 2:
        weights = a.numbers(a.length(2 * n)) if a.flag() else None
        norms = kernels.native_max_norms if which == 1 else kernels.native_max_moduli
        norms(a.numbers(2 * n, count), weights, a.numbers(a.length(count)))
    elif which == 3:
        x, y = a.numbers(n, count), a.numbers(a.length(n), count)
        kernels.native_shift(x, a.exponents(a.length(count)), y)
    elif which == 4:
        norms_of_columns = [a.numbers(a.length(count)) for _ in range(4)]
        r, x, b, errors = norms_of_columns
        kernels.native_backward_errors(r, float(a.rng.choice(NUMBERS)), x, b, errors)
    elif which == 5:
        kernels.native_order(a.indices(n, n), a.zeros(a.length(n)))
    elif which == 9:
        sizes = a.numbers(a.length(count)) if a.flag() else None
        unit, exponents = a.numbers(a.length(n), count), a.zeros(a.length(count))
        kernels.native_unit_columns(a.numbers(n, count), sizes, unit, exponents)
    elif which == 10:
        kernels.native_turn_pairs(a.numbers(a.length(2 * n), count), a.numbers(2 * n, 2 * count))
    elif which == 11:
        most, reach = int(a.rng.choice((0, 1, 3, 10**6, -1))), float(a.rng.choice(NUMBERS))
        kernels.native_nearest(a.numbers(count, n), a.numbers(a.length(count)), reach, most)
    elif which == 6:
        order = a.order(n) if a.flag() else None
        x, y = a.numbers(a.length(n), count), a.numbers(n, count, dtype=dtype)
        (kernels.native_gather(order, x, y) if a.flag() else kernels.native_scatter(order, y, x))
    else:
        order = a.order(n) if a.flag() else None
        pairs, parts = a.numbers(a.length(2 * n), count), a.numbers(n, 2 * count, dtype=dtype)
        if which == 7:
            kernels.native_gather_pairs(order, a.flag(), pairs, parts)
        else:
            kernels.native_scatter_pairs(order, a.flag(), parts, pairs)


def residuals(a: Arrays) -> None:
    n, count, which = a.size(), int(a.rng.integers(0, 12)), a.rng.integers(4)
    shape = (lambda rows: (rows, a.length(count))) if a.flag() else (lambda rows: (rows,))
    x, b, r = (a.numbers(*shape(a.length(n))) for _ in range(3))
    least, most = (float(one) for one in a.rng.choice(NUMBERS, 2))
    if which == 0:
        kernels.native_exact_residual(a.matrix(n), a.flag(), x, b, r, a.block(), a.threads())
    elif which == 1:
        threads = a.threads()
        kernels.native_backward_error(a.matrix(n), a.flag(), x, b, a.block(), least, most, threads)
    elif which == 2:
        starts, indices = a.compressed(n, a.rng.choice((np.int32, np.int64)))
        values = a.numbers(a.length(len(indices)))
        columns, threads = a.length(n), a.threads()
        kernels.native_exact_sparse_residual(starts, indices, values, columns, x, b, r, threads)
    else:
        starts, indices = a.compressed(n)
        values, sums = a.numbers(a.length(len(indices))), a.numbers(a.length(n))
        kernels.native_sparse_backward_errors(
            starts, indices, values, a.flag(), x, b, sums, r, least, most
        )


def stack(a: Arrays) -> None:
    n, columns, given, count = (int(one) for one in a.rng.integers((1, 1, 1, 0), (24, 6, 6, 12)))
    n = n if a.rng.random() < 0.99 else 140  # so many unknowns are factorized in blocks
    matrices = a.numbers(given, a.length(n), a.length(n), order="C")
    b = a.numbers(given, a.length(n), a.length(columns), order="C")
    tolerance = float(a.rng.choice((1e-10, np.nan)))
    gate = tolerance, 1.0, 1e-13, 1e-30, 1e-12, 1e-290, 1e290, a.block(), a.flag()
    formats = ["fp64", "fp32", "fp16", "bf16"]
    if a.flag():
        x = a.numbers(a.length(n), a.length(columns), order="C")
        if a.flag():
            kernels.express_solve(matrices[0], b[0], x, a.flag(), str(a.rng.choice(formats)), *gate)
        else:
            factors = kernels.express_factorize(
                matrices[0], str(a.rng.choice(formats)), a.flag(), 1e-12, a.flag(), 1
            )
            kernels.express_substitute(factors, b[0], x, *gate)
        return
    if a.flag():
        x, norms = a.numbers(a.length(n), a.length(columns), order="C"), a.numbers(columns)
        tall = tolerance, 1e-13, 0.0, 1e-13, 1e-13, 1e-30, 1e-30, a.block(), a.block(), a.threads()
        kernels.tall_solve(matrices[0], b[0], x, norms, a.flag(), *tall)
        return
    which = [a.indices(given, a.length(count), np.int64) for _ in range(2)]
    x = a.numbers(a.length(count), n, columns, order="C")
    errors = a.numbers(a.length(count))
    if a.flag():
        kernels.express_solve_stack(
            matrices, b, *which, x, errors, str(a.rng.choice(formats)), *gate, a.threads()
        )
    else:
        factors = kernels.express_factorize(
            matrices, str(a.rng.choice(formats)), a.flag(), 1e-12, a.flag(), a.threads()
        )
        kernels.express_substitute_stack(factors, b, *which, x, errors, *gate, a.threads())


def structured(a: Arrays) -> None:
    """Bands and triangles; kinds and widths that do not hold for the matrix are a caller's too."""
    n, columns = int(a.rng.integers(1, 40)), int(a.rng.integers(0, 6))
    dtype = a.rng.choice((np.float64, np.float32, np.complex128))
    width = int(a.rng.choice((0, 1, 3, n)))
    inside = np.triu(np.tril(np.ones((n, n)), width), -int(a.rng.choice((0, width))))
    matrix = a.array(inside * a.numbers(n, n) if a.flag() else np.ones((n, a.length(n))), dtype)
    kinds = [int(one) for one in a.rng.choice((0, 1, 2, 3, 4, -1, 7, width, n), 3)]
    b = a.numbers(a.length(n), columns, order="C")
    x = a.numbers(a.length(n), a.length(columns), order="C")
    gate = float(a.rng.choice((1e-10, np.nan))), 1.0, 1e-13, 1e-30, 1e-12, 1e-290, 1e290, a.block()
    which = a.rng.integers(4)
    if which == 0:
        kernels.structured_look(matrix)
    elif which == 1:
        orders = [a.zeros(a.length(n)) for _ in range(2)]
        kernels.structured_orders(matrix, *orders)
    elif which == 2:
        found = kernels.structured_look(matrix) if a.flag() else kinds
        kernels.structured_solve(matrix, b, x, *found, a.threads(), *gate)
    else:
        found = kernels.structured_look(matrix) if a.flag() else kinds
        factors = kernels.structured_factorize(matrix, *found, 1e-12)
        kernels.structured_substitute(factors, b, x, a.threads(), *gate)


def patterns(a: Arrays) -> None:
    n, dtype, index = a.size(), real_type(a), a.rng.choice((np.int32, np.int64))
    starts, indices = a.compressed(n, index, diagonal=a.flag())
    values = a.numbers(a.length(len(indices)), dtype=dtype)
    which = a.rng.integers(6)
    if which == 0:
        rows = a.zeros(a.length(n))
        costs = a.array(np.abs(a.rng.standard_normal(a.length(len(indices)))), np.float64)
        limit = int(a.rng.choice((0, 10, 10**6)))
        columns = a.array(indices, np.int32)
        kernels.sparse_assignment(a.array(starts, np.int64), columns, costs, rows, limit)
    elif which == 1:
        kernels.sparse_is_regular(starts, indices)
    elif which == 2:
        kernels.sparse_partners(starts, indices, int(a.rng.choice((1, 2, 7, 0, -1))))
    elif which == 3:
        kernels.sparse_is_symmetric(starts, indices, values)
    elif which == 4:
        exponents = a.zeros(a.length(n)), a.zeros(a.length(n))
        kernels.sparse_balance(starts, indices, values, a.flag(), *exponents)
    else:
        rows, columns = (
            a.array(a.rng.choice((0, 1, -3, 2000, -(2**31), 2**31 - 1), a.length(n)), np.int32)
            for _ in range(2)
        )
        scaled = a.numbers(a.length(len(indices)), dtype=dtype)
        kernels.sparse_scale(starts, indices, values, rows, columns, scaled)


def left_looking(a: Arrays) -> None:
    n, form = a.size(), int(a.rng.choice((0, 0, 1, 2, 3)))
    first, second = a.compressed(n, a.rng.choice((np.int32, np.int64)), diagonal=True)
    if form == 2:
        first = a.array(a.rng.integers(0, max(1, n), len(second)), second.dtype)
    dtype = np.float64 if a.flag() else np.complex128
    values = a.numbers(a.length(len(second)), dtype=dtype)
    kind = kernels.LeftLookingLU if dtype is np.float64 else kernels.ComplexLeftLookingLU
    lu = kind(form, a.length(n), first, second, values)

    def method(factors: Any, name: str) -> Callable[..., Any]:
        return kernels.counted(f"{type(factors).__name__}.{name}", getattr(factors, name))

    if a.flag():
        method(lu, "fill")(a.array(np.zeros((a.length(n), n)), dtype, order="C"))
    most = (float(a.rng.choice((0, 10, 1e9, 1e9, 1e9, np.nan))) for _ in range(2))
    method(lu, "analyse")(*most)
    method(lu, "factorize")(a.flag())
    shape = (a.length(n),) if a.flag() else (a.length(n), int(a.rng.integers(0, 20)))
    b, x = (a.numbers(*shape, dtype=dtype, order="C") for _ in range(2))
    places = a.array(second if a.rng.random() < 0.9 else second[::-1], second.dtype)
    others = a.numbers(a.length(len(values)), dtype=dtype)
    again = method(lu, "refactored")(form, first, places, others, a.flag())
    for factors in (lu, again or lu):
        given = b, x, a.flag(), a.flag(), a.flag()
        method(factors, "solve")(*given, 1e-10, 1.0, 0.0, 1e-200, 1e200)
        if b.ndim == 1:
            method(factors, "substitute")(b, x)


def sparse_at_once(a: Arrays) -> None:
    n, form = a.size(), int(a.rng.choice((0, 0, 1, 2, 3)))
    first, second = a.compressed(n, a.rng.choice((np.int32, np.int64)), diagonal=True)
    if form == 2:
        first = a.array(a.rng.integers(0, max(1, n), len(second)), second.dtype)
    dtype = a.rng.choice((np.float32, np.float64, np.complex64, np.complex128, np.int64))
    values = a.numbers(a.length(len(second)), dtype=dtype)
    shape = (a.length(n),) if a.flag() else (a.length(n), int(a.rng.integers(0, 20)))
    kinds = dtype if a.rng.random() < 0.8 else np.float64
    b, x = (a.numbers(*shape, dtype=kinds, order="C") for _ in range(2))
    gate = 1e-10, 1.0, 1e-13, 1e-30, 1e-12, 1e-290, 1e290, a.block()
    given = form, a.length(n), first, second, values, b, x
    fmt = str(a.rng.choice(("fp64", "fp32", "fp16", "bf16", "fp8")))
    kernels.express_solve_sparse(*given, fmt, *gate, a.flag())


def supernodal(a: Arrays) -> None:
    n, dtype = a.size(), real_type(a)
    starts, indices = a.compressed(n, np.int64, diagonal=a.flag())
    kernels.sparse_form(starts, indices, a.length(n))
    pattern = kernels.sparse_pattern(starts, indices)
    order = a.order(pattern.n) if a.flag() else None
    kernels.sparse_amd(pattern)
    kernels.sparse_dissect(pattern)
    kernels.sparse_counts(pattern, order)
    symbolic = kernels.sparse_analyse(pattern, order)
    kind = str(a.rng.choice(("cholesky", "ldl", "lu", "lu", "none")))
    place = a.array(np.argsort(symbolic.order), np.int32)
    if a.rng.random() < 0.1:
        place = a.order(a.length(n))
    columns = a.array(indices, np.int32)
    plan = kernels.SupernodalPlan(kind, symbolic, starts, columns, place, place)
    storage = a.numbers(a.length(plan.stored), dtype=dtype)
    values = a.numbers(a.length(len(indices)), dtype=dtype)
    pivots, seconds = a.zeros(a.length(n)), float(a.rng.choice((0.0, 1e3, np.inf)))
    kernels.supernodal_factorize(plan, values, storage, pivots, 1e-8, seconds, a.threads())
    if a.rng.random() < 0.2:  # pivots of other factors
        pivots = a.array(a.rng.integers(-n - 2, n + 2, n), np.int32)
    b = a.numbers(a.length(n), int(a.rng.integers(0, 4)), dtype=dtype)
    if a.flag():
        kernels.supernodal_solve(plan, storage, pivots, b, a.flag(), a.threads())
        return
    count = int(a.rng.integers(0, 4))
    rows, places = (a.order(n) if a.flag() else None for _ in range(2))
    B, x, r = (a.numbers(a.length(n), a.length(count)) for _ in range(3))
    matrix = a.array(starts, np.int32), columns, a.numbers(a.length(len(indices)))
    limits = (float(a.rng.choice(group)) for group in (NUMBERS, (1e-10, -1.0, np.nan)))
    steps = int(a.rng.choice((0, 1, 3, 10, -1)))
    kernels.supernodal_refine(
        *(plan, storage, pivots, rows, places, *matrix, *limits, steps),
        *(B, x, r, a.numbers(a.length(count)), a.threads(), a.threads()),
    )


def square_rows(a: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix in compressed rows, mostly with a diagonal that is positive or outweighs the rest;
    sometimes corrupt."""
    n = a.size()
    starts, indices = a.compressed(n, diagonal=a.rng.random() < 0.9)
    values = a.numbers(a.length(len(indices)))
    fits = starts.ndim == indices.ndim == values.ndim == 1 and len(values) == len(indices)
    if fits and values.flags.writeable and values.dtype == np.float64 and a.rng.random() < 0.8:
        lengths = np.diff(starts.astype(np.int64))
        if (lengths >= 0).all() and lengths.sum() == len(indices):
            rows = np.repeat(np.arange(len(lengths)), lengths)
            values[rows == indices] = a.rng.choice((3.0, 30.0, 1e-300, 1e300))
    if a.rng.random() < 0.05:  # too short
        starts = a.array(starts[: a.rng.integers(len(starts) + 1)], np.int32)
    if a.rng.random() < 0.05:
        indices = a.array(indices, np.int64)
    return starts, indices, values


def krylov_vectors(a: Arrays) -> None:
    """What a Krylov method does between two products; sometimes with one array twice."""
    n, count, which = a.size(), int(a.rng.integers(0, 4)), a.rng.integers(5)
    if a.rng.random() < 0.02:
        n = 70_000  # several strips, and threads
    blocks = [a.numbers(a.length(n), a.length(count)) for _ in range(4)]
    if a.rng.random() < 0.1:
        place = a.rng.integers(4)
        blocks[place] = blocks[a.rng.integers(4)]
        if a.flag():  # they overlap in all but one column
            whole = a.numbers(n, count + 1)
            blocks[place], blocks[place - 1] = whole[:, 1:], whole[:, :-1]
    x, y, p, q = blocks
    first, second = a.numbers(a.length(count)), a.numbers(a.length(count))
    threads = a.threads()
    if which == 0:
        kernels.krylov_dots(x, y, first, threads)
    elif which == 1:
        sizes = a.numbers(3, a.length(count)) if a.rng.random() < 0.9 else a.numbers(count, 3)
        kernels.krylov_step(first, p, q, x, y, sizes, threads)
    elif which == 2:
        kernels.krylov_combine(first, x, second, y, threads)
    elif which == 3:
        basis = a.numbers(count, a.length(n), order="C")
        h, following = (a.numbers(a.length(a.rng.choice((0, count)))) for _ in range(2))
        w = basis[0] if count and basis.ndim == 2 and a.rng.random() < 0.1 else a.numbers(n)
        kernels.krylov_project(basis, h, w, following, threads)
    else:
        n = min(n, 200)
        starts, indices = a.compressed(n, a.rng.choice((np.int32, np.int64)))
        values, x = a.numbers(a.length(len(indices))), a.numbers(a.length(n), count)
        y = x if a.rng.random() < 0.05 else a.numbers(a.length(n), a.length(count))
        kernels.krylov_rows_times(starts, indices, values, x, y, threads)


def preconditioners(a: Arrays) -> None:
    """Hierarchies and incomplete factors, which are applied where there are any; and a look."""
    matrix, which = square_rows(a), a.rng.integers(4)
    if which == 0:
        kernels.iterative_look(*matrix)
        return
    n = max(len(matrix[0]) - 1, 0)
    storage = str(a.rng.choice(("fp64", "fp32", "bf16", "fp16") * 5 + ("tf32", "")))
    threads = a.threads()
    if which == 1:
        levels = int(a.rng.choice((0, 0, 1, 2, 5, 2**31 - 1, -1)))
        _, found = kernels.iterative_incomplete(storage, *matrix, a.flag(), levels, threads)
    else:
        near = a.numbers(a.length(n * int(a.rng.choice((0, 0, 1, 3, 9)))))
        nodes = a.indices(n, 0)
        if n and a.rng.random() < 0.3:
            inner = np.unique(a.rng.integers(0, n, a.rng.integers(n + 1)))
            nodes = a.array(np.union1d(inner, [0, n]), np.int32)
            if a.rng.random() < 0.2:
                nodes = a.starts(len(nodes), n)
        theta = float(a.rng.choice((0.08, 0.08, 0.0, 1e-3, 1e300, np.inf, np.nan, -1.0)))
        degree = int(a.rng.choice((1, 2, 2, 3, 0, -1)))
        ratio = float(a.rng.choice((4.0, 4.0, 30.0, 1e300, np.inf, 1.0, np.nan)))
        coarsest = int(a.rng.choice((1, 1, 3, 10, 300, 2**31 - 1, 0, -(2**31))))
        choices = a.flag(), theta, degree, ratio, coarsest, a.flag(), threads
        _, found = kernels.iterative_hierarchy(storage, *matrix, near, nodes, *choices)
    if found is None:
        return
    assert found.bytes > 0
    assert found.levels[0][0] == n
    for rows in (one for group in found.kept for one in group):
        starts, indices, values, (height, width) = rows
        assert len(starts) == height + 1
        assert len(indices) == len(values) == starts[-1]
        assert not len(indices) or 0 <= indices.min() <= indices.max() < width
    count = int(a.rng.integers(0, 4))
    right = a.numbers(a.length(n), count)
    left = right if a.rng.random() < 0.1 else a.numbers(a.length(n), a.length(count))
    kernels.preconditioner_apply(found, right, left, a.threads())


FORMATS = [get_format(name) for name in ("bf16", "fp16", "tf32", "fp32", "fp64", "e4m3")]


def emulated_format(a: Arrays) -> tuple[Any, bool, Any]:
    """A format, whether its carrier is float32, and the carrier."""
    fmt = FORMATS[a.rng.integers(len(FORMATS))]
    given = {"p": fmt.p, "emin": fmt.emin, "max": float(fmt.max)}
    narrow = fmt.p <= 11
    overflow = int(a.rng.integers(3))
    kernel = kernels.Format(**given, subnormals=a.flag(), overflow=overflow)
    return kernel, narrow, np.float32 if narrow else np.float64


def emulated_matrices(a: Arrays) -> None:
    n, columns, threads = a.size(), int(a.rng.integers(0, 6)), a.threads()
    kernel, _, carrier = emulated_format(a)
    which = a.rng.integers(5)
    if which == 0:
        x, y = a.numbers(n, dtype=carrier), a.numbers(a.length(n), dtype=carrier)
        kernels.round(kernel, int(a.rng.integers(-1, 6)), int(a.rng.integers(2**63)), x, y, threads)
    elif which == 1:
        kernels.lu(kernel, a.matrix(n, carrier), a.zeros(a.length(n)), threads)
    elif which == 2:
        kernels.cholesky(kernel, a.matrix(n, carrier, definite=True), threads)
    elif which == 3:
        triangle, b = a.matrix(n, carrier), a.numbers(a.length(n), columns)
        kernels.solve_triangular(kernel, triangle, a.flag(), a.flag(), a.flag(), b, threads)
    else:
        x, y = a.numbers(a.length(n)), a.numbers(a.length(n))
        kernels.matvec(kernel, a.matrix(n, carrier), a.flag(), x, y, threads)


def emulated_vectors(a: Arrays) -> None:
    n, m = a.size(), int(a.rng.integers(0, 6))
    kernel, narrow, _ = emulated_format(a)
    alpha = float(a.rng.choice(NUMBERS))
    x, y = a.numbers(n), a.numbers(a.length(n))
    which = a.rng.integers(7)
    if which == 0:
        kernels.dot(kernel, narrow, x, y)
    elif which == 1:
        kernels.norm2(kernel, narrow, x)
    elif which == 2:
        kernels.axpy(kernel, narrow, alpha, x, y)
    elif which == 3:
        kernels.scale(kernel, narrow, alpha, x)
    elif which == 4:
        j = int(a.rng.choice((m, m, m, m, m, m, -1, 2**62)))
        h, g = a.numbers(a.length(m + 2)), a.numbers(a.length(m + 2))
        kernels.givens(kernel, narrow, j, a.numbers(a.length(m + 1)), a.numbers(m + 1), h, g)
    else:
        basis, h = a.numbers(m, a.length(n), order="C"), a.numbers(a.length(m))
        if which == 5:
            kernels.orthogonalize(kernel, narrow, basis, x, h)
        else:
            kernels.orthogonalize_stored(kernel, emulated_format(a)[0], basis, x, h)


def emulated_sparse(a: Arrays) -> None:
    n, columns = a.size(), int(a.rng.integers(0, 4))
    kernel, _, carrier = emulated_format(a)
    starts, indices = a.compressed(n, diagonal=True)
    values = a.numbers(a.length(len(indices)), dtype=carrier)
    matrix = starts, indices, values
    b = a.numbers(a.length(n), columns)
    which = a.rng.integers(5)
    if which == 0:
        x, y = a.numbers(a.length(n)), a.numbers(a.length(n))
        kernels.sparse_matvec(kernel, *matrix, a.flag(), x, y)
    elif which == 1:
        found = kernels.sparse_lu(kernel, *matrix, a.indices(n, a.length(n)), 0.1)
        if found[0] == 0:
            kernels.sparse_solve(kernel, *found[2], *found[3], a.flag(), b)
    elif which == 2:
        kernels.sparse_solve(kernel, *matrix, *matrix, a.flag(), b)
    elif which == 3:
        kernels.sparse_cholesky(kernel, *matrix)
    else:
        kernels.sparse_cholesky_solve(kernel, *matrix, b)


def level(a: Arrays) -> None:
    """What is emulated runs on another level from now on."""
    kernels.set_level(str(a.rng.choice((*_kernels.available_levels(), "none", ""))))


def text(a: Arrays) -> None:
    rng = random.Random(int(a.rng.integers(2**63)))
    data = fuzz_files.mutated_text(rng.choice(TEXTS), rng)
    numbers = a.zeros(int(a.rng.integers(0, 30)), dtype=np.float64)
    count = kernels.read_numbers(data, numbers)
    try:
        expected = [float(word) for word in data.split()]  # Python's own reader
    except ValueError:
        return
    if count < 0:  # ours takes no underscores and no digits of other scripts
        return
    assert count == len(expected)
    np.testing.assert_array_equal(numbers[:count], expected[: len(numbers)])


SHARES: dict[Callable[[Arrays], None], float] = {
    factors: 0.07,
    substitution: 0.1,
    corrections: 0.06,
    passes: 0.08,
    columns: 0.06,
    residuals: 0.06,
    stack: 0.04,
    structured: 0.03,
    patterns: 0.04,
    left_looking: 0.06,
    sparse_at_once: 0.02,
    supernodal: 0.07,
    krylov_vectors: 0.05,
    preconditioners: 0.06,
    emulated_matrices: 0.05,
    emulated_vectors: 0.04,
    emulated_sparse: 0.06,
    level: 0.01,
    text: 0.04,
}
"""What is tried, and how much of it."""


def run(seed: int, count: int) -> Counter[str]:
    """Try as many inputs; tell how many were refused, and how often an entry point computed."""
    rng = np.random.default_rng([19, seed])
    counts: Counter[str] = Counter()
    kinds = list(SHARES)
    kernels.computed.clear()
    for number in rng.choice(len(kinds), count, p=list(SHARES.values())):
        kind = kinds[number]
        arrays = Arrays(rng)
        try:
            kind(arrays)
            counts[f"{kind.__name__}: computed"] += 1
        except (ValueError, TypeError):
            counts[f"{kind.__name__}: refused"] += 1
        assert arrays.whole(), f"{kind.__name__} of seed {seed} wrote beyond its arrays"
    return counts + Counter({f"({name})": times for name, times in kernels.computed.items()})


def _reported(seed: int, count: int, queue: Any) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(HANGING, exit=True)  # a kernel may wait for ever
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
    crashed, done = [], 0
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
                done += given.each
        print(f"{done} of {given.inputs}", file=sys.stderr, flush=True)
    untried = sorted(name for name in entry_points() if not counts[f"({name})"])
    print(f"{done} inputs, {len(crashed)} seeds crashed or wrong")
    for name, count in sorted(counts.items()):
        print(f"  {name}: {count}")
    print(f"entry points that computed nothing: {', '.join(untried) or 'none'}")
    sys.exit(bool(crashed or untried))


if __name__ == "__main__":
    main()
