"""The claim of backends/emulated/carriers.py, tried on all numbers of tiny formats and carriers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import reference
from cases import FORMATS

import roundwise as rw
from roundwise.backends.emulated.carriers import carrier_type, is_innocuous


def positive_numbers(fmt):
    numbers, x = [], fmt.min_subnormal
    while x <= fmt.max:
        numbers.append(x)
        x = rw.rounding.round_scalar(math.nextafter(x, math.inf), fmt, "up")
    return numbers


def exact_results(fmt):
    """All sums, differences, products and quotients of the format's numbers."""
    numbers = [Fraction(x) for x in positive_numbers(fmt)]
    for x, y in itertools.product(numbers, repeat=2):
        yield from (x + y, x * y, x / y)
        if x > y:
            yield x - y


def double_roundings(fmt, carrier):
    """The exact results that rounding through the carrier gets wrong."""
    return [
        z
        for z in exact_results(fmt)
        if rw.rounding.round_scalar(rw.rounding.round_scalar(z, carrier), fmt)
        != rw.rounding.round_scalar(z, fmt)
    ]


@pytest.mark.parametrize("subnormals", [True, False])
@pytest.mark.parametrize("p", [2, 3])
def test_double_rounding_is_innocuous_where_claimed(p, subnormals):
    carrier = rw.FloatFormat("carrier", 2 * p + 2, -12, 6)
    lowest = carrier.emin - carrier.p + 3 * p  # condition (3) with equality
    fmt = rw.FloatFormat("small", p, lowest, 4, subnormals=subnormals)
    assert is_innocuous(fmt, carrier)
    assert double_roundings(fmt, carrier) == []


def test_the_condition_on_the_exponents_is_needed():
    carrier = rw.FloatFormat("carrier", 10, -6, 6)
    fmt = rw.FloatFormat("small", 4, -6, 4)
    assert not is_innocuous(fmt, carrier)
    assert double_roundings(fmt, carrier)


def test_the_condition_on_the_precision_is_needed():
    carrier = rw.FloatFormat("carrier", 6, -30, 12)
    fmt = rw.FloatFormat("small", 4, -6, 4)
    assert not is_innocuous(fmt, carrier)
    assert double_roundings(fmt, carrier)


def test_square_roots_are_innocuous():
    for fmt in (rw.BF16, rw.FloatFormat("few", 5, 0, 9), rw.formats.E4M3):
        carrier = rw.FP32
        assert is_innocuous(fmt, carrier)
        numbers = positive_numbers(fmt) if fmt.p < 8 else np.arange(1, 400) * fmt.min_subnormal
        for x in numbers:
            through = rw.rounding.round_scalar(float(np.sqrt(np.float32(x))), fmt)
            assert through == reference.Arithmetic(fmt).sqrt(float(x))


def test_carriers_of_the_named_formats():
    narrow = {fmt.name for fmt in FORMATS if carrier_type(fmt) is np.float32}
    assert narrow == {"e4m3", "e5m2", "bf16", "fp16", "tf32", "fp32", "bf16x3"}
    assert not is_innocuous(rw.formats.TF32, rw.FP32)  # its products are guarded


def test_tf32_products_would_round_twice_in_float32():
    # With q tf32's smallest number, the product is (1.5 - 2^-14) q: nearest is q. Float32, which
    # has no bits for the difference, makes it 1.5 q, and that tie goes to 2 q.
    x, y = 25 * 2.0**-75, 983 * 2.0**-75
    q = rw.formats.TF32.min_subnormal
    assert Fraction(x) * Fraction(y) == Fraction(q) * (Fraction(3, 2) - Fraction(1, 2**14))
    assert rw.rounding.round_scalar(Fraction(x) * Fraction(y), "tf32") == q
    assert rw.round_to(float(np.float32(x) * np.float32(y)), "tf32") == 2 * q
    assert (
        rw.backends.get_backend("operation").dot(np.array([x]), np.array([y]), rw.formats.TF32) == q
    )


@pytest.mark.parametrize(
    "fmt", [rw.formats.TF32, rw.BF16, rw.FloatFormat("ten", 10, -126, 127)], ids=str
)
def test_products_near_and_below_the_smallest_number(fmt, simd_level):
    # All the exponents where a product is subnormal, half-way, or vanishes, in both kernels.
    rng = np.random.default_rng(0)
    n = 4000
    significands = rng.integers(1, 2**fmt.p, (2, n)) * rng.choice([-1.0, 1.0], (2, n))
    x = np.ldexp(significands[0], rng.integers(-136, -60, n))
    x = rw.round_to(x, fmt)
    y = rw.round_to(np.ldexp(significands[1], -149 - np.frexp(x)[1] + rng.integers(-3, 30, n)), fmt)
    op = reference.Arithmetic(fmt)
    expected = np.array([op.multiply(a, b) for a, b in zip(x, y, strict=True)])
    operation = rw.backends.get_backend("operation")
    assert 0.1 < np.mean(expected != 0) < 0.99
    diagonal = operation.matrix(np.diag(x[:300]), fmt)
    assert np.array_equal(diagonal.matvec(y[:300]), expected[:300])
    dots = [operation.dot(x[i : i + 1], y[i : i + 1], fmt) for i in range(n)]
    assert np.array_equal(dots, expected)
    negative = operation.scale(float(y[0]), x[:1], fmt)
    assert np.signbit(negative[0]) == np.signbit(expected[0])


@pytest.mark.parametrize(("p", "emin"), [(26, -126), (52, -126), (24, -1004)])
def test_formats_that_cannot_be_emulated_are_refused(p, emin):
    fmt = rw.FloatFormat("between", p, emin, 127)
    with pytest.raises(ValueError, match="cannot be emulated exactly in float64; choose"):
        rw.backends.get_backend("operation").dot(np.ones(2), np.ones(2), fmt)
