"""Whatever NumPy's users pass: odd types, subclasses, frames, arrays of other packages."""

import re
import sys
import types
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import roundwise as rw
from roundwise.problems import poisson_2d

A = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.5, 0.0, 2.0]])
B = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0]])
X = np.linalg.solve(A, B)


def close(x, y=X, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(x), y, rtol=rtol)


# --- empty


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, int])
def test_no_unknowns(form, dtype):
    nothing = form(np.empty((0, 0), dtype=dtype))
    for shape in ((0,), (0, 3), (0, 0)):
        x = rw.solve(nothing, np.empty(shape, dtype=dtype))
        assert x.shape == shape
        assert x.dtype == (np.float32 if dtype == np.float32 else np.float64)
    with pytest.raises(ValueError, match="rows"):
        rw.solve(nothing, np.ones(2))
    with pytest.raises(ValueError, match="call solve"):
        rw.factor(nothing)


def test_no_columns():
    assert rw.solve(A, np.empty((3, 0))).shape == (3, 0)
    assert rw.factor(A).solve(np.empty((3, 0))).shape == (3, 0)
    assert rw.solve(sparse.csr_array(A), np.empty((3, 0))).shape == (3, 0)


# --- numbers


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint64, np.int64, ">f8"])
def test_what_float64_can_hold_is_converted(dtype):
    if not np.can_cast(dtype, np.float64):
        with pytest.raises(TypeError, match="astype"):
            rw.solve(A.astype(dtype), B)
        return
    whole = np.round(4 * A).astype(dtype)
    close(rw.solve(whole, B), np.linalg.solve(whole.astype(float), B))


def test_bool():
    x = rw.solve(np.array([[True, True], [False, True]]), np.array([True, False]))
    assert x.tolist() == [1.0, 0.0]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant == 52, reason="longdouble is float64 here")
def test_long_doubles_are_refused():
    with pytest.raises(TypeError, match=r"pass A.astype\(numpy.float64\)"):
        rw.solve(A.astype(np.longdouble), B)
    with pytest.raises(TypeError, match=r"pass b.astype\(numpy.float64\)"):
        rw.solve(A, B.astype(np.longdouble))


@pytest.mark.parametrize("bad", ["abc", [["a", "b"], ["c", "d"]], [[object()]], None])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises((TypeError, ValueError)):
        rw.solve(bad, np.ones(2))


# --- memory


def test_memory_maps_and_read_only(tmp_path):
    path = tmp_path / "A.npy"
    np.save(path, A)
    mapped = np.load(path, mmap_mode="r")
    close(rw.solve(mapped, B))
    frozen = B.copy()
    frozen.flags.writeable = False
    close(rw.solve(mapped, frozen))
    x = rw.solve(mapped, np.load(path, mmap_mode="r"))
    np.testing.assert_allclose(x, np.eye(3), atol=1e-15)
    assert rw.solve(A, frozen, overwrite_b=True) is not frozen


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_right_hand_side_within_the_matrix_is_not_overwritten(order):
    A = np.array([[4.0, 1.0, 2.0], [1.0, 5.0, 3.0], [2.0, 3.0, 6.0]], order=order)
    before, b = A.copy(), A[:, 1] if order == "F" else A[1]
    np.testing.assert_allclose(rw.solve(A, b, overwrite_b=True), [0.0, 1.0, 0.0], atol=1e-15)
    np.testing.assert_array_equal(A, before)


def test_a_right_hand_side_within_a_sparse_matrix_is_not_overwritten():
    A = sparse.csr_array(np.diag([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(rw.solve(A, A.data, overwrite_b=True), 1.0)
    np.testing.assert_array_equal(A.data, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("tol", [10**400, -(10**400), Fraction(1, 10**400), float("nan")])
def test_tolerances_that_float64_cannot_hold(tol):
    for call in (rw.solve, rw.lstsq, lambda A, b, tol: rw.factor(A, tol=tol)):
        with pytest.raises(ValueError, match="choose 0 < tol < 1"):
            call(np.eye(3), np.ones(3), tol=tol)


def test_overlapping_operands():
    np.testing.assert_allclose(rw.solve(A, A), np.eye(3), atol=1e-15)
    close(rw.solve(A, A.T), np.linalg.solve(A, A.T), rtol=1e-10)


# --- kinds


def test_masked_arrays_are_refused():
    for name, operands in (("A", (np.ma.masked_array(A), B)), ("b", (A, np.ma.masked_array(B)))):
        with pytest.raises(TypeError, match=rf"{name}.filled"):
            rw.solve(*operands)


class Tagged(np.ndarray):
    """A subclass that carries an attribute."""

    def __array_finalize__(self, obj):
        self.tag = getattr(obj, "tag", None)


def test_subclasses_come_back_as_with_numpy():
    b = B.view(Tagged)
    for solve in (np.linalg.solve, rw.solve):
        assert type(solve(A, b)) is Tagged
        assert type(solve(A.view(Tagged), B)) is np.ndarray
    close(rw.solve(A, b))
    assert type(rw.factor(A).solve(b)) is Tagged
    assert type(rw.solve(A, b, full_output=True).x) is Tagged
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        column = np.matrix(B[:, :1])
        assert type(rw.solve(np.matrix(A), column)) is np.matrix
        close(rw.solve(np.matrix(A), column), X[:, :1])


class Foreign:
    """An array of another package, which speaks DLPack and nothing else."""

    def __init__(self, array):
        self._array = array.copy()  # NumPy 2.0 imports arrays read-only, and exports no such ones

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class WithNamespace(Foreign):
    def __array_namespace__(self):
        namespace = types.SimpleNamespace()
        namespace.from_dlpack = lambda x: WithNamespace(np.from_dlpack(x))
        return namespace


def test_dlpack_in_and_out():
    x = rw.solve(Foreign(A), WithNamespace(B))
    assert type(x) is WithNamespace
    close(np.from_dlpack(x))
    solution = rw.solve(A, WithNamespace(B), full_output=True)
    assert type(solution.x) is WithNamespace
    assert type(rw.factor(A).solve(WithNamespace(B))) is WithNamespace


def test_a_package_without_a_namespace_is_found_by_its_name(monkeypatch):
    package = types.ModuleType("foreign_arrays")
    kind = type("Tensor", (Foreign,), {"__module__": "foreign_arrays.tensors"})
    package.from_dlpack = lambda x: kind(np.from_dlpack(x))
    monkeypatch.setitem(sys.modules, "foreign_arrays", package)
    x = rw.solve(kind(A), kind(B))
    assert type(x) is kind
    close(np.from_dlpack(x))


class Convertible:
    """What NumPy converts by ``__array__``: polars' frames, say."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None else self._array.astype(dtype)


def test_array_in_numpy_out():
    x = rw.solve(Convertible(A), Convertible(B))
    assert type(x) is np.ndarray
    close(x)


def test_a_tensor_that_needs_a_gradient_is_refused():
    b = WithNamespace(B)
    b.requires_grad = True
    with pytest.raises(TypeError, match=r"b.detach\(\)"):
        rw.solve(A, b)


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(A, index=list("pqr"), columns=list("uvw"))
    series = pandas.Series(B[:, 0], index=list("pqr"), name="load")
    x = rw.solve(frame, series)
    assert isinstance(x, pandas.Series)
    assert (list(x.index), x.name) == (list("uvw"), "load")
    close(x, X[:, 0])
    table = rw.solve(frame, pandas.DataFrame(B, index=list("pqr"), columns=["one", "two"]))
    assert list(table.columns) == ["one", "two"]
    close(table)


def test_polars():
    polars = pytest.importorskip("polars")
    close(rw.solve(polars.DataFrame(A), polars.Series(B[:, 0])), X[:, 0])


def test_torch():
    torch = pytest.importorskip("torch")
    x = rw.solve(torch.from_numpy(A), torch.from_numpy(B))
    assert isinstance(x, torch.Tensor)
    close(x.numpy())


def test_jax():
    jax = pytest.importorskip("jax")
    x = rw.solve(jax.numpy.asarray(A), jax.numpy.asarray(B))
    assert isinstance(x, jax.Array)
    close(x, rtol=1e-5)  # jax's numbers are float32 unless told otherwise


# --- anything

DTYPES = st.sampled_from(
    [
        np.float64,
        np.float32,
        np.float16,
        np.int32,
        np.uint8,
        bool,
        np.longdouble,
        "U3",
        object,
        "M8[s]",
    ]
)
DOCUMENTED = (ValueError, TypeError, rw.SolveFailed)


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_only_documented_exceptions(data):
    """Any dtype, shape, memory order, structure: an answer, or an error that `solve` names."""
    shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
    n = data.draw(st.integers(0, 4))
    square = st.sampled_from([(n, n), (n, n), (n, n), (2, n, n), (n, n + 1), (n,), ()])
    numbers = {"elements": st.integers(-9, 9)} if data.draw(st.booleans()) else {}

    def array(shape):
        dtype = data.draw(DTYPES)
        plain = dtype in (np.float64, np.float32, np.float16, np.int32)
        if dtype is object:
            return np.full(data.draw(shape), 1, dtype=object)
        return data.draw(hnp.arrays(dtype, shape, **(numbers if plain else {})))

    matrix = array(square)
    rhs = array(st.one_of(st.sampled_from([(n,), (n, 1), (n, 3), (2, n, 1)]), shapes))
    if data.draw(st.booleans()):
        matrix = np.asfortranarray(matrix)
    if data.draw(st.booleans()):
        rhs = rhs[::-1] if rhs.ndim else rhs
    name = data.draw(
        st.sampled_from([None, "pos", "sym", "diagonal", "upper triangular", "banded"])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", rw.IllConditionedWarning)
        try:
            x = rw.solve(matrix, rhs, assume_a=name, transposed=data.draw(st.booleans()))
        except DOCUMENTED:
            return
    assert x.dtype in (np.float32, np.float64)
    assert np.isfinite(x).all()


class Refused:
    """An object of another library that NumPy cannot convert."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("no")


class DynamicJaxprTracer(Refused):
    pass


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (Refused(dtype="torch.bfloat16"), "pass b.float()"),
        (Refused(layout="torch.sparse_coo"), "scipy.sparse.csr_array((S.values(), "),
        (DynamicJaxprTracer(dtype="float32"), "call it outside of them"),
        (Refused(), "convert it to a NumPy array"),
    ],
)
def test_what_numpy_cannot_read_is_refused_with_a_remedy(given, remedy):
    with pytest.raises(TypeError, match=re.escape(remedy)):
        rw.solve(np.eye(3), given)


def test_a_vector_for_each_system_of_a_stack():
    A, b = np.eye(2) * np.arange(1.0, 4.0)[:, None, None], np.ones((3, 2))
    with pytest.raises(ValueError, match=re.escape("pass b[..., None]")):
        rw.solve(A, b)
    x = rw.solve(A, b[..., None])[..., 0]
    assert np.array_equal(x, b / np.arange(1.0, 4.0)[:, None])


def test_answers_are_arrays_to_numpy():
    A, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    for made, system in ((rw.solve, (A, b)), (rw.lstsq, (A, b)), (rw.solve, (A[None], b))):
        solution = made(*system, full_output=True)
        assert np.asarray(solution) is solution.x
        assert np.array(solution, dtype=np.float32).dtype == np.float32
        assert np.linalg.norm(A @ np.ravel(solution) - b) < 1e-15


@pytest.mark.parametrize("action", ["multigrid/sa:fp64-fp32-fp64-fp64", "ic/0:fp32-fp32-fp64-fp64"])
def test_no_columns_of_a_singular_system(action):
    """Nothing can be wrong with them, and nothing of A^-1 is known."""
    A = np.diag([1.0, *(2.0,) * 7, 1.0]) - np.eye(9, k=1) - np.eye(9, k=-1)
    assert rw.solve(sparse.csr_array(A), np.empty((9, 0)), policy=action).shape == (9, 0)


@pytest.mark.parametrize("points", [20, 54])  # the second is factorized by the supernodal engine
@pytest.mark.parametrize("columns", [1, 3])
def test_what_is_wrong_with_b_of_a_sparse_system_is_told_whatever_its_size(points, columns):
    A, b = poisson_2d(points).A, np.ones((points**2, columns))
    for wrong in (np.nan, np.inf):
        b[0, 0] = wrong
        with pytest.raises(ValueError, match="b has NaN or infinite entries"):
            rw.solve(A, b)
    b[0, 0] = 1e200
    with pytest.raises(rw.RoundwiseError, match="scale A or b"):
        rw.solve(A * 4e-200, b)
