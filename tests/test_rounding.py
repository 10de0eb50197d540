"""Rounding against every bit pattern of the small formats, and against exact arithmetic."""

import dataclasses
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cases import FORMATS, MODES, ODD_FORMATS, PATTERNS, all_values, same_bits

import roundwise as rw


class PatternOracle:
    """Rounds by looking the neighbours up in the list of all numbers of a format.

    The list holds one number more than the format: what would follow max if the exponent range
    went on. Its place is overflow. A number's place in the list is its bit pattern, so that an
    even place is an even significand.
    """

    def __init__(self, name):
        self.fmt = rw.get_format(name)
        values = all_values(name)
        finite = values[np.isfinite(values) & ~np.signbit(values)]
        assert np.all(np.diff(finite) > 0)
        self.numbers = np.append(finite, 2 * finite[-1] - finite[-2])

    def edges(self):
        """All numbers, all midpoints and both float64 neighbours of each, both signs."""
        middle = (self.numbers[:-1] + self.numbers[1:]) / 2
        points = np.concatenate([self.numbers, middle])
        points = np.concatenate(
            [points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf)]
        )
        far = [2 * self.fmt.max, 1e300, np.finfo(float).max, np.inf, 5e-324, 1e-310]
        points = np.concatenate([points, far])
        return np.concatenate([points, -points])

    def round(self, x, mode):
        magnitude = np.abs(x)
        below = np.clip(
            np.searchsorted(self.numbers, magnitude, "right") - 1, 0, len(self.numbers) - 2
        )
        low, high = self.numbers[below], self.numbers[below + 1]
        inexact = magnitude > low
        middle = (low + high) / 2
        go_away = {
            "nearest": (magnitude > middle) | ((magnitude == middle) & (below % 2 == 1)),
            "toward_zero": np.zeros(len(x), bool),
            "up": inexact & (x > 0),
            "down": inexact & (x < 0),
        }[mode]
        result = np.where(go_away, high, low)
        overflowed = {"inf": np.inf, "nan": np.nan, "saturate": self.fmt.max}[self.fmt.overflow]
        result = np.where((result > self.fmt.max) | np.isinf(x), overflowed, result)
        return np.copysign(result, x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PATTERNS)
def test_all_patterns_midpoints_and_edges(name, mode, simd_level):
    oracle = PatternOracle(name)
    x = oracle.edges()
    assert same_bits(rw.round_to(x, name, mode), oracle.round(x, mode))


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_rounds_to_itself(name, simd_level):
    values = all_values(name)
    if name == "e4m3":
        values = values[np.isfinite(values)]  # it has no infinity, and NaN is tested below
    for mode in [*MODES, "stochastic"]:
        assert same_bits(rw.round_to(values, name, mode, rng=1), values)
        with np.errstate(invalid="ignore"):
            narrow = values.astype(np.float32)
        assert same_bits(rw.round_to(narrow, name, mode, rng=1), values)


@pytest.mark.parametrize("name", PATTERNS)
def test_ml_dtypes_agrees_where_it_rounds_once(name):
    # Its casts from float64 may pass through float32; from float32 they round once.
    x = PatternOracle(name).edges()
    with np.errstate(over="ignore", invalid="ignore"):
        x = x.astype(np.float32)
        theirs = x.astype(PATTERNS[name][0]).astype(np.float32)
    assert same_bits(rw.round_to(x, name), theirs)


@pytest.mark.parametrize("fmt", FORMATS + ODD_FORMATS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_edges_of_all_formats_against_the_oracle(fmt, mode, simd_level):
    quantum = fmt.min_subnormal
    points = [0.0, quantum, 1.5 * quantum, 2.5 * quantum, fmt.min_normal, fmt.max, 1.0, np.pi]
    points += [quantum / 2, fmt.min_normal / 2, fmt.min_normal - quantum / 2, 1 + fmt.unit_roundoff]
    points += [fmt.max * (1 + s * fmt.unit_roundoff) for s in (0.5, 0.25, -0.25, 1)]
    points += [fmt.max - Fraction(fmt.max) * 0, 5e-324, 1e-310, np.finfo(float).max, np.inf]
    with np.errstate(over="ignore"):
        points = np.array([float(x) for x in points])
        points = np.concatenate([points, np.nextafter(points, 0), np.nextafter(points, np.inf)])
    points = np.concatenate([points, -points])
    expected = [rw.rounding.round_scalar(float(x), fmt, mode) for x in points]
    assert same_bits(rw.round_to(points, fmt, mode), expected)


def test_oracle_equals_the_pattern_oracle():
    oracle = PatternOracle("e4m3")
    x = oracle.edges()
    for mode in MODES:
        ours = [rw.rounding.round_scalar(float(value), "e4m3", mode) for value in x]
        assert same_bits(ours, oracle.round(x, mode))


@pytest.mark.parametrize(("mode", "code"), [("nearest", "n"), ("up", "c"), ("down", "f")])
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_normal_numbers_against_mpmath(fmt, mode, code):
    rng = np.random.default_rng(5)
    exponent = rng.integers(max(fmt.emin, -300), min(fmt.emax, 300), 300)
    x = np.ldexp(rng.uniform(1, 1.9, 300) * rng.choice([-1, 1], 300), exponent)
    with mpmath.workprec(fmt.p):
        expected = [float(mpmath.fmul(value, 1, prec=fmt.p, rounding=code)) for value in x]
    assert same_bits(rw.round_to(x, fmt, mode), expected)


def test_double_rounding_trap():
    # Through float32 the last bit is lost, the tie goes to even, and the result is 1.
    x = 1 + 2.0**-8 + 2.0**-40
    assert np.float32(x) == 1 + 2.0**-8
    assert rw.round_to(x, "bf16") == 1 + 2.0**-7
    assert rw.round_to(x, "tf32") == 1 + 2.0**-8
    assert rw.round_to(1 + 2.0**-11 + 2.0**-40, "fp16") == 1 + 2.0**-10


def test_tf32_is_not_fp32():
    assert rw.round_to(1 + 2.0**-12, "tf32") == 1
    assert rw.round_to(1 + 2.0**-12, "fp32") == 1 + 2.0**-12


def test_fp32_equals_the_hardware_cast(simd_level):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000) * 2.0 ** rng.integers(-160, 140, 20_000)
    with np.errstate(over="ignore"):
        assert same_bits(rw.round_to(x, "fp32"), x.astype(np.float32))
        assert same_bits(rw.round_to(x, "fp16"), x.astype(np.float16))


@pytest.mark.parametrize("fmt", FORMATS + ODD_FORMATS, ids=str)
@pytest.mark.parametrize("mode", [*MODES, "stochastic"])
def test_nan_of_any_payload_stays_nan(fmt, mode, simd_level):
    payloads = np.array(
        [0x7FF8 << 48, 0xFFF8 << 48, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x7FF0000000000001],
        dtype=np.uint64,
    ).view(np.float64)
    assert np.isnan(rw.round_to(payloads, fmt, mode, rng=0)).all()
    narrow = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(rw.round_to(narrow, fmt, mode, rng=0)).all()


def test_float32_input_in_a_wider_format_overflows_as_float32():
    wide = rw.FloatFormat("wide", 4, -200, 200)
    top = np.array([np.finfo(np.float32).max, 2.0**-149], dtype=np.float32)
    assert same_bits(rw.round_to(top, wide), [np.inf, 2.0**-149])
    assert same_bits(rw.round_to(top.astype(float), wide), [2.0**128, 2.0**-149])


def test_saturating_e4m3_keeps_infinity_finite():
    saturating = dataclasses.replace(rw.formats.E4M3, overflow="saturate")
    assert same_bits(rw.round_to(np.array([np.inf, -1e9, 464.1]), saturating), [448, -448, 448])


# Stochastic rounding


@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16, ODD_FORMATS[0]], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stochastic_mean_and_neighbours(fmt, dtype, simd_level):
    n = 200_000
    for x in (1 + 0.3 * 2 * fmt.unit_roundoff, -(fmt.min_normal - 0.25 * fmt.min_subnormal)):
        x = float(dtype(x))
        down, up = rw.rounding.round_scalar(x, fmt, "down"), rw.rounding.round_scalar(x, fmt, "up")
        y = rw.round_to(np.full(n, x, dtype=dtype), fmt, "stochastic", rng=3)
        assert set(np.unique(y)) == {down, up}
        chance = (x - down) / (up - down)
        tolerance = 5 * np.sqrt(chance * (1 - chance) / n)
        assert np.mean(y == up) == pytest.approx(chance, abs=tolerance)


def test_stochastic_does_not_depend_on_threads_layout_or_level(threads):
    x = np.random.default_rng(0).standard_normal((700, 1100))
    expected = None
    for level in rw.machine.threads.simd_levels():
        rw.machine.threads.set_simd_level(level)
        for count in (1, 2, 5):
            threads(count)
            for layout in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
                y = rw.round_to(layout, "bf16", "stochastic", rng=np.random.default_rng(7))
                expected = y if expected is None else expected
                assert same_bits(y, expected)
    other = rw.round_to(x, "bf16", "stochastic", rng=8)
    assert not same_bits(other, expected)


# Shapes, types and wrong calls


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::2, ::-1],
        lambda a: a[:, 3],
        lambda a: a[:0],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (3, a.shape[1])),
        lambda a: a.reshape(4, 5, 10).transpose(1, 2, 0),
        lambda a: a[2, 3],
        lambda a: a[2:3, 3:4].reshape(()),
    ],
)
def test_any_layout(view, dtype):
    a = np.random.default_rng(1).standard_normal((20, 10)).astype(dtype)
    x = view(a)
    y = rw.round_to(x, "bf16")
    assert np.shape(y) == np.shape(x)
    assert y.dtype == dtype
    expected = [rw.rounding.round_scalar(float(value), "bf16") for value in np.ravel(x)]
    assert same_bits(np.ravel(y), expected)
    if np.ndim(x):
        out = np.empty_like(a[: x.shape[0]]) if x.shape == a.shape else np.empty(x.shape, dtype)
        assert rw.round_to(x, "bf16", out=out) is out
        assert same_bits(out, y)


def test_out_may_alias():
    x = np.random.default_rng(1).standard_normal(1000)
    expected = rw.round_to(x, "fp16")
    shifted = np.empty(1001)
    shifted[:-1] = x
    rw.round_to(shifted[:-1], "fp16", out=shifted[1:])
    assert same_bits(shifted[1:], expected)
    strided = np.zeros((1000, 2))
    rw.round_to(x, "fp16", out=strided[:, 1])
    assert same_bits(strided[:, 1], expected)
    rw.round_to(x, "fp16", out=x)
    assert same_bits(x, expected)


def test_threads_do_not_change_large_arrays(threads):
    x = np.random.default_rng(1).standard_normal(1_000_003)
    threads(1)
    expected = rw.round_to(x, "fp16")
    threads(4)
    assert same_bits(rw.round_to(x, "fp16"), expected)


def test_python_numbers_give_python_floats():
    for number in (3.14159, 3, True):
        y = rw.round_to(number, "bf16")
        assert type(y) is float
        assert y == rw.rounding.round_scalar(float(number), "bf16")
    assert type(rw.round_to(np.float32(1.1), "bf16")) is np.float32


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rw.round_to(np.ones(2, complex), "bf16"), TypeError, "got complex128; convert"),
        (lambda: rw.round_to(1j, "bf16"), TypeError, "got complex128"),
        (lambda: rw.round_to(np.array([None]), "bf16"), TypeError, "got object"),
        (lambda: rw.round_to(np.arange(3), "bf16"), TypeError, "got int64"),
        (lambda: rw.round_to(np.ones(2, ">f8"), "bf16"), TypeError, "takes float64"),
        (lambda: rw.round_to(1.0, "bf16", "rne"), ValueError, "unknown mode 'rne'; known: nearest"),
        (lambda: rw.round_to(1.0, "bf16", "stochastic"), ValueError, "needs rng; pass"),
        (lambda: rw.round_to(np.ones(3), "bf16", out=np.ones(4)), ValueError, r"shape \(3,\)"),
        (lambda: rw.round_to(np.ones(3), "bf16", out=np.ones(3, "f4")), ValueError, "pass float64"),
        (lambda: rw.rounding.round_scalar(1.0, "bf16", "rne"), ValueError, "unknown mode"),
        (lambda: rw.round_to(np.ones(3), "bf16", out=[0.0] * 3), TypeError, "writeable array"),
        (lambda: rw.round_to(np.ones(3), "bf16", out=np.broadcast_to(0.0, 3)), TypeError, "write"),
        (lambda: rw.set_num_threads(True), ValueError, "from 1 to 1024"),
        (lambda: rw.set_num_threads(0), ValueError, "from 1 to 1024"),
        (
            lambda: rw.machine.threads.set_simd_level("mmx"),
            ValueError,
            "'mmx' is not available here; choose",
        ),
    ],
)
def test_wrong_calls_get_one_clear_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
