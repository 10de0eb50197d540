"""Whatever is passed in: an answer that the judge accepts, or one of the documented exceptions."""

import contextlib
import math

import exact
import hypothesis.strategies as st
import numpy as np
import pytest
from hard_systems import SPARSE_FORMATS, as_sparse
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as npst

import roundwise as rw
from roundwise.backends import native_formats

pytestmark = pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
DOCUMENTED = (ValueError, TypeError, rw.SolveFailed)
UNITS = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24}
REAL = ("f8", "f4", "f2", ">f8", ">f4", "i8", "i4", "i1", "u8", "u2", "?")
POLICIES = st.sampled_from(["default", *(fmt.name for fmt in native_formats())])
fuzz = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@st.composite
def matrices(draw, shape):
    """An array of any real type and memory order; often sparse in the sense of many zeros."""
    dtype = np.dtype(draw(st.sampled_from(REAL)))
    values = draw(npst.arrays(dtype, shape, fill=st.just(dtype.type(0))))
    layout = draw(st.sampled_from("CFsr"))
    if layout == "s":
        padded = np.zeros(tuple(2 * size for size in shape), dtype)
        padded[tuple(slice(None, None, 2) for _ in shape)] = values
        return padded[tuple(slice(None, None, 2) for _ in shape)]
    if layout == "r":
        return values[::-1]
    return np.array(values, order=layout)


@st.composite
def systems(draw):
    """A square A that may be anything but is likely regular, and b with its number of rows."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    A = draw(matrices((n, n)))
    if draw(st.booleans()) and A.dtype != bool:
        with np.errstate(all="ignore"):
            A = A + np.diag(np.full(n, A.dtype.type(100)))
    shape = draw(st.sampled_from([(n,), (n, k)]))
    return A, draw(matrices(shape))


def judge(A, b, x):
    given = A.toarray() if hasattr(A, "toarray") else np.asarray(A)
    kinds = {np.asarray(given).dtype.newbyteorder("="), np.asarray(b).dtype.newbyteorder("=")}
    assert x.dtype == (np.float32 if kinds == {np.dtype(np.float32)} else np.float64)
    assert x.shape == np.shape(b)
    assert np.isfinite(x).all()
    unit = UNITS[x.dtype]
    tolerance = math.sqrt(len(given)) * unit
    assert exact.backward_error(given, x, b) <= tolerance * (1 + 16 * 2.0**-53)


def check(A, b, **options):
    try:
        x = rw.solve(A, b, **options)
    except DOCUMENTED:
        return
    judge(A, b, x)


@fuzz
@given(systems(), POLICIES, st.sampled_from([None, "gen", "pos"]))
def test_dense_systems(system, policy, assume_a):
    A, b = system
    if assume_a == "pos":  # the lower triangle is not read: let it be what is taken for it
        A = np.where(np.tri(len(A), k=-1, dtype=bool), A.T, A)
    before = A.tobytes(), b.tobytes()
    check(A, b, policy=policy, assume_a=assume_a)
    assert (A.tobytes(), b.tobytes()) == before


@fuzz
@given(systems(), st.sampled_from(SPARSE_FORMATS), st.booleans(), POLICIES)
def test_sparse_systems(system, fmt, array, policy):
    A, b = system
    if A.dtype.kind == "f":  # SciPy's sparse matrices are not for float16 and foreign byte orders
        A = A.astype("f4" if A.dtype.itemsize == 4 else "f8")
    check(as_sparse(A, fmt, array), b, policy=policy)


@fuzz
@given(systems(), POLICIES)
def test_full_output_and_factor_agree_with_solve(system, policy):
    A, b = system
    try:
        solution = rw.solve(A, b, policy=policy, full_output=True)
    except DOCUMENTED:
        return
    assert solution.backward_error <= solution.tolerance
    assert solution.digits >= 0  # nothing looks changed
    assert solution.explain()
    judge(A, b, solution.x)
    judge(A, b, rw.factor(A, policy=policy).solve(b))


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.builds(object),
    st.dictionaries(st.text(max_size=1), st.floats(), max_size=2),
    st.recursive(
        st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=1)),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=8,
    ),
    npst.arrays(
        st.one_of(npst.scalar_dtypes(), st.sampled_from(["O", "m8[s]", "M8[s]"]).map(np.dtype)),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
        elements=None,
    ).filter(lambda values: values.dtype != object or values.size == 0),
    npst.arrays(np.float64, npst.array_shapes(max_dims=3, max_side=3)).map(np.ma.masked_invalid),
)


@fuzz
@given(anything, anything, anything, POLICIES)
def test_garbage(A, b, tol, policy):
    for matrix, rhs, options in (
        (A, b, {}),
        (A, [1.0, 2.0], {}),
        ([[2.0, 1.0], [1.0, 3.0]], b, {}),
        ([[2.0, 1.0], [1.0, 3.0]], [1.0, 2.0], {"tol": tol}),
        ([[2.0, 1.0], [1.0, 3.0]], [1.0, 2.0], {"assume_a": tol}),
    ):
        with contextlib.suppress(*DOCUMENTED):
            x = rw.solve(matrix, rhs, policy=policy, **options)
            assert np.isfinite(x).all()
        with contextlib.suppress(*DOCUMENTED):
            rw.factor(matrix, policy=policy, **options).solve(rhs)


@fuzz
@given(
    npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3),
    npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3),
)
def test_shapes_as_in_numpy(shape, other):
    """Where NumPy takes the shapes, the answer has NumPy's; empty systems are refused."""
    A, b = np.random.default_rng(0).standard_normal(shape), np.ones(other)
    try:
        expected = np.linalg.solve(A, b)
    except (ValueError, np.linalg.LinAlgError):
        expected = None
    try:
        x = rw.solve(A, b)
    except ValueError:
        assert expected is None or A.size == 0 or expected.size == 0
    else:
        np.testing.assert_allclose(x, expected, rtol=1e-6)
