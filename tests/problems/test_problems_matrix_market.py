"""Matrix Market files: round trips, storage schemes, errors, real matrices."""

import csv
import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pyamg.gallery
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from roundwise._kernels import read_numbers
from roundwise.problems import LinearSystem, high_contrast_2d, random_sparse_spd, read_matrix_market
from roundwise.problems.matrix_market import reference_solution

MATRICES = Path(
    os.environ.get("ROUNDWISE_MATRICES", Path(__file__).parents[3] / "shared" / "matrices")
)
needs_matrices = pytest.mark.skipif(
    not (MATRICES / "index.csv").is_file(),
    reason=f"no matrices in {MATRICES}; set ROUNDWISE_MATRICES to their folder",
)


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_sparse_round_trip(tmp_path, suffix, symmetry):
    A = random_sparse_spd(40, 0.05, rng=0).A
    plain = tmp_path / "plain.mtx"
    scipy.io.mmwrite(plain, A, symmetry=symmetry, precision=17)
    path = tmp_path / f"spd{suffix}"
    content = plain.read_bytes()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    problem = read_matrix_market(path)
    assert problem.is_sparse
    assert problem.name == "spd"
    expected = LinearSystem(A, problem.b, problem.x_true)
    assert problem.fingerprint == expected.fingerprint
    assert read_matrix_market(str(path)).fingerprint == problem.fingerprint


def test_wide_ranges_survive_a_round_trip(tmp_path):
    A = high_contrast_2d(6, 1e13, rng=0).A * 1e-200
    path = tmp_path / "wide.mtx"
    scipy.io.mmwrite(path, A, precision=17)
    assert (read_matrix_market(path).A != A).nnz == 0


def test_dense_files_stay_dense(tmp_path):
    A = np.random.default_rng(0).standard_normal((5, 5))
    path = tmp_path / "dense.mtx"
    scipy.io.mmwrite(path, A, precision=17)
    problem = read_matrix_market(path)
    assert not problem.is_sparse
    np.testing.assert_array_equal(problem.A, A)


def test_storage_schemes_by_hand(tmp_path):
    head = "%%MatrixMarket matrix "
    symmetric = write(
        tmp_path / "s.mtx",
        head + "coordinate real symmetric\n% a comment\n2 2 2\n1 1 3.5\n2 1 -1e0\n",
    )
    np.testing.assert_array_equal(
        read_matrix_market(symmetric).A.toarray(), [[3.5, -1.0], [-1.0, 0.0]]
    )
    skew = write(tmp_path / "k.mtx", head + "coordinate real skew-symmetric\n2 2 1\n2 1 4\n")
    np.testing.assert_array_equal(read_matrix_market(skew).A.toarray(), [[0, -4], [4, 0]])
    integer = write(tmp_path / "i.mtx", head + "coordinate integer general\n1 1 1\n1 1 7\n")
    assert read_matrix_market(integer).A.dtype == np.float64
    # array files run down the columns, symmetric ones hold the lower triangle
    array = write(tmp_path / "a.mtx", head + "array real symmetric\n2 2\n1\n2\n3\n")
    np.testing.assert_array_equal(read_matrix_market(array).A, [[1, 2], [2, 3]])


def test_reference_solution_exposes_errors():
    x = reference_solution(1000)
    assert np.all((np.abs(x) >= 1) & (np.abs(x) < 2))
    assert np.all(x[::2] < 0)
    assert np.all(x[1::2] > 0)
    assert np.unique(np.abs(x)).size == 1000  # permutations show
    assert np.mean(x == x.astype(np.float32)) < 0.01  # so does rounding
    np.testing.assert_array_equal(reference_solution(10), x[:10])


def test_right_hand_side_is_the_product_with_the_reference_solution(tmp_path):
    path = tmp_path / "a.mtx"
    scipy.io.mmwrite(path, sp.diags_array([1.0, 2.0, 4.0]))
    problem = read_matrix_market(path)
    np.testing.assert_array_equal(problem.x_true, reference_solution(3))
    np.testing.assert_array_equal(problem.b, [1, 2, 4] * reference_solution(3))


@pytest.mark.parametrize("store", [np.array, sp.coo_array])
def test_right_hand_side_file(tmp_path, store):
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.identity(3))
    scipy.io.mmwrite(tmp_path / "b.mtx", store([[1.0], [0.0], [3.0]]))
    problem = read_matrix_market(tmp_path / "a.mtx", tmp_path / "b.mtx")
    np.testing.assert_array_equal(problem.b, [1, 0, 3])
    assert problem.x_true is None
    assert problem.meta["rhs"] == "b.mtx"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 2\n", "is complex"),
        ("%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n", "pattern without"),
        ("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n", "2 x 3 matrix"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n", "no readable"),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 nan\n2 2 1\n",
            "NaN or infinite",
        ),
        ("1 2 3\n", "no readable Matrix Market file"),
        ("", "no readable Matrix Market file"),
    ],
)
def test_unusable_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_matrix_market(write(tmp_path / "bad.mtx", text))


EDGES = [
    *("0", "-0", "-0.0", "+1", "1.", ".5", "00012", "1E+05", "0e999999", "0.0e-400", "9" * 5000),
    *("1e999", "-1e999", "1e-999", "1" * 400 + "e-400", "0." + "0" * 400 + "1e400"),
    *("4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324"),
    *("1.7976931348623157e308", "1.7976931348623159e308"),
    *("9007199254740993", "9007199254740992.99999", "999999999999999e22", "1e22", "1e23"),
    *("inf", "-Infinity"),
]


def bits_of(text, count):
    numbers = np.empty(count)
    assert read_numbers(text.encode(), numbers) == count
    return numbers.view(np.int64).tolist()


@pytest.mark.parametrize("text", EDGES)
def test_numbers_at_the_edges_are_read_as_python_reads_them(text):
    assert bits_of(f" {text}\n", 1) == [struct.unpack("q", struct.pack("d", float(text)))[0]]


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.integers(0, 25), st.sampled_from("efgr"))))
def test_numbers_are_read_as_python_reads_them(cases):
    texts = [repr(x) if kind == "r" else f"{x:.{digits}{kind}}" for x, digits, kind in cases]
    expected = np.array([float(text) for text in texts], dtype=np.float64)
    assert bits_of(" \r\n\t".join(texts), len(texts)) == expected.view(np.int64).tolist()


NO_NUMBERS = [
    *("1-2", "1e", "e5", "1e+", "--1", "+", "-", ".", "1..2", "0x10", "1_0", "1d5", "1,5", "nano"),
    *("in", "1\0", "\0", "\u00e9", "1 2 %", "1e5.5", "infinit", "1 \xff"),
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_refused(text):
    assert read_numbers(text.encode(), np.empty(4)) == -1


def test_more_numbers_than_there_is_room_for_are_counted():
    numbers = np.zeros(3)
    assert read_numbers(b"1 2 3 4 5", numbers[:2]) == 5
    assert numbers.tolist() == [1, 2, 0]
    assert read_numbers(b" \n", numbers) == read_numbers(b"", numbers) == 0


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.mtx does not exist"):
        read_matrix_market(tmp_path / "nowhere.mtx")
    damaged = tmp_path / "damaged.mtx.gz"
    damaged.write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="no readable"):
        read_matrix_market(damaged)


def test_right_hand_sides_that_do_not_fit(tmp_path):
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.identity(3))
    for shape in ((2, 1), (3, 2), (1, 3)):
        scipy.io.mmwrite(tmp_path / "b.mtx", np.ones(shape))
        with pytest.raises(ValueError, match="pass one column with 3 rows"):
            read_matrix_market(tmp_path / "a.mtx", rhs=tmp_path / "b.mtx")


@pytest.mark.parametrize("name", ["airfoil", "bar", "recirc_flow", "unit_square"])
def test_pyamg_examples_round_trip(tmp_path, name):
    A = pyamg.gallery.load_example(name)["A"]
    path = tmp_path / f"{name}.mtx"
    scipy.io.mmwrite(path, sp.coo_array(A), precision=17)
    problem = read_matrix_market(path)
    assert problem.fingerprint == LinearSystem(A, problem.b, problem.x_true).fingerprint
    bound = 100 * 2.0**-53 * (abs(problem.A) @ np.abs(problem.x_true))
    assert np.all(np.abs(problem.A @ problem.x_true - problem.b) <= bound)


@needs_matrices
def test_real_matrices_agree_with_their_index():
    with open(MATRICES / "index.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 100
    for row in rows:
        problem = read_matrix_market(MATRICES / row["file"])
        A = problem.A
        assert (problem.name, problem.n) == (row["name"], int(row["n"]))
        assert np.max(np.abs(A.data)) == pytest.approx(float(row["max_abs"]), rel=1e-3)
        norm_inf = np.max(np.asarray(abs(A).sum(axis=1)))
        assert norm_inf == pytest.approx(float(row["norm_inf"]), rel=1e-4)
        # the index counts stored entries, among them some explicit zeros
        assert A.nnz <= int(row["nnz"])
        if row["symmetric"] == "True":
            assert (A != A.T).nnz == 0
