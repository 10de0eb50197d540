"""Laws of rounding, and the compiled code against the oracle, on formats nobody named."""

import numpy as np
from cases import MODES, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import roundwise as rw


@st.composite
def formats(draw):
    p = draw(st.integers(2, 53))
    emin = draw(st.integers(-1022, 0))
    emax = draw(st.integers(0, 1023))
    overflow = draw(st.sampled_from(["inf", "nan", "saturate"]))
    top = overflow != "inf" and draw(st.booleans())
    return rw.FloatFormat("drawn", p, emin, emax, draw(st.booleans()), overflow, top)


anything = st.floats(allow_nan=True, allow_infinity=True, width=64)
finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=500)
@given(formats(), st.lists(anything, min_size=1, max_size=20), st.sampled_from(MODES))
def test_equals_the_oracle(fmt, xs, mode):
    # Far from its own range every format only overflows or flushes: try x near it as well.
    near = [x * fmt.min_normal for x in xs] + [x * fmt.max for x in xs] + [x % 4.0 for x in xs]
    x = np.array(xs + near)
    expected = [rw.rounding.round_scalar(float(value), fmt, mode) for value in x]
    assert same_bits(rw.round_to(x, fmt, mode), expected)


@given(formats(), anything, st.sampled_from(MODES))
def test_idempotent(fmt, x, mode):
    once = rw.round_to(x, fmt, mode)
    assert same_bits(rw.round_to(once, fmt, mode), once)


@given(formats(), finite, finite, st.sampled_from(MODES))
def test_monotone(fmt, x, y, mode):
    a, b = rw.round_to(min(x, y), fmt, mode), rw.round_to(max(x, y), fmt, mode)
    assert a <= b or np.isnan(a) or np.isnan(b)


@given(formats(), anything)
def test_odd(fmt, x):
    assert same_bits(rw.round_to(-x, fmt), -rw.round_to(x, fmt))
    assert same_bits(rw.round_to(-x, fmt, "up"), -rw.round_to(x, fmt, "down"))
    assert same_bits(rw.round_to(-x, fmt, "toward_zero"), -rw.round_to(x, fmt, "toward_zero"))


@given(formats(), finite)
def test_relative_error_is_at_most_u_in_range(fmt, x):
    if fmt.min_normal <= abs(x) <= fmt.max:
        assert abs(rw.round_to(x, fmt) - x) <= fmt.unit_roundoff * abs(x)


@given(formats(), finite)
def test_directed_modes_bracket(fmt, x):
    down, up = rw.round_to(x, fmt, "down"), rw.round_to(x, fmt, "up")
    if not (np.isnan(down) or np.isnan(up)) and abs(x) <= fmt.max:
        assert down <= x <= up
        assert rw.round_to(x, fmt) in (down, up)
        assert abs(rw.round_to(x, fmt, "toward_zero")) <= abs(x)


@given(formats(), anything, st.integers(0, 2**32))
def test_stochastic_chooses_a_neighbour(fmt, x, seed):
    y = rw.round_to(x, fmt, "stochastic", rng=seed)
    neighbours = [rw.round_to(x, fmt, "down"), rw.round_to(x, fmt, "up")]
    # Beyond max the upper neighbour overflows, and so does what lies past both.
    beyond = rw.round_to(np.copysign(np.inf, x), fmt)
    assert any(same_bits(y, z) for z in [*neighbours, beyond])


@given(st.lists(st.floats(width=32), min_size=1, max_size=40), formats(), st.sampled_from(MODES))
def test_float32_input_equals_float64_input(xs, fmt, mode):
    x = np.array(xs, dtype=np.float32)
    with np.errstate(over="ignore"):
        expected = rw.round_to(x.astype(np.float64), fmt, mode).astype(np.float32)
    assert same_bits(rw.round_to(x, fmt, mode), expected)
