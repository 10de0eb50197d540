"""`VerifiedSolve`: the front door as an algorithm, in native and in emulated arithmetic."""

import math
from dataclasses import replace

import exact
import numpy as np
import pytest
from hard_systems import spd, wilkinson
from scipy import sparse

import roundwise as rw
from roundwise.actions import Action, list_space
from roundwise.algorithms import Shared
from roundwise.backends import NativeBackend, get_backend, native_formats
from roundwise.backends.native.dense import is_symmetric
from roundwise.methods import METHODS
from roundwise.outcomes import OutcomeTable, fill
from roundwise.problems import LinearSystem, convection_diffusion_2d, poisson_2d, randsvd
from roundwise.rewards import ClimbReward, ProblemFacts

U = 2.0**-53
CONVERGED = rw.OutcomeStatus.CONVERGED
UNSUITED = rw.OutcomeStatus.UNSUITED
ALGORITHM = rw.VerifiedSolve()
REST = "fp64-fp64-fp64"
rng = np.random.default_rng


def system(A, seed=0):
    return LinearSystem(A, rng(seed).standard_normal(A.shape[0]))


GAUSSIAN = rng(1).standard_normal((40, 40))
DENSE = {
    "gaussian": system(GAUSSIAN),
    "spd": system(spd(40, 1e4)),
    "ill-conditioned": system(randsvd(40, 1e13, 3, rng=0).A),
    "graded": system(GAUSSIAN * np.logspace(0, -200, 40)),
    "tiny": system(2.0**-1000 * GAUSSIAN),
    "huge": system(1e290 * GAUSSIAN),
    "huge spd": system(2.0**900 * spd(40, 1e4)),
    "growth": system(wilkinson(80)),
    "one unknown": system(np.array([[-3.0]])),
    "zero b": LinearSystem(GAUSSIAN, np.zeros(40)),
}
SPARSE = {
    "poisson": poisson_2d(7),
    "convection": convection_diffusion_2d(7, 0.1, (3.0, -2.0)),
    "triangle": system(sparse.csr_array(np.triu(GAUSSIAN) + 5 * np.eye(40))),
    "tiny": system(sparse.csr_array(1e-290 * poisson_2d(6).A)),
    "graded": system(sparse.csr_array(poisson_2d(6).A * np.logspace(0, 150, 36)[:, None])),
}
PROBLEMS = {f"{name}, dense": p for name, p in DENSE.items()}
PROBLEMS |= {f"{name}, sparse": p for name, p in SPARSE.items()}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("backend", ["operation", "storage", "native"])
def test_what_converged_has_passed_the_gate(name, backend):
    """Every action, whatever it comes to; FP64's LU converges always."""
    problem, backend = PROBLEMS[name], get_backend(backend)
    methods = backend.methods(problem.is_sparse)
    formats = [fmt for fmt in native_formats() if backend.supports(fmt, problem.is_sparse)]
    first = [Action((fmt, rw.FP64, rw.FP64, rw.FP64), m) for m in methods for fmt in formats]
    actions = [action for action in first if action.method != "qr" or action[0] == rw.FP64]
    if backend.supports(rw.FP32, problem.is_sparse):
        actions += [Action.parse(f"lu:{t}") for t in ("fp32-fp32-fp32-fp32", "fp32-fp64-fp32-fp64")]
    converged = []
    for action, outcome in zip(actions, ALGORITHM.run_all(problem, actions, backend), strict=True):
        assert outcome.action == str(action)
        assert outcome.converged == (outcome.status is CONVERGED)
        if outcome.converged:
            converged.append(str(action))
            assert outcome.nbe <= math.sqrt(problem.n) * U
            assert exact.passes(problem.A, outcome.x, problem.b)
            assert outcome.reason == ""
            assert outcome.x.shape == problem.b.shape
        else:
            assert outcome.reason
            assert outcome.x is None or np.isfinite(outcome.x).all()
    last = "qr" if "growth" in name and "qr" in methods else "lu"
    if "growth" not in name or last == "qr":
        assert f"{last}:fp64-{REST}" in converged


def test_runs_share_and_agree_with_runs_alone():
    problem = LinearSystem.from_solution(spd(40, 1e4), np.ones(40))
    actions = [f"{m}:{f}-{REST}" for m in ("lu", "cholesky") for f in ("fp32", "fp64")]
    for backend in ("operation", "native"):
        together = ALGORITHM.run_all(problem, actions, backend)
        for action, shared in zip(actions, together, strict=True):
            alone = ALGORITHM.run(problem, action, backend)
            np.testing.assert_array_equal(alone.x, shared.x)
            assert alone == shared
            assert 0 < sum(shared.timings.values()) <= shared.seconds * (1 + 1e-9)


def test_an_action_without_a_method_is_lu():
    for problem in (DENSE["gaussian"], SPARSE["poisson"]):
        plain, named = (ALGORITHM.run(problem, f"{m}fp32-{REST}", "native") for m in ("", "lu:"))
        np.testing.assert_array_equal(plain.x, named.x)
        assert (plain.action, named.action) == (f"fp32-{REST}", f"lu:fp32-{REST}")


@pytest.mark.parametrize(
    ("problem", "method", "reason"),
    [
        (DENSE["gaussian"], "superlu/mmd", "not for dense"),
        (DENSE["gaussian"], "superlu/colamd", "not for dense"),
        (DENSE["gaussian"], "cholesky", "not symmetric"),
        (DENSE["gaussian"], "nonsense", "not for dense"),
        (SPARSE["poisson"], "qr", "not for sparse"),
        (SPARSE["convection"], "cholesky", "not symmetric"),
    ],
)
def test_methods_that_do_not_fit(problem, method, reason):
    outcome = ALGORITHM.run(problem, f"{method}:fp64-{REST}", "native")
    assert outcome.status is UNSUITED
    assert outcome.status.failed
    assert reason in outcome.reason
    assert outcome.x is None
    assert outcome.nbe == math.inf


def test_failures_have_their_names():
    indefinite = system(np.diag(np.linspace(-1, 1, 40)))
    outcome = ALGORITHM.run(indefinite, f"cholesky:fp64-{REST}", "native")
    assert outcome.status is rw.OutcomeStatus.NOT_POSITIVE_DEFINITE
    singular = system(np.ones((5, 5)))
    for backend in ("native", "operation"):
        outcome = ALGORITHM.run(singular, f"lu:fp64-{REST}", backend)
        assert outcome.status is rw.OutcomeStatus.ZERO_PIVOT
    unholdable = LinearSystem(np.array([[1e-200]]), np.array([1e200]))
    outcome = ALGORITHM.run(unholdable, f"lu:fp64-{REST}", "native")
    assert outcome.status is rw.OutcomeStatus.OVERFLOW
    assert "cannot hold x" in outcome.reason
    hard = system(randsvd(200, 1e12, 3, rng=0).A)
    outcome = ALGORITHM.run(hard, f"lu:fp32-{REST}", "native")
    assert outcome.status is rw.OutcomeStatus.HOPELESS
    assert "pivots vanish" in outcome.reason
    assert outcome.inner_iterations == 0


def test_a_coarse_residual_stage_is_not_believed():
    """FP32's own residual is small enough for no gate of FP64's; one that lies is unconfirmed."""
    for backend in ("operation", "native"):
        outcome = ALGORITHM.run(DENSE["gaussian"], "lu:fp32-fp32-fp32-fp32", backend)
        assert not outcome.converged
        assert outcome.nbe > math.sqrt(40) * U
        assert outcome.reason
        loose = rw.VerifiedSolve(tolerance=1e-5)
        assert loose.run(DENSE["gaussian"], "lu:fp32-fp32-fp32-fp32", backend).converged
    # In bf16 both b and x round to the same: the stage's residual is 0, in float64 it is not.
    thirds = LinearSystem(np.eye(3), np.full(3, 1 / 3))
    outcome = ALGORITHM.run(thirds, "lu:bf16-bf16-bf16-bf16", "operation")
    assert outcome.status is rw.OutcomeStatus.UNCONFIRMED
    assert outcome.nbe > 1e-4
    assert "more bits in residual" in outcome.reason


def test_the_steps_of_plain_refinement_are_known():
    """With FP32 factors of a benign system each correction gains about seven digits."""
    problem = system(rng(0).standard_normal((60, 60)) + 12 * np.eye(60))
    for backend in ("operation", "native"):
        outcome = ALGORITHM.run(problem, f"lu:fp32-{REST}", backend)
        assert outcome.outer_iterations in (1, 2)
        assert outcome.inner_iterations == 0
        assert len(outcome.history) == outcome.outer_iterations
        once = rw.VerifiedSolve(tolerance=1e-5).run(problem, f"lu:fp32-{REST}", backend)
        assert once.outer_iterations == 0  # the factors suffice
        fp64 = ALGORITHM.run(problem, f"lu:fp64-{REST}", backend)
        assert fp64.outer_iterations == 0


def test_gmres_takes_over_and_keeps_its_budget():
    """Poor factors, a few bad directions: refinement stagnates, GMRES gets there."""
    problem = system(randsvd(60, 1e6, 2, rng=0).A)
    for backend in ("operation", "native"):
        if not get_backend(backend).supports("fp16"):
            continue
        outcome = ALGORITHM.run(problem, f"lu:fp16-{REST}", backend)
        assert outcome.converged
        assert 0 < outcome.inner_iterations <= 40
        assert exact.passes(problem.A, outcome.x, problem.b)
        short = rw.VerifiedSolve(budget=2).run(problem, f"lu:fp16-{REST}", backend)
        assert not short.converged
        assert short.inner_iterations <= 2


def test_errors_are_measured_against_the_truth():
    problem = randsvd(30, 1e3, rng=0)
    outcome = ALGORITHM.run(problem, f"lu:fp32-{REST}", "native")
    error = np.abs(outcome.x - problem.x_true).max() / np.abs(problem.x_true).max()
    assert outcome.ferr == pytest.approx(error)
    residual = np.abs(problem.b - problem.A @ outcome.x)
    sizes = np.abs(problem.A) @ np.abs(outcome.x) + np.abs(problem.b)
    assert outcome.cbe == pytest.approx((residual / sizes).max(), abs=U)


def test_a_shared_belongs_to_its_settings():
    problem, shared = DENSE["gaussian"], Shared()
    ALGORITHM.run(problem, f"lu:fp64-{REST}", "native", shared)
    with pytest.raises(ValueError, match="belongs to another"):
        rw.VerifiedSolve(budget=3).run(problem, f"lu:fp64-{REST}", "native", shared)


# Action spaces and ladders


def names(actions):
    return [str(action) for action in actions]


NATIVE = NativeBackend()
LOW = [fmt.name for fmt in (rw.BF16,) if NATIVE.supports(fmt)]


def test_action_spaces_fit_the_problems():
    dense, thin = DENSE["gaussian"], SPARSE["poisson"]
    of_dense = [f"cholesky:{f}-{REST}" for f in ("fp32", "fp64")]
    of_dense += [f"lu:{f}-{REST}" for f in (*LOW, "fp32", "fp64")]
    native = get_backend("native")
    of_sparse = [
        f"{m.name}:{f}-{REST}"
        for m in METHODS.values()
        for f in m.formats
        if m.sparse and m.chosen and native.runs(m.name, f, sparse=True)
    ]
    assert of_sparse[-2:] == [f"superlu/colamd:{f}-{REST}" for f in ("fp32", "fp64")]
    for problems in ((), (dense,), (dense, dense)):
        space = ALGORITHM.action_space(problems=problems)
        assert list(space.names) == of_dense
        assert space.names[space.safe] == f"lu:fp64-{REST}"
    space = ALGORITHM.action_space(problems=[thin])
    assert list(space.names) == of_sparse
    assert space.names[space.safe] == f"superlu/colamd:fp64-{REST}"
    both = ALGORITHM.action_space(problems=[thin, dense])
    assert set(both.names) == {*of_dense, *of_sparse}
    structured = {f"{method}:fp64-{REST}" for method in ("banded", "triangular")}
    assert {*both.names, *structured} == set(ALGORITHM.starts((False, True)).names)
    triangle = LinearSystem(np.tril(dense.A), dense.b)
    space = ALGORITHM.action_space(problems=[dense, triangle])
    assert set(space.names) - set(of_dense) == {f"triangular:fp64-{REST}"}
    assert space.names[space.safe] == f"lu:fp64-{REST}"
    few = ALGORITHM.action_space(["fp32"])
    assert {action[0].name for action in few} == {"fp32", "fp64"}  # FP64 is always there


@pytest.mark.parametrize(
    ("first", "is_sparse", "rest"),
    [
        (f"lu:fp64-{REST}", False, [f"qr:fp64-{REST}"]),
        (f"lu:fp32-{REST}", False, [f"lu:fp64-{REST}", f"qr:fp64-{REST}"]),
        (f"lu:fp16-{REST}", False, [f"lu:fp32-{REST}", f"lu:fp64-{REST}", f"qr:fp64-{REST}"]),
        (f"qr:fp64-{REST}", False, []),
        (
            f"cholesky:fp32-{REST}",
            False,
            [f"cholesky:fp64-{REST}", f"lu:fp64-{REST}", f"qr:fp64-{REST}"],
        ),
        (
            f"superlu/mmd:fp32-{REST}",
            True,
            [f"superlu/mmd:fp64-{REST}", f"superlu/colamd:fp64-{REST}"],
        ),
        (f"superlu/colamd:fp32-{REST}", True, [f"superlu/colamd:fp64-{REST}"]),
        # Lower update, gmres and residual stages are raised before new factors are made.
        (
            "lu:fp32-fp32-fp32-fp64",
            False,
            [f"lu:fp32-{REST}", f"lu:fp64-{REST}", f"qr:fp64-{REST}"],
        ),
        ("lu:fp64-fp32-fp32-fp32", False, [f"lu:fp64-{REST}", f"qr:fp64-{REST}"]),
        (f"lu:fp32-{REST}", True, [f"lu:fp64-{REST}", f"superlu/colamd:fp64-{REST}"]),
    ],
)
def test_ladders_by_hand(first, is_sparse, rest):
    ladder = ALGORITHM.climb(Action.parse(first), NATIVE, is_sparse)
    assert names(ladder) == [first, *rest]
    assert len(set(ladder)) == len(ladder)


def test_every_ladder_ends_in_fp64_with_a_method_that_suits():
    for action in ALGORITHM.starts((False, True)):
        is_sparse = METHODS[action.method].sparse
        ladder = ALGORITHM.climb(action, NATIVE, is_sparse)
        assert ladder[0] == action
        assert set(ladder[-1]) == {rw.FP64}
        assert ladder[-1].method == ("superlu/colamd" if is_sparse else "qr")
        bits = [rung[0].p for rung in ladder]
        assert bits == sorted(bits)


def test_a_matrix_that_is_proved_indefinite_is_not_tried_by_cholesky_again():
    ladder = ALGORITHM.climb(Action.parse(f"cholesky:fp32-{REST}"), NATIVE)
    methods = [(rung.method, rung[0].name) for rung in ladder]
    assert methods[:3] == [("cholesky", "fp32"), ("cholesky", "fp64"), ("lu", "fp64")]
    statuses = rw.OutcomeStatus
    assert ALGORITHM.rung_after(ladder, 0, statuses.NOT_POSITIVE_DEFINITE) == 1
    assert ALGORITHM.rung_after(ladder, 0, statuses.INDEFINITE) == 2
    assert ALGORITHM.rung_after(ladder[:2], 0, statuses.INDEFINITE) is None
    assert ALGORITHM.rung_after(ladder, len(ladder) - 1, statuses.STAGNATED) is None


def test_in_emulation_ladders_have_the_methods_of_emulation():
    ladder = ALGORITHM.climb(Action.parse(f"cholesky:fp32-{REST}"), get_backend("operation"))
    assert names(ladder)[-1] == f"lu:fp64-{REST}"


def test_an_action_without_a_method_climbs_as_lu():
    first = Action.parse(f"fp32-{REST}")
    assert names(ALGORITHM.climb(first, NATIVE)) == [
        f"lu:fp32-{REST}",
        f"lu:fp64-{REST}",
        f"qr:fp64-{REST}",
    ]


def test_other_algorithms_climb_to_fp64():
    action = Action.parse("bf16-fp32-fp64-fp64")
    assert names(rw.GmresIR().climb(action, NATIVE)) == [str(action), f"fp64-{REST}"]
    assert names(rw.GmresIR().climb(Action.parse(f"fp64-{REST}"), NATIVE)) == [f"fp64-{REST}"]


def test_symmetry():
    A = spd(300, 10)
    assert is_symmetric(A)
    assert is_symmetric(sparse.csr_array(A))
    for place in ((0, 299), (150, 3), (201, 200)):
        B = A.copy()
        B[place] = np.nextafter(B[place], np.inf)
        assert not is_symmetric(B)
        assert not is_symmetric(sparse.csr_array(B))
    assert is_symmetric(np.array([[1.0]]))


# The table, and the reward of a climb


def test_outcomes_are_stored_and_read_back(tmp_path):
    problems = [system(spd(30, 10.0**k), seed=k) for k in (1, 5)]
    table = OutcomeTable(tmp_path / "outcomes.sqlite")
    space = ALGORITHM.action_space(["fp32"])
    fill(table, ALGORITHM, problems, space, arithmetic="native", features=["n"], jobs=1)
    view = table.view(ALGORITHM, problems, space, "native")
    for i, problem in enumerate(problems):
        for j, action in enumerate(space):
            stored, run = view.outcome(i, j), ALGORITHM.run(problem, action, "native")
            assert (stored.status, stored.nbe, stored.outer_iterations) == (
                run.status,
                run.nbe,
                run.outer_iterations,
            )
            assert stored.seconds > 0


def test_the_reward_of_a_climb_by_hand():
    """log2 of FP64's seconds over those of the climb that starts with an action."""
    space = list_space(
        ALGORITHM.stages,
        [
            f"cholesky:fp32-{REST}",
            f"cholesky:fp64-{REST}",
            f"lu:bf16-{REST}",
            f"lu:fp32-{REST}",
            f"lu:fp64-{REST}",
        ],
    )

    def outcome(action, seconds, converged):
        status = CONVERGED if converged else rw.OutcomeStatus.STAGNATED
        error = 1e-17 if converged else 1e-3
        return rw.Outcome(
            status, None, error, error, error, action=action, seconds=seconds, arithmetic="native"
        )

    seconds = [3.0, 5.0, 1.0, 2.0, 8.0]
    converged = [False, True, False, True, True]
    outcomes = [outcome(*facts) for facts in zip(space.names, seconds, converged, strict=True)]
    facts = ProblemFacts(100, 10.0, 1.0, 1.0, 1.0)
    rewards = ClimbReward().row(outcomes, facts, space)
    # Cholesky in FP32 fails and climbs to FP64's; BF16 fails and climbs to FP32.
    expected = np.log2(8 / np.array([3 + 5, 5, 1 + 2, 2, 8]))
    np.testing.assert_allclose(rewards, expected)


@pytest.mark.parametrize(
    ("status", "cost"),
    [
        (rw.OutcomeStatus.INDEFINITE, 3 + 8),  # no bits make it positive definite: LU at once
        (rw.OutcomeStatus.STAGNATED, 3 + 5 + 8),
    ],
)
def test_the_reward_of_a_climb_counts_no_rung_that_is_passed_over(status, cost):
    names = [f"cholesky:fp32-{REST}", f"cholesky:fp64-{REST}", f"lu:fp64-{REST}"]
    space = list_space(ALGORITHM.stages, names)
    ends = (status, status, CONVERGED)
    outcomes = [
        rw.Outcome(end, None, error, error, error, action=name, seconds=s, arithmetic="native")
        for name, end, error, s in zip(
            names, ends, (1e-3, 1e-3, 1e-17), (3.0, 5.0, 8.0), strict=True
        )
    ]
    rewards = ClimbReward().row(outcomes, ProblemFacts(100, 10.0, 1.0, 1.0, 1.0), space)
    np.testing.assert_allclose(rewards, np.log2(8 / np.array([cost, 5 + 8, 8])))


def test_the_reward_of_a_climb_where_the_safe_action_is_unsuited():
    """In a space for dense and sparse systems FP64's LU is the safe action of dense ones."""
    dense = [f"lu:{fmt}-{REST}" for fmt in ("fp32", "fp64")]
    space = list_space(ALGORITHM.stages, [*dense, f"superlu/colamd:fp64-{REST}"])
    assert space.safe == 2
    assert space.safest([0, 1]) == 1
    problem = system(GAUSSIAN)
    outcomes = [
        replace(outcome, seconds=seconds)
        for outcome, seconds in zip(
            ALGORITHM.run_all(problem, space, "native"), (2.0, 8.0, 1e-3), strict=True
        )
    ]
    assert outcomes[2].status is UNSUITED
    facts = ProblemFacts(40, 10.0, 1.0, 1.0, 1.0)
    rewards = ClimbReward().row(outcomes, facts, space)
    np.testing.assert_allclose(rewards, np.log2(8 / np.array([2, 8, 8 + 1e-3])))


@pytest.mark.parametrize("budget", [8, 12, 40])
@pytest.mark.parametrize("n", [60, 300])
def test_gmres_that_gets_as_far_as_it_is_asked_to_is_not_hopeless(n, budget):
    """One tiny singular value: FP32's factors miss a direction, and GMRES needs few iterations."""
    system = rw.problems.randsvd(n, kappa=1e9, mode=4, rng=0)
    outcome = rw.VerifiedSolve(budget=budget).run(system, f"lu:fp32-{REST}", "native")
    assert outcome.converged, outcome.reason
    assert 0 < outcome.inner_iterations <= budget
