"""What is known of an answer is computed when it is read, and changes neither x nor the warning."""

import copy
import gc
import pickle
import threading
import warnings
import weakref
from fractions import Fraction

import numpy as np
import pytest
import rational
from scipy import sparse

import roundwise as rw
from roundwise.backends.native import exact
from roundwise.problems import poisson_2d, randsvd
from roundwise.solver import inputs
from roundwise.solver.trust import examining
from roundwise.solver.trust.examining import Examiner, knowledge_of
from roundwise.solver.trust.knowledge import ErrorEstimate, Knowledge, SystemChanged, worst_of

N = 60
RNG = np.random.default_rng(0)
BADLY_SCALED = 10.0 ** RNG.uniform(-30, 30, N)[:, None] * randsvd(N, 1e3, rng=1).A


def square(n, kappa, rng=0):
    return randsvd(n, kappa, rng=rng).A.copy()


SYSTEMS = {
    "small": (square(5, 10.0), RNG.standard_normal(5)),
    "medium": (square(300, 1e4), RNG.standard_normal(300)),
    "fortran": (np.asfortranarray(square(150, 1e4)), RNG.standard_normal(150)),
    "ill-conditioned": (square(N, 1e14), RNG.standard_normal(N)),
    "larger and ill-conditioned": (square(300, 1e14), RNG.standard_normal(300)),
    "badly scaled": (BADLY_SCALED, RNG.standard_normal(N)),
    "huge": (square(N, 1e3) * 2.0**700, RNG.standard_normal(N) * 2.0**-200),
    "float32": (square(N, 1e2).astype("f4"), RNG.standard_normal(N).astype("f4")),
    "many columns": (square(N, 1e3), RNG.standard_normal((N, 37))),
    "one column": (square(N, 1e3), RNG.standard_normal((N, 1))),
    "sparse": (poisson_2d(20).A, RNG.standard_normal(400)),
    "sparse columns": (poisson_2d(20).A, RNG.standard_normal((400, 5))),
    "complex": (square(N, 1e3) + 1j * square(N, 1e3, 5), RNG.standard_normal(N) * (1 + 2j)),
    "complex b": (square(N, 1e3), RNG.standard_normal((N, 2)) * (1 + 2j)),
    "complex sparse": (poisson_2d(10).A * (1 + 1j), RNG.standard_normal(100)),
}


def observed(call):
    """The answer of a call, or the reason of its failure, and the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            answer = call()
        except rw.SolveFailed as failure:
            answer = failure.reason
    return answer, [str(one.message) for one in found]


@pytest.mark.parametrize("accuracy", ["backward", "forward"])
@pytest.mark.parametrize("policy", ["default", "fp32", "fp64"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_full_output_changes_neither_x_nor_the_warning(name, policy, accuracy):
    A, b = SYSTEMS[name]
    F = rw.factor(A, policy=policy, accuracy=accuracy)
    plain, warned = observed(lambda: F.solve(b))
    F = rw.factor(A, policy=policy, accuracy=accuracy)
    full, also_warned = observed(lambda: F.solve(b, full_output=True))
    assert warned == also_warned
    if isinstance(plain, str):
        assert full == plain
        return
    assert full.action == str(F.action)
    assert full.x.tobytes() == plain.tobytes()
    assert full.condition >= 1
    assert full.forward_error_bound >= 0
    assert full.x.tobytes() == plain.tobytes()


@pytest.mark.parametrize("policy", ["fp32", "fp64"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_solve_does_the_same(name, policy):
    A, b = SYSTEMS[name]
    plain, warned = observed(lambda: rw.solve(A, b, policy=policy))
    full, also_warned = observed(lambda: rw.solve(A, b, policy=policy, full_output=True))
    assert warned == also_warned
    if isinstance(plain, str):
        assert full == plain
    else:
        assert full.x.tobytes() == plain.tobytes()


def test_nothing_is_examined_before_it_is_read(monkeypatch):
    calls = []
    examined = Examiner.examined
    monkeypatch.setattr(Examiner, "examined", lambda *a: calls.append(1) or examined(*a))
    for A, b in (SYSTEMS["small"], SYSTEMS["medium"], SYSTEMS["many columns"], SYSTEMS["sparse"]):
        solution = rw.solve(A, b, full_output=True)
        assert "accepted" in repr(solution)
        assert solution.seconds == sum(solution.timings.values())
        assert not calls
        assert solution.digits > 0
        assert solution.condition > 1
        assert solution.explain()
        assert solution._repr_html_()
        assert calls == [1]  # and then kept
        calls.clear()


CHANGES = {
    "one entry": lambda A: A.__setitem__((3, 2), A[3, 2] * (1 + 1e-12)),
    "all entries": lambda A: A.__imul__(2.0),
    "another matrix": lambda A: A.__setitem__(slice(None), np.eye(len(A))),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [N, 300])
@pytest.mark.parametrize("change", CHANGES)
def test_reading_after_a_change_of_a_says_so(change, n, order):
    A, b = np.array(square(n, 1e3), order=order), np.ones(n)
    solution = rw.solve(A, b, full_output=True)
    x = solution.x.copy()
    CHANGES[change](A)
    for name in ("condition", "forward_error_bound", "digits", "error_kind", "error_source"):
        with pytest.raises(SystemChanged, match="has changed since the solve"):
            getattr(solution, name)
    assert "has changed since the solve" in solution.explain()
    assert "has changed since the solve" in solution._repr_html_()
    with pytest.raises(SystemChanged):
        copy.deepcopy(solution).condition  # noqa: B018
    np.testing.assert_array_equal(solution.x, x)


def test_so_it_is_with_sparse_and_complex_ones():
    grid = poisson_2d(30)
    A, Z = sparse.csr_array(grid.A, copy=True), square(N, 10.0) + 1j * np.eye(N)
    for matrix, entries in ((A, A.data), (Z, Z)):
        solution = rw.solve(matrix, np.ones(matrix.shape[0]), full_output=True)
        entries *= 1.5
        with pytest.raises(ValueError, match="factor"):
            solution.condition  # noqa: B018


def test_what_was_read_before_a_change_is_kept():
    A, b = square(N, 1e3), np.ones(N)
    solution = rw.solve(A, b, full_output=True)
    known = solution.condition, solution.forward_error_bound
    A[:] = 0
    assert (solution.condition, solution.forward_error_bound) == known


def test_a_change_of_b_does_not_matter_where_b_is_copied():
    A, b = square(300, 1e3), np.ones(300)
    solution = rw.solve(A, b, policy="fp32", full_output=True)
    b[:] = 0
    assert solution.digits > 10


def test_a_change_of_x_is_noticed():
    A = square(300, 1e3)
    solution = rw.solve(A, np.ones(300), full_output=True)
    solution.x[7] *= 1 + 1e-9
    with pytest.raises(SystemChanged):
        solution.digits  # noqa: B018


def test_a_factorization_has_a_copy_of_a():
    A, b = square(N, 1e3), np.ones(N)
    F = rw.factor(A)
    solution = F.solve(b, full_output=True)
    A[:] = 0
    F.refactor(np.eye(N))
    F.solve(b)
    assert solution.digits > 10  # the factors are those it was solved with
    assert solution.condition > 100


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 3, 9])
@pytest.mark.parametrize("order", ["C", "F"])
def test_threads_do_not_make_a_system_look_changed(order, columns, threads):
    A = np.array(square(200, 1e3), order=order)
    A = np.block([[A, A], [np.zeros_like(A), A]]) if order == "C" else np.asfortranarray(A)
    solution = rw.solve(A, np.ones((len(A), columns)), policy="fp32", full_output=True)
    rw.set_num_threads(threads)
    assert solution.condition > 100


def test_a_pass_that_also_rounds_gives_the_same_norm():
    A = RNG.standard_normal((1100, 1100))  # its copy in FP32 is made with its norm
    solution = rw.solve(A, np.ones(1100), policy="fp32", full_output=True)
    assert solution.condition > 100


def test_gmres_on_several_columns_is_known_too():
    A = square(100, 1e6, 2)
    B = RNG.standard_normal((100, 6))
    solution = rw.solve(A, B, policy="fp16", full_output=True)
    assert solution.digits > 5


def test_blocks_of_columns_are_read_together(monkeypatch):
    A, B = square(N, 1e3), RNG.standard_normal((N, 100))
    monkeypatch.setattr(inputs, "BLOCK", 32 * N)
    F = rw.factor(A, policy="lu:fp64-fp64-fp64-fp64")
    solution = F.solve(B, full_output=True)
    assert len(solution.attempts) == 4
    worst = max(
        rw.factor(A).solve(B[:, [j]], full_output=True).forward_error_bound for j in range(100)
    )
    assert worst / 4 < solution.forward_error_bound < 4 * worst
    assert solution.error_kind == "bound"


def test_the_worst_of_several_estimates():
    proved = ErrorEstimate(1e-9, True, "proved", 10.0)
    rough = ErrorEstimate(1e-3, False, "rough", 5.0)
    nothing = ErrorEstimate(np.nan, False, "nothing", 1.0)
    assert worst_of([proved, rough]) == ErrorEstimate(1e-3, False, "rough", 10.0)
    assert worst_of([rough, nothing]).source == "nothing"
    assert worst_of([proved, proved]) == proved


def test_copies_are_read_first():
    A, b = square(N, 1e3), np.ones(N)
    solution = rw.solve(A, b, full_output=True)
    sent = pickle.dumps(solution)
    A[:] = 0
    again = pickle.loads(sent)
    assert again.condition == solution.condition > 100
    assert again.forward_error_bound == solution.forward_error_bound
    assert len(sent) < 20_000  # without A and the factors


def test_factors_are_released_when_all_is_known_or_nobody_can_ask():
    released = []

    def knowledge():
        made = Knowledge(lambda: ErrorEstimate(0.0, True, "", 1.0))
        made.releases(lambda: released.append(1))
        return made

    one = knowledge()
    assert not released
    assert one.estimate.error == 0
    assert released == [1]
    assert one.estimate.error == 0
    del one
    assert released == [1]
    knowledge()
    assert released == [1, 1]
    Knowledge.known(ErrorEstimate(0.0, True, "", 1.0)).releases(lambda: released.append(1))
    assert released == [1, 1, 1]


def test_a_solution_that_was_read_keeps_no_factors():
    A, b = square(300, 1e3), np.ones(300)
    solution = rw.solve(A, b, policy="lu:fp64-fp64-fp64-fp64", full_output=True)
    found = [one for one in gc.get_objects() if isinstance(one, examining.Examined)]
    kept = [weakref.ref(one.factors) for one in found]
    del found
    assert any(ref() is not None for ref in kept)
    assert solution.digits > 5
    gc.collect()
    assert all(ref() is None for ref in kept)


def test_threads_may_read_the_same_solution():
    A, b = square(400, 1e5), np.ones(400)
    solution = rw.solve(A, b, policy="fp32", full_output=True)
    begin, found = threading.Barrier(4), []

    def read():
        begin.wait()
        found.append(solution.condition)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [solution.condition] * 4


def express(A, b):
    """x by NumPy, and what is known of it."""
    x = np.asfortranarray(np.linalg.solve(A, b))

    def measured():
        return exact.backward_error(A, x, np.asfortranarray(b))

    return x, knowledge_of(A, b, x, measured(), measured)


def test_the_x_of_a_compiled_call_is_examined_afresh():
    rng = np.random.default_rng(3)
    for n in (1, 2, 7, 20):
        A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
        x, knowledge = express(A, b)
        error = rational.relative_error(x[:, None], rational.solved(A, b[:, None]))
        assert error <= Fraction(knowledge.estimate.error) <= max(2 * error, Fraction(1, 2**52))
        assert knowledge.estimate.is_proved
    A, B = square(300, 1e3), rng.standard_normal((300, 3))
    _, knowledge = express(A, B)
    assert 1e-16 < knowledge.estimate.error < 1e-11
    assert 1e3 < knowledge.estimate.condition < 1e6


@pytest.mark.parametrize("changed", ["A", "b", "x"])
def test_its_changes_are_noticed(changed):
    A, b = square(N, 1e3), np.ones(N)
    x, knowledge = express(A, b)
    {"A": A, "b": b, "x": x}[changed][3] *= 1 + 1e-9
    with pytest.raises(SystemChanged):
        knowledge.estimate  # noqa: B018


@pytest.mark.parametrize("name", SYSTEMS)
def test_all_kinds_of_systems_can_be_examined_afresh(name):
    A, b = SYSTEMS[name]
    solution, _ = observed(lambda: rw.solve(A, b, policy="fp64", full_output=True))
    if isinstance(solution, str):
        pytest.skip(solution)
    afresh = knowledge_of(A, b, solution.x, 0.0, lambda: 0.0).estimate
    assert afresh.error == pytest.approx(solution.forward_error_bound, rel=0.5)
    assert afresh.kind == solution.error_kind
    assert afresh.condition == pytest.approx(solution.condition, rel=0.5)
