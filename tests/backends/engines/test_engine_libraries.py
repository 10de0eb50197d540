"""What the optional sparse engines make of their libraries: calls, memory, threads, forks."""

import gc
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.algorithms.base import OutcomeStatus
from roundwise.backends import ENGINES, Status
from roundwise.backends.engines import amg, klu, mkl
from roundwise.backends.engines.contract import EngineError
from roundwise.problems import laplace_3d, poisson_2d

A = poisson_2d(12).A
REST = "fp64-fp64-fp64"


def needs(name):
    return pytest.mark.skipif(name not in ENGINES, reason=f"{name} is not installed")


with_mkl, with_klu, with_amg = needs("pardiso"), needs("klu"), needs("amg")
PARDISO = ("pardiso", "pardiso-cholesky", "pardiso-ldl")
each_pardiso = pytest.mark.parametrize("name", PARDISO)


@pytest.fixture
def phases(monkeypatch):
    """The phases of all calls of PARDISO, in turn."""
    seen = []
    original = mkl._call

    def spy(arguments, phase, *rest):
        seen.append(phase)
        return original(arguments, phase, *rest)

    monkeypatch.setattr(mkl, "_call", spy)
    return seen


@with_mkl
@each_pardiso
def test_pardiso_analyses_once_and_frees_everything(name, phases):
    symbolic = ENGINES[name].analyse(A, "metis")
    F = symbolic.factorize(A.data, rw.FP64)
    F.solve(np.ones(144))
    assert phases == [mkl.ANALYSE, mkl.FACTORIZE, mkl.SOLVE]
    del F
    assert phases[3:] == [mkl.RELEASE_FACTORS]  # the analysis waits for other values
    F = symbolic.factorize(2 * A.data, rw.FP64)
    np.testing.assert_allclose(A @ F.solve(np.ones(144)), 0.5, rtol=1e-12)
    assert phases[4:] == [mkl.FACTORIZE, mkl.SOLVE]
    G = symbolic.factorize(A.data.astype(np.float32), rw.FP32)  # F is in use, in another format
    assert phases[6:] == [mkl.ANALYSE, mkl.FACTORIZE]
    del symbolic, F, G
    gc.collect()
    assert phases.count(mkl.RELEASE_ALL) == phases.count(mkl.ANALYSE) == 2


@with_mkl
def test_pardiso_matches_anew_where_the_old_matching_fails():
    """Values that are large on the diagonal first, then on a cycle, with a zero diagonal."""
    n = 40
    cycle = np.roll(np.eye(n), 1, axis=1)
    pattern = sparse.csr_array(np.eye(n) + cycle)
    symbolic = ENGINES["pardiso"].analyse(pattern, "metis")
    for dense in (3 * np.eye(n) + cycle, 0 * np.eye(n) + 5 * cycle, np.eye(n) + 7 * cycle):
        rows = np.repeat(np.arange(n), 2)
        F = symbolic.factorize(dense[rows, pattern.indices], rw.FP64)
        assert F.replaced_pivots == 0
        np.testing.assert_allclose(
            dense @ F.solve(np.arange(n) + 1.0), np.arange(n) + 1, rtol=1e-13
        )
        del F


@with_mkl
def test_replaced_pivots_are_told():
    singular = sparse.csr_array(np.ones((3, 3)))
    F = ENGINES["pardiso"].analyse(singular, "mmd").factorize(singular.data, rw.FP64)
    assert F.replaced_pivots == 2
    assert F.to(rw.FP32).replaced_pivots == 2


@with_mkl
def test_an_analysis_that_cannot_avoid_replaced_pivots_is_kept(phases):
    singular = sparse.csr_array(np.ones((3, 3)))
    symbolic = ENGINES["pardiso"].analyse(singular, "mmd")
    for size in (1.0, 2.0, 3.0):
        assert symbolic.factorize(size * singular.data, rw.FP64).replaced_pivots == 2
    assert phases.count(mkl.ANALYSE) == 1


@with_mkl
def test_the_users_threads_of_mkl_stay_as_they_are(threads):
    library = mkl._library()
    local = library.MKL_Set_Num_Threads_Local
    before = local(3)
    try:
        threads(2)
        F = ENGINES["pardiso"].analyse(A, "metis").factorize(A.data, rw.FP64)
        F.solve(np.ones(144))
        assert local(3) == 3
    finally:
        local(before)


@with_mkl
def test_an_error_of_pardiso_is_named(monkeypatch):
    for code, error, text in ((-2, MemoryError, "memory"), (-5, EngineError, "internal error")):
        monkeypatch.setattr(mkl, "_call", lambda *arguments, code=code: code)
        with pytest.raises(error, match=text):
            ENGINES["pardiso"].analyse(A, "metis").factorize(A.data, rw.FP64)


@pytest.mark.parametrize(
    "file",
    ["libmkl_rt.so.2", "libmkl_rt.so.3", "libmkl_rt.so", "libmkl_rt.2.dylib", "mkl_rt.2.dll"],
)
def test_the_library_is_found_under_all_its_names(file):
    assert mkl.LIBRARY.fullmatch(file)
    assert not mkl.LIBRARY.fullmatch(file.replace("_rt", "_core"))


FORK = """
import os, sys, warnings
import numpy as np
import roundwise as rw
from roundwise.backends import ENGINES
from roundwise.problems import laplace_3d
rw.set_num_threads(2)
A = laplace_3d(12)
b = np.ones(A.shape[0])
symbolic = ENGINES[sys.argv[1]].analyse(A, ENGINES[sys.argv[1]].orderings[-1])
F = symbolic.factorize(A.data, rw.FP64)
x = F.solve(b)
warnings.simplefilter("ignore")  # of newer Pythons, about forks beside threads
child = os.fork()
if child == 0:
    fresh = symbolic.factorize(A.data, rw.FP64)
    right = all(abs(A @ G.solve(b) - 1).max() < 1e-6 for G in (F, fresh))
    os._exit(0 if right else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert abs(F.solve(b) - x).max() < 1e-10
sys.exit(code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize(
    "name", [name for name in ENGINES if name != "cholmod" and not name.startswith("pardiso")]
)
def test_a_forked_process_solves_too(name):
    """Not where the library has threads of its own (OpenMP): these may hang in the child."""
    subprocess.run([sys.executable, "-c", FORK, name], check=True, timeout=100)


@with_klu
def test_klu_analyses_once_and_frees_everything(monkeypatch):
    freed, analysed = [], []
    original, columns = klu._free, klu._Columns.__init__

    def spy(function, pointer):
        freed.append(function)
        original(function, pointer)

    def count(self, *arguments):
        analysed.append(arguments)
        columns(self, *arguments)

    monkeypatch.setattr(klu, "_free", spy)
    monkeypatch.setattr(klu._Columns, "__init__", count)
    symbolic = ENGINES["klu"].analyse(A, "amd")
    for size in (1.0, 2.0, 4.0):
        F = symbolic.factorize(size * A.data, rw.FP64)
        np.testing.assert_allclose(A @ F.solve(np.ones(144)), 1 / size, rtol=1e-12)
    assert len(analysed) == 1
    F.solve(np.ones(144), transpose=True)
    assert len(analysed) == 2  # of A'
    del symbolic, F
    gc.collect()
    assert sorted(freed) == ["klu_free_numeric"] * 4 + ["klu_free_symbolic"] * 2


@with_klu
def test_klu_tells_the_column_of_a_zero_pivot():
    dense = np.diag([1.0, 2.0, 0.0, 4.0])
    singular = sparse.csr_array(np.where(np.eye(4) > 0, 1.0, 0.0))
    with pytest.raises(rw.backends.ArithmeticFailure, match="column 2") as failure:
        ENGINES["klu"].analyse(singular, "amd").factorize(np.diagonal(dense).copy(), rw.FP64)
    assert (failure.value.status, failure.value.column) == (Status.ZERO_PIVOT, 2)


@with_klu
def test_another_layout_of_klu_is_refused(monkeypatch):
    monkeypatch.setitem(klu.DEFAULTS, "scale", 1)
    with pytest.raises(EngineError, match="unknown version; use superlu/colamd"):
        klu._library.__wrapped__()


@pytest.fixture
def cycles(monkeypatch):
    """Counts the multigrid cycles of all solves."""
    count = [0]
    make = amg.AMGFactors.__init__

    def counting(self, matrix):
        make(self, matrix)
        cycle = self._cycle

        class Counted:
            def matvec(self, r):
                count[0] += 1
                return cycle.matvec(r)

        self._cycle = Counted()

    monkeypatch.setattr(amg.AMGFactors, "__init__", counting)
    return count


@with_amg
def test_multigrid_takes_as_many_cycles_for_every_mesh(cycles):
    taken = []
    for matrix in (poisson_2d(20).A, poisson_2d(60).A, laplace_3d(8), laplace_3d(16)):
        F = ENGINES["amg"].analyse(matrix, "rs").factorize(matrix.data, rw.FP64)
        cycles[0], b = 0, np.ones(matrix.shape[0])
        r = b - matrix @ F.solve(b)
        assert np.linalg.norm(r) <= 1.01 * amg.TOLERANCE * np.linalg.norm(b)
        taken.append(cycles[0])
        assert F.entries < 4 * matrix.nnz
    assert max(taken) <= 12


@with_amg
def test_slow_multigrid_is_a_status_and_stops_early(cycles):
    """The biharmonic operator is positive definite, but no M-matrix."""
    square = sparse.csr_array(poisson_2d(40).A @ poisson_2d(40).A)
    square.sort_indices()
    b = np.random.default_rng(0).standard_normal(1600)
    F = ENGINES["amg"].analyse(square, "rs").factorize(square.data, rw.FP64)
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        F.solve(b)
    assert failure.value.status is Status.SLOW_CONVERGENCE
    assert amg.CHECK_AFTER <= cycles[0] < amg.MOST_ITERATIONS
    outcome = rw.VerifiedSolve().run(
        rw.LinearSystem(square, b), "amg/rs:fp64-fp64-fp64-fp64", "native"
    )
    assert outcome.status is OutcomeStatus.SLOW_CONVERGENCE
    assert outcome.status.failed
    assert "use a factorization" in outcome.reason


def beam(elements):
    """The stiffness matrix of a clamped beam: displacements and rotations, rows of both signs."""
    h = 1 / elements
    element = np.array(
        [
            [12, 6 * h, -12, 6 * h],
            [6 * h, 4 * h**2, -6 * h, 2 * h**2],
            [-12, -6 * h, 12, -6 * h],
            [6 * h, 2 * h**2, -6 * h, 4 * h**2],
        ]
    )
    K = np.zeros((2 * elements + 2, 2 * elements + 2))
    for i in range(elements):
        K[2 * i : 2 * i + 4, 2 * i : 2 * i + 4] += element
    return sparse.csr_array(K[2:, 2:])


@with_amg
def test_multigrid_says_nothing_about_matrices_that_it_is_not_for(capfd):
    K = beam(200)
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        ENGINES["amg"].analyse(K, "rs").factorize(K.data, rw.FP64).solve(np.ones(400))
    assert failure.value.status in (Status.SLOW_CONVERGENCE, Status.NOT_POSITIVE_DEFINITE)
    assert capfd.readouterr() == ("", "")


@with_amg
def test_multigrid_leaves_the_users_random_numbers_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    ENGINES["amg"].analyse(A, "rs").factorize(A.data, rw.FP64).solve(np.ones(144))
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("name", list(ENGINES))
def test_the_front_door_refines_with_every_engine(name):
    """One attempt of `solve` by each engine, in each of its formats, passes the gate."""
    matrix = poisson_2d(25).A
    problem = rw.LinearSystem.from_solution(matrix, np.linspace(1, 2, 625))
    for ordering in ENGINES[name].orderings:
        for fmt in ENGINES[name].formats:
            outcome = rw.VerifiedSolve().run(problem, f"{name}/{ordering}:{fmt}-{REST}", "native")
            assert outcome.converged
            assert outcome.nbe <= 25 * rw.FP64.unit_roundoff
            assert outcome.outer_iterations <= 4


def test_an_engine_without_a_format_is_unsuited_in_it():
    for name, engine in ENGINES.items():
        if rw.FP32 not in engine.formats:
            action = f"{name}/{engine.orderings[0]}:fp32-{REST}"
            outcome = rw.VerifiedSolve().run(rw.LinearSystem(A, np.ones(144)), action, "native")
            assert outcome.status is OutcomeStatus.UNSUITED


def test_importing_roundwise_imports_no_library_of_an_engine():
    code = "import sys, roundwise; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "roundwise" in loaded
    assert not {"pyamg", "PyKLU", "sksparse", "pymetis"} & set(loaded)
