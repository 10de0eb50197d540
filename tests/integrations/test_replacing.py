"""Programs whose calls of NumPy's and SciPy's solvers go through Roundwise."""

import pickle
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest
import scipy.linalg
from scipy import sparse
from scipy.sparse.linalg import SuperLU

import roundwise as rw
from roundwise._inside import INSIDE

RNG = np.random.default_rng(35)
A = RNG.standard_normal((80, 80)) + 20 * np.eye(80)
b = RNG.standard_normal(80)
GRID = sparse.csc_array(
    sparse.diags_array(
        [-np.ones(2999), 2.5 * np.ones(3000), -np.ones(2999)], offsets=[-1, 0, 1], format="csc"
    )
)
SOLVE = np.linalg.solve  # what other modules have imported by name
rw.solve(A, b)  # until that is loaded, only a program that solves a lot asks for it


def by_ours(calls):
    return {one.name.rpartition(".")[2]: (one.calls, one.ours) for one in calls.places}


def test_solves_go_through_ours_and_come_back():
    before = np.linalg.solve
    with rw.replacing_numpy() as calls:
        assert np.linalg.solve is not before
        x = np.linalg.solve(A, b)
        y = scipy.linalg.solve(A, b, assume_a="gen", lower=True)
        z = sparse.linalg.spsolve(GRID, np.ones(3000))
    assert np.linalg.solve is before
    np.testing.assert_array_equal(x, rw.solve(A, b))
    np.testing.assert_array_equal(y, rw.solve(A, b, assume_a="gen"))
    np.testing.assert_array_equal(z, rw.solve(GRID, np.ones(3000)))
    told = str(calls)
    assert "test_replacing.py:" in told
    assert "1 of 1" in told


def test_names_that_modules_have_imported_are_replaced_and_put_back():
    before = SOLVE
    with rw.replacing_numpy():
        assert SOLVE is np.linalg.solve
        assert SOLVE is not before
        with rw.replacing_numpy():
            inner = np.linalg.solve
        assert np.linalg.solve is inner
    assert SOLVE is before is np.linalg.solve


@pytest.mark.parametrize("name", ["lstsq", "scipy lstsq"])
def test_least_squares_is_a_tuple(name):
    T, c = RNG.standard_normal((100, 30)), RNG.standard_normal((100, 2))
    theirs = np.linalg.lstsq(T, c) if name == "lstsq" else scipy.linalg.lstsq(T, c)
    with rw.replacing_numpy() as calls:
        module = np.linalg if name == "lstsq" else scipy.linalg
        first, whole = module.lstsq(T, c)[0], module.lstsq(T, c)
        assert by_ours(calls)["lstsq"] == (2, 2)
        T *= 2  # what was not read yet is of the numbers that were passed
        x, residuals, rank, s = whole
    np.testing.assert_allclose(first, theirs[0], rtol=1e-10)
    for mine, other in zip((x, residuals, rank, s), theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert isinstance(whole, tuple)
    assert len(whole) == 4
    assert type(pickle.loads(pickle.dumps(whole))) is tuple


def test_where_singular_values_are_read_the_original_goes_on():
    T, c = RNG.standard_normal((100, 30)), RNG.standard_normal(100)
    with rw.replacing_numpy() as calls:
        for _ in range(3):
            _, _, _, s = np.linalg.lstsq(T, c)
    assert by_ours(calls)["lstsq"] == (3, 1)
    assert s.shape == (30,)


def test_dense_factors():
    n = 1000
    M, c = RNG.standard_normal((n, n)), RNG.standard_normal(n)
    P = M @ M.T + n * np.eye(n)
    true = scipy.linalg.lu_factor(M)
    with rw.replacing_numpy() as calls:
        factors = scipy.linalg.lu_factor(M)
        x, xt = scipy.linalg.lu_solve(factors, c), scipy.linalg.lu_solve(factors, c, 1)
        definite = scipy.linalg.cho_factor(P, lower=True)
        y = scipy.linalg.cho_solve(definite, c)
        assert by_ours(calls)["lu_factor"] == by_ours(calls)["cho_factor"] == (1, 1)
        np.testing.assert_array_equal(factors[0], true[0])
        assert definite[1]
        assert [one.ndim for one in factors] == [2, 1]
        with pytest.raises(np.linalg.LinAlgError):
            scipy.linalg.cho_factor(-P)
    for given, matrix in ((x, M), (xt, M.T), (y, P)):
        assert abs(matrix @ given - c).max() < 1e-11 * abs(matrix).sum(1).max() * abs(given).max()


def test_factors_that_serve_many_solves_are_the_originals_next_time():
    M, c = RNG.standard_normal((500, 500)), RNG.standard_normal(500)
    with rw.replacing_numpy() as calls:
        for _ in range(2):
            factors = scipy.linalg.lu_factor(M)
            for _ in range(10):
                scipy.linalg.lu_solve(factors, c)
    assert by_ours(calls)["lu_factor"] == (2, 1)


def test_sparse_factors():
    c = np.ones(3000)
    true = sparse.linalg.splu(GRID)
    with rw.replacing_numpy() as calls:
        F = sparse.linalg.splu(GRID)
        x, X, xt = F.solve(c), F.solve(np.ones((3000, 2))), F.solve(c, "T")
        solve = sparse.linalg.factorized(GRID)
        y = solve(c)
        assert by_ours(calls)["splu"] == by_ours(calls)["factorized"] == (1, 1)
        assert F.nnz == true.nnz
        assert F.shape == true.shape
        np.testing.assert_array_equal(F.perm_c, true.perm_c)
        assert not isinstance(sparse.linalg.splu(GRID, permc_spec="NATURAL").solve, type(None))
        assert isinstance(sparse.linalg.splu(GRID, permc_spec="NATURAL"), SuperLU)
    for found in (x, X[:, 0], xt, y):
        np.testing.assert_allclose(found, true.solve(c), rtol=1e-12)


def hilbert(n):
    return scipy.linalg.hilbert(n)


CASES = {
    "singular": (np.zeros((60, 60)), np.ones(60)),
    "NaN": (np.full((60, 60), np.nan), np.ones(60)),
    "infinite": (np.diag([np.inf] * 60), np.ones(60)),
    "ill-conditioned": (hilbert(60), RNG.standard_normal(60)),
    "not square": (np.ones((60, 61)), np.ones(60)),
    "rows": (A, np.ones(60)),
    "integers": (np.diag(np.arange(1, 61)), np.arange(60)),
    "lists": ([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0]),
    "text": (A, "text"),
    "half": (A.astype(np.float16), b.astype(np.float16)),
    "subclass": (np.rec.array(A), b),
    "masked": (np.ma.masked_array(A), b),
    "other types": (A.astype(np.float32), b),
    "empty": (np.ones((0, 0)), np.ones(0)),
    "stack": (np.stack([A, A.T]), b),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("module", [np.linalg, scipy.linalg], ids=["numpy", "scipy"])
def test_what_ours_refuses_is_as_it_was(module, case):
    """The original's result, its type, its errors and its warnings."""

    def outcome():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                x = module.solve(*CASES[case])
            except Exception as error:
                return type(error), str(error), [one.category for one in seen]
        return type(x), x.dtype, x.tobytes(), [one.category for one in seen]

    theirs = outcome()
    with rw.replacing_numpy():
        assert outcome() == theirs
    assert not INSIDE.replaced


def test_wrong_arguments_are_the_functions_own_error():
    with rw.replacing_numpy():
        with pytest.raises(TypeError):
            np.linalg.solve(A)
        with pytest.raises(TypeError):
            scipy.linalg.solve(A, b, nonsense=1)
        assert np.linalg.inv(A).shape == A.shape
        assert np.linalg.det(np.eye(2)) == 1.0


def test_a_place_that_is_often_refused_goes_on_with_the_original():
    H, c = hilbert(60), RNG.standard_normal(60)
    with rw.replacing_numpy() as calls, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            np.linalg.solve(H, c)
    (place,) = calls.places
    assert (place.calls, place.ours, place.refused) == (20, 0, 3)


def test_small_calls_are_counted_in_sixteens():
    with rw.replacing_numpy() as calls:
        for _ in range(160):
            np.linalg.solve(A[:5, :5], b[:5])
    (place,) = calls.places
    assert (place.calls, place.ours) == (160, 0)


def test_check_compares_every_answer():
    with rw.replacing_numpy(check=True) as calls:
        for _ in range(10):
            np.linalg.solve(A, b)
    (place,) = calls.places
    assert len(place.ratios) == place.ours == 10
    assert 0 <= place.difference < 1e-12
    assert "difference" in str(calls)


def test_threads():
    found = {}

    def work(i):
        found[i] = [np.linalg.solve(A + i * np.eye(80), b) for _ in range(20)]

    with rw.replacing_numpy() as calls:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert sum(one.calls for one in calls.places) == 80
    for i, given in found.items():
        np.testing.assert_array_equal(given[0], rw.solve(A + i * np.eye(80), b))


PROGRAM = """
import subprocess, sys
from multiprocessing import get_context
import numpy as np
from numpy.linalg import solve

def work(i):
    return float(solve(np.eye(100) * (i + 1), np.ones(100))[0])

if __name__ == "__main__":
    print(sys.argv[1:], __name__, work(0), flush=True)
    for method in {methods}:
        with get_context(method).Pool(1) as pool:
            print(pool.map(work, [1]), flush=True)
            pool.close()
            pool.join()
    child = "import numpy as np; print(np.linalg.solve(4 * np.eye(100), np.ones(100))[0])"
    subprocess.run([sys.executable, "-c", child], check=True)
    sys.exit(3)
"""


def run(*arguments, **options):
    command = [sys.executable, "-m", "roundwise", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_run(tmp_path):
    methods = ["fork", "spawn"] if sys.platform == "linux" else ["spawn"]
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(methods=methods))
    done = run("--check", script, "one", "--two")
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "['one', '--two'] __main__ 1.0"
    assert lines[1:-1] == ["[0.5]"] * len(methods)
    assert lines[-1] == "0.25"
    (line,) = (one for one in done.stderr.splitlines() if "program.py:8" in one)
    assert f"{1 + len(methods)} of {1 + len(methods)}" in line
    assert "<string>:1" in done.stderr
    assert "gained" in done.stderr or "lost" in done.stderr


def test_run_of_a_module_and_of_what_does_not_solve(tmp_path):
    (tmp_path / "quiet.py").write_text(
        textwrap.dedent("""
            import sys
            assert "numpy" not in sys.modules and "scipy" not in sys.modules
            raise ValueError("as it was")
        """)
    )
    done = run("-m", "quiet", cwd=tmp_path)
    assert done.returncode == 1
    assert "ValueError: as it was" in done.stderr
    assert "called none" in done.stderr
    assert run("--help").returncode == 0
    assert run().returncode == 2
    assert run("--nonsense").returncode == 2
    assert run(tmp_path / "no such file").returncode == 2


class Shell:
    """What IPython offers extensions."""

    def __init__(self):
        self.user_ns, self.magics = {}, {}

    def register_magic_function(self, function, kind, name):
        self.magics[name] = function


def test_notebooks(capsys):
    shell, before = Shell(), np.linalg.solve
    rw.load_ipython_extension(shell)
    try:
        np.linalg.solve(A, b)
        shell.magics["roundwise"]("")
        assert "numpy.linalg.solve" in capsys.readouterr().out
    finally:
        rw.unload_ipython_extension(shell)
    assert np.linalg.solve is before
