"""What `Tuner` trains on the front door's actions is what `roundwise.solve` asks.

Every kind of policy is trained on the same table of native outcomes with measured times, ranks by
the contract, is saved and loaded, and drives `solve`. Times decide what it learns, and no test.
"""

import copy
import json
import math
import pickle

import numpy as np
import pytest
from cases import FRONT_DOOR_POLICIES
from exact import passes
from hard_systems import spd
from scipy import sparse

import roundwise as rw
from roundwise.actions import list_space
from roundwise.costs.machines import PROFILES
from roundwise.features import PROBE
from roundwise.methods import METHODS
from roundwise.outcomes import OutcomeTable, fill
from roundwise.policies import POLICIES, FixedAction, NeighbourPolicy, OnlinePolicy, Policy
from roundwise.policies.facts import columns_of
from roundwise.problems import LinearSystem, poisson_2d, randsvd
from roundwise.rewards import ClimbReward
from roundwise.tuning import PAPER_CONTEXT, PROBE_CONTEXT, Context, DeployedPolicy
from roundwise.tuning.files import TunerFileError
from roundwise.tuning.training import view_contexts, view_rewards
from roundwise_studies.evaluation import regret_table

ALGORITHM = rw.VerifiedSolve()
REST = "fp64-fp64-fp64"
TRAINING = [randsvd(40 + k, 10.0 ** (1 + k), 2 + k % 2, rng=k) for k in range(12)]
SYSTEMS = [randsvd(50, 10.0**k, 3, rng=100 + k) for k in (1, 6, 13)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Filled by the first that trains on it; the others replay."""
    return OutcomeTable(tmp_path_factory.mktemp("outcomes") / "outcomes.sqlite")


@pytest.fixture(scope="module")
def tuners(table):
    made = {}

    def tuner(name):
        if name not in made:
            policy = FRONT_DOOR_POLICIES[name]()
            made[name] = rw.Tuner(ALGORITHM, policy=policy, table=table, episodes=5, jobs=1)
            made[name].fit(TRAINING)
        return made[name]

    return tuner


each_policy = pytest.mark.parametrize("name", FRONT_DOOR_POLICIES)


def test_the_list_has_all_policies_but_the_oracle():
    """Which knows the rewards of given problems alone."""
    assert {make().name for make in FRONT_DOOR_POLICIES.values()} == set(POLICIES) - {"oracle"}


def test_the_defaults_are_the_front_doors(table):
    tuner = rw.Tuner(ALGORITHM, table=table, jobs=1).fit(TRAINING)
    assert isinstance(tuner.policy_, NeighbourPolicy)
    assert tuner.context_ == PROBE_CONTEXT
    assert tuner.context_.features == PROBE
    assert tuner.arithmetic_ == "native"
    assert isinstance(tuner._reward(), ClimbReward)
    assert tuner.space_.names == ALGORITHM.action_space(problems=TRAINING).names
    assert tuner.contexts_.shape == (12, len(PROBE))
    assert np.isfinite(tuner.rewards_).all()
    assert (tuner.rewards_[:, tuner.space_.safe] == 0).all()  # the speedup over itself
    facts = tuner.policy_.facts.tables["dense"]
    assert len(facts) == 12
    by_name = dict(zip(columns_of("dense"), facts.T, strict=True))
    assert by_name["fp64 met"].all()
    np.testing.assert_array_equal(by_name["n"], [problem.n for problem in TRAINING])


@each_policy
def test_rankings_keep_the_contract(tuners, name):
    tuner = tuners(name)
    policy, space = tuner.policy_, tuner.space_
    assert isinstance(policy, Policy)
    contexts = [tuner.context_.vector(tuner.features(problem)) for problem in SYSTEMS]
    contexts.append(np.full(len(PROBE), math.inf))
    for context, state in zip(contexts, policy.encode(np.array(contexts)), strict=True):
        ranking = policy.rank(state)
        assert sorted(ranking.actions) == list(range(len(space)))
        assert len(ranking.costs) == len(space)
        assert ranking.reason
        assert "\n" not in ranking.reason
        assert policy.choose(state) == ranking.first
        assert policy.predict(context[None])[0] == ranking.first
        known = [cost for cost in ranking.costs if not math.isnan(cost)]
        assert known == sorted(known)
        allowed = [i for i, action in enumerate(space) if action[0] == rw.FP64]
        some = policy.rank(state, allowed)
        assert some.actions == tuple(i for i in ranking.actions if i in allowed)
        values = None if state is None else policy.expected(state)
        if values is not None:
            assert values.shape == (len(space),)
            assert values[ranking.first] == values.max()
    if policy.learns or name == "neighbours":
        assert ranking.first == space.safe  # of the infinite context


@each_policy
def test_saved_policies_choose_the_same(tuners, name, tmp_path):
    tuner = tuners(name)
    tuner.save(tmp_path / "tuner.json")
    again = rw.Tuner.load(tmp_path / "tuner.json")
    assert type(again.policy_) is type(tuner.policy_)
    assert again.context_ == tuner.context_
    assert again.algorithm == tuner.algorithm
    for problem in SYSTEMS:
        one, other = tuner.deployed.rank(problem), again.deployed.rank(problem)
        assert one.actions == other.actions
        np.testing.assert_allclose(one.costs, other.costs, rtol=1e-9)
    json.loads((tmp_path / "tuner.json").read_text())  # no pickle: JSON and npz


@pytest.mark.parametrize("name", ["neighbours", "online"])
def test_a_policy_that_was_trained_on_fewer_features_is_to_be_trained_again(tuners, name, tmp_path):
    """As an earlier Roundwise saved it, whose probe did not count diagonals."""
    path = tmp_path / "tuner.json"
    tuners(name).save(path)
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert saved["context"]["features"].pop() == "diagonals"
    saved["context"]["floors"].pop()
    saved["policy"]["features"] -= 1
    path.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(TunerFileError, match=r"other features .*\(diagonals\); train it again"):
        rw.Tuner.load(path)
    with pytest.raises(TunerFileError, match="train it again"):
        rw.solve(np.eye(3), np.ones(3), policy=path)


def test_a_policy_that_needs_the_whole_look_says_so(table):
    context = Context(PROBE[:-1], PROBE_CONTEXT.floors[:-1])
    tuner = rw.Tuner(ALGORITHM, policy=NeighbourPolicy(), context=context, table=table, jobs=1)
    with pytest.raises(ValueError, match=r"train the policy with context=PROBE_CONTEXT"):
        tuner.fit(TRAINING)


@each_policy
def test_policies_drive_solve(tuners, name, tmp_path):
    """As a tuner, as its file, as a deployed policy, and in a Solver: the same first action."""
    tuner = tuners(name)
    path = tmp_path / "tuner.json"
    tuner.save(path)
    solver = rw.Solver(policy=tuner, learn=False)
    for problem in SYSTEMS:
        A, b = problem.A, problem.b
        solutions = [
            rw.solve(A, b, policy=tuner, full_output=True),
            rw.solve(A, b, policy=str(path), full_output=True),
            rw.solve(A, b, policy=path, full_output=True),
            rw.solve(A, b, policy=tuner.deployed, full_output=True),
            solver.solve(A, b, full_output=True),
            rw.factor(A, policy=tuner).solve(b, full_output=True),
        ]
        assert len({solution.attempts[0].action for solution in solutions}) == 1
        for solution in solutions:
            assert passes(A, solution.x, b)
            assert solution.decision
        assert passes(A, rw.solve(A, b, policy=tuner), b)


@each_policy
def test_policies_of_dense_systems_solve_other_ones(tuners, name):
    """Sparse ones, of which they have no action; and those of which they know nothing."""
    tuner, problem = tuners(name), poisson_2d(8)
    solution = rw.solve(problem.A, problem.b, policy=tuner, full_output=True)
    assert passes(problem.A, solution.x, problem.b)
    for A in (1e200 * SYSTEMS[0].A, np.array([[3.0]]), np.eye(7), spd(30, 1e3)):
        b = np.ones(len(A))
        assert passes(A, rw.solve(A, b, policy=tuner), b)
        mirrored = np.triu(A) + np.triu(A, 1).T  # what is read of A then
        assert passes(mirrored, rw.solve(A, b, policy=tuner, assume_a="pos"), b)
    B = np.random.default_rng(0).standard_normal((50, 3))
    X = rw.solve(SYSTEMS[0].A, B, policy=tuner)
    for x, b in zip(X.T, B.T, strict=True):
        assert passes(SYSTEMS[0].A, x, b)


@each_policy
def test_policies_can_be_copied_and_pickled(tuners, name):
    policy = tuners(name).policy_
    state = tuners(name).deployed.state(SYSTEMS[0])
    assert copy.deepcopy(policy).rank(state).actions == policy.rank(state).actions
    if name != "online":  # its memory without a file stays in the process
        assert pickle.loads(pickle.dumps(policy)).rank(state).actions == policy.rank(state).actions


def test_a_solver_learns_on_from_a_neighbour_tuner(tuners, monkeypatch):
    monkeypatch.setattr(NeighbourPolicy, "crossover", lambda self, kind: 40)
    tuner = tuners("neighbours")
    solver = rw.Solver(policy=tuner)
    assert isinstance(solver._learner, OnlinePolicy)
    assert solver._learner.prior is tuner.policy_
    solver.solve(SYSTEMS[0].A, SYSTEMS[0].b)
    assert solver._learner.account.solves == 1
    for name in ("tabular", "fixed"):
        assert rw.Solver(policy=tuners(name))._learner is None
        with pytest.raises(ValueError, match="learn=False"):
            rw.Solver(policy=tuners(name), learn=True)


def test_an_untrained_tuner_and_a_bare_policy_are_refused(tmp_path):
    A, b = SYSTEMS[0].A, SYSTEMS[0].b
    with pytest.raises(ValueError, match="call fit or Tuner"):
        rw.solve(A, b, policy=rw.Tuner(ALGORITHM))
    with pytest.raises(TypeError, match="pass the Tuner that trained it"):
        rw.solve(A, b, policy=FixedAction())
    with pytest.raises((OSError, rw.RoundwiseError)):
        rw.solve(A, b, policy=str(tmp_path / "nowhere.json"))
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(rw.RoundwiseError) as caught:
        rw.solve(A, b, policy=path)
    assert "\n" not in str(caught.value)


def test_regret_of_all_policies_on_left_out_systems(tuners, table):
    """What one is worth against the oracle, from the same outcomes: no policy beats the oracle."""
    first = tuners("neighbours")
    fill(
        table,
        ALGORITHM,
        SYSTEMS,
        first.space_,
        arithmetic="native",
        features=(*PROBE, "fill_ratio"),
        jobs=1,
    )
    view = table.view(ALGORITHM, SYSTEMS, first.space_, "native")
    rewards = view_rewards(view, ClimbReward(), first.space_)
    contexts = view_contexts(view, PROBE_CONTEXT)
    choices = {name: tuners(name).policy_.predict(contexts) for name in FRONT_DOOR_POLICIES}
    regret = regret_table(rewards, choices, first.space_.safe, np.random.default_rng(0))
    rows = {row.policy: row for row in regret.policies}
    assert set(rows) == {*choices, "oracle", "best fixed", "all-FP64"}
    assert rows["oracle"].oracle.value == 0
    assert all(row.oracle.value >= 0 for row in rows.values())


def test_a_policy_of_modelled_costs_from_emulated_runs(tmp_path):
    """The same algorithm in emulated arithmetic, its operations priced; solve takes that, too."""
    space = list_space(ALGORITHM.stages, [f"lu:{fmt}-{REST}" for fmt in ("bf16", "fp32", "fp64")])
    tuner = rw.Tuner(
        ALGORITHM,
        space=space,
        policy=FRONT_DOOR_POLICIES["tabular"](),
        reward=ClimbReward(PROFILES["bits-proportional"]),
        arithmetic="operation",
        episodes=20,
        jobs=1,
    ).fit(TRAINING[:6])
    assert (tuner.rewards_[:, 2] == 0).all()
    assert tuner.rewards_[0].argmax() < 2  # a benign system: fewer bits are cheaper
    tuner.save(tmp_path / "emulated.json")
    assert passes(SYSTEMS[0].A, rw.solve(SYSTEMS[0].A, SYSTEMS[0].b, policy=tuner), SYSTEMS[0].b)
    again = rw.Tuner.load(tmp_path / "emulated.json")
    assert again._reward() == tuner._reward()
    assert again.predict(SYSTEMS[0]) == tuner.predict(SYSTEMS[0])


# Policies of other algorithms


def test_the_papers_tuner_runs_natively():
    """GMRES-IR's actions, trained in emulation; TF32, which no CPU has, becomes FP32."""
    problems = [randsvd(20, 10.0**k, 2, rng=k) for k in range(1, 7)]
    tuner = rw.Tuner(rw.GmresIR.paper(), ["tf32", "fp64"], episodes=30, jobs=1).fit(problems)
    problem = problems[0]
    for space_action in tuner.space_:
        fixed = DeployedPolicy(_started(FixedAction(space_action), tuner), PAPER_CONTEXT)
        solution = rw.solve(problem.A, problem.b, policy=fixed, full_output=True)
        assert passes(problem.A, solution.x, problem.b)
        first = rw.Action.parse(solution.attempts[0].action)
        assert first == rw.Action(
            (rw.FP32 if fmt.name == "tf32" else fmt for fmt in space_action), "lu"
        )
    solution = rw.solve(problem.A, problem.b, policy=tuner, full_output=True)
    assert solution.attempts[0].action.startswith("lu:")
    assert passes(problem.A, solution.x, problem.b)
    thin = poisson_2d(6)
    assert passes(thin.A, rw.solve(thin.A, thin.b, policy=tuner), thin.b)


def _started(policy, tuner):
    policy.start(tuner.contexts_, tuner.space_)
    return policy


def test_policies_for_other_stages_are_refused():
    problems = TRAINING[:2]
    tuner = rw.Tuner(rw.LuIR(), ["fp32", "fp64"], episodes=2, jobs=1).fit(problems)
    with pytest.raises(ValueError, match="train it for VerifiedSolve or GmresIR"):
        rw.solve(problems[0].A, problems[0].b, policy=tuner)


def test_lower_stages_are_raised_before_new_factors_are_made(monkeypatch):
    """FP32 in all stages misses the gate; the same factors with FP64 in the others pass it."""
    space = list_space(ALGORITHM.stages, ["lu:fp32-fp32-fp32-fp32", f"lu:fp64-{REST}"])
    policy = FixedAction(0)
    policy.start(np.zeros((1, len(PROBE))), space)
    made = []
    original = rw.backends.NativeBackend.analyse

    def counted(self, A, method):
        analysis = original(self, A, method)

        class Counting:
            def factorize(self, A, fmt):
                made.append(str(fmt))
                return analysis.factorize(A, fmt)

        return Counting()

    monkeypatch.setattr(rw.backends.NativeBackend, "analyse", counted)
    problem = SYSTEMS[0]
    solution = rw.solve(
        problem.A, problem.b, policy=DeployedPolicy(policy, PROBE_CONTEXT), full_output=True
    )
    actions = [attempt.action for attempt in solution.attempts]
    assert actions == ["lu:fp32-fp32-fp32-fp32", f"lu:fp32-{REST}"]
    assert made == ["fp32"]
    assert passes(problem.A, solution.x, problem.b)


def test_a_tuner_of_dense_and_sparse_systems(tmp_path):
    """The actions of both; each system gets one of those that suit it."""
    thin = [poisson_2d(m) for m in (5, 6, 7)]
    dense = TRAINING[:3]
    tuner = rw.Tuner(
        ALGORITHM,
        policy=FRONT_DOOR_POLICIES["tabular"](),
        table=tmp_path / "t.sqlite",
        episodes=20,
        jobs=1,
    ).fit([*dense, *thin])
    native = rw.backends.get_backend("native")
    runnable = {*native.methods(sparse=False), *native.methods(sparse=True)}
    chosen = {method.name for method in METHODS.values() if method.chosen}
    assert set(tuner.space_.methods) == chosen & runnable - {"banded", "triangular"}  # none is one
    assert np.isfinite(tuner.rewards_).all()
    for i in range(6):
        safe = f"lu:fp64-{REST}" if i < 3 else f"superlu/colamd:fp64-{REST}"
        assert tuner.rewards_[i, tuner.space_.index(safe)] == 0
    for problem in (*dense, *thin):
        solution = rw.solve(problem.A, problem.b, policy=tuner, full_output=True)
        assert passes(problem.A, solution.x, problem.b)
        method = rw.Action.parse(solution.attempts[0].action).method
        assert method in rw.backends.get_backend("native").methods(problem.is_sparse)
        assert all(a.status is not rw.OutcomeStatus.UNSUITED for a in solution.attempts)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("policy", ["fp32", "fp64"])
def test_solve_and_the_algorithm_give_the_same_answer(form, policy):
    """Bit by bit: they are the same loop."""
    A, b = form(SYSTEMS[0].A), SYSTEMS[0].b
    method = "lu" if form is np.asarray else "superlu/colamd"  # a format alone is one compiled call
    policy = f"{method}:{policy}-fp64-fp64-fp64"
    solution = rw.solve(A, b, policy=policy, full_output=True)
    outcome = rw.VerifiedSolve().run(LinearSystem(A, b), solution.action, "native")
    np.testing.assert_array_equal(outcome.x, solution.x)
    assert outcome.nbe == solution.backward_error
    assert outcome.outer_iterations == solution.iterations
