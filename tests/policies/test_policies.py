"""Policies: their rules by hand, convergence on synthetic rewards, saving, garbage."""

import io
import itertools
import json
import math
import sys

import numpy as np
import pytest
from cases import BASELINES, LEARNERS, small_forest
from cases import POLICY_SPACE as SPACE

from roundwise.actions import Action, ActionSpace, full_space, list_space, monotone_space
from roundwise.discretizer import FeatureDiscretizer
from roundwise.policies import (
    POLICIES,
    Escalation,
    FixedAction,
    LinearUCB,
    Oracle,
    RegressionPolicy,
    TabularQ,
    TheoryRule,
    ThompsonSampling,
    load_policy,
)
from roundwise.policies.linear import design_matrix
from roundwise.policies.regression import describe_estimator, make_estimator

STAGES = ("factor", "update", "gmres", "residual")
LINE = full_space(("a",), ["bf16", "tf32", "fp32", "fp64"])  # four actions in a line
SQUARE = full_space(("a", "b"), ["bf16", "fp32", "fp64"])


def contexts(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(0, 12, n), rng.uniform(-1, 3, n)])


def train(policy, X, space, rewards, episodes, seed=0):
    policy.start(X, space)
    states, rng = policy.encode(X), np.random.default_rng(seed)
    for t, i in itertools.product(range(episodes), range(len(X))):
        action = policy.explore(states[i], rng, t / episodes)
        policy.update(states[i], action, float(rewards[i, action]))
    return policy


# TabularQ


def test_epsilon_schedule():
    policy = TabularQ(epsilon_min=0.1)
    schedule = [policy.epsilon(t / 100) for t in range(101)]
    np.testing.assert_allclose(schedule[:90], 1 - np.arange(90) / 100)
    assert schedule[90:] == pytest.approx([0.1] * 11)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 1.0), (0.6, 0.4), (1.0, 0.25)])
def test_share_of_random_choices(progress, share):
    policy = TabularQ(epsilon_min=0.25)
    policy.start([[0.0], [1.0]], LINE)
    policy.update(0, 1, 1.0)
    rng, n = np.random.default_rng(2), 20000
    drawn = np.bincount([policy.explore(0, rng, progress) for _ in range(n)], minlength=4)
    expected = n * np.array([share / 4, 1 - 3 * share / 4, share / 4, share / 4])
    assert (abs(drawn - expected) < 5 * np.sqrt(n / 4)).all()  # five standard deviations


def test_update_rule_with_constant_alpha():
    policy = TabularQ(alpha=0.5)
    policy.start([[0.0], [1.0]], LINE)
    errors = [policy.update(3, 2, r) for r in (4.0, 1.0, -2.5)]
    # Q: 0 -> 2 -> 1.5 -> -0.5
    assert errors == [4.0, -1.0, -4.0]
    assert policy.values[3, 2] == -0.5
    assert policy.counts[3].tolist() == [0, 0, 3, 0]
    assert np.isnan(policy.values).sum() == policy.values.size - 1


def test_update_rule_with_one_over_n_is_the_mean():
    policy = TabularQ(alpha="1/N")
    policy.start([[0.0], [1.0]], LINE)
    rewards = np.random.default_rng(1).normal(size=50)
    for k, reward in enumerate(rewards):
        mean = rewards[:k].mean() if k else 0.0
        assert policy.update(0, 1, reward) == pytest.approx(reward - mean, abs=1e-12)
    assert policy.values[0, 1] == pytest.approx(rewards.mean(), abs=1e-12)


def test_untried_actions_are_never_greedy():
    policy = TabularQ()
    policy.start([[0.0], [1.0]], LINE)
    assert policy.choose(5) == LINE.safe == 3
    policy.update(5, 1, -100.0)  # below the 0 that untried ones would have
    assert policy.choose(5) == 1
    policy.update(5, 0, -99.0)
    assert policy.choose(5) == 0


def test_ties_go_to_the_higher_index():
    policy = TabularQ()
    policy.start([[0.0], [1.0]], LINE)
    for action in (2, 0, 1):
        policy.update(0, action, 1.0)
    assert policy.choose(0) == 2
    policy.update(0, 2, 0.5)  # 0.5 stays 0.5: still a tie
    assert policy.choose(0) == 2
    policy.update(0, 2, 0.25)
    assert policy.choose(0) == 1


@pytest.mark.parametrize("alpha", [0.5, "1/N"])
def test_converges_to_the_argmax_of_the_table(alpha):
    rng = np.random.default_rng(7)
    X = np.array(list(itertools.product(range(5), range(4))), dtype=float)
    # With alpha = 1/2, n visits leave Q at (1 - 2^-n) r: it tells 1/35 apart after six.
    rewards = np.array([rng.permutation(len(SPACE)) + 1.0 for _ in X])
    policy = TabularQ(FeatureDiscretizer((5, 4)), alpha=alpha)
    train(policy, X, SPACE, rewards, 1500)
    assert (policy.counts.min(axis=1) > 5).all()
    np.testing.assert_array_equal(policy.predict(X), rewards.argmax(axis=1))
    if alpha == "1/N":
        np.testing.assert_allclose(policy.values, rewards, atol=1e-12)
    assert policy.coverage == 1.0


def test_converges_to_the_best_mean_under_noise():
    X = np.array([[0.0], [1.0]])
    means = np.array([[0.0, 1.0, 0.3, -1.0], [0.5, 0.0, -0.2, 1.1]])
    policy = TabularQ(FeatureDiscretizer(2), alpha="1/N")
    policy.start(X, LINE)
    rng = np.random.default_rng(11)
    for t in range(4000):
        for s in (0, 1):
            action = policy.explore(s, rng, t / 4000)
            policy.update(s, action, means[s, action] + rng.normal())
    np.testing.assert_array_equal(policy.predict(X), means.argmax(axis=1))


def test_nearest_generalisation_by_brute_force():
    grid = np.array(list(itertools.product(range(6), range(6))), dtype=float)
    rng = np.random.default_rng(4)
    for generalise in ("nearest", "monotone"):
        policy = TabularQ(FeatureDiscretizer((6, 6)), generalise=generalise)
        policy.start(grid, LINE)
        visited = rng.choice(36, 5, replace=False)
        greedy = {int(s): int(rng.integers(4)) for s in visited}
        for state, action in greedy.items():
            policy.update(state, action, 1.0)
        for state in range(36):
            found = [
                (-((s // 6 - state // 6) ** 2) - (s % 6 - state % 6) ** 2, s)
                for s in greedy
                if generalise == "nearest" or s // 6 >= state // 6
            ]
            wanted = greedy[max(found)[1]] if found else LINE.safe
            assert policy.choose(state) == wanted


def test_nothing_is_learned_from_an_infinite_context():
    for generalise in ("none", "nearest", "monotone"):
        policy = TabularQ(generalise=generalise)
        policy.start([[0.0], [5.0], [np.inf]], LINE)
        low, high, infinite = policy.encode([[0.0], [9.0], [np.inf]])
        policy.update(high, 0, 1.0)
        assert policy.choose(infinite) == LINE.safe
        assert policy.update(infinite, 1, 1.0) == 0.0
        assert policy.choose(infinite) == LINE.safe
        assert policy.choose(high) == 0
        assert policy.choose(low) == (LINE.safe if generalise == "none" else 0)


# LinearUCB, ThompsonSampling


def linear_rewards(X, space, seed):
    """A random function of the model's form, linear in the context."""
    rng = np.random.default_rng(seed)
    design = design_matrix(space, hybrid=False)
    scaled = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    basis = np.hstack([np.ones((len(X), 1)), scaled])
    return basis @ rng.normal(size=(basis.shape[1], design.shape[1])) @ design.T


@pytest.mark.parametrize("make", [LinearUCB, ThompsonSampling])
def test_finds_a_linear_optimum(make):
    X = contexts(40)
    rewards = linear_rewards(X, SPACE, 9)
    policy = train(make(0.3, ridge=1e-2, knots=0), X, SPACE, rewards, 60)
    chosen = rewards[np.arange(40), policy.predict(X)]
    assert (rewards.max(axis=1) - chosen).mean() < 0.01 * np.ptp(rewards)
    # Generalises over actions: half of them untried in most contexts, none tried everywhere.
    assert policy.epsilon(0.3) == 0.0


def test_recursive_least_squares_is_ridge_regression():
    X = contexts(15)
    policy = LinearUCB(alpha=0.7, ridge=0.5, knots=1, model="hybrid")
    policy.start(X, SQUARE)
    states, rng = policy.encode(X), np.random.default_rng(0)
    rows, targets = [], []
    design = design_matrix(SQUARE, hybrid=True)
    assert design.shape == (9, 6 + 9)
    for b in states:
        action, reward = int(rng.integers(8)), float(rng.normal())  # never the ninth
        error = policy.update(b, action, reward)
        row = np.kron(design[action], b)
        theta = np.zeros(row.size)
        if rows:
            theta = np.linalg.solve(
                np.array(rows).T @ rows + 0.5 * np.eye(row.size), np.array(rows).T @ targets
            )
        assert error == pytest.approx(reward - row @ theta, abs=1e-9)
        rows.append(row)
        targets.append(reward)
    gram = np.array(rows).T @ rows + 0.5 * np.eye(len(rows[0]))
    theta, inverse = np.linalg.solve(gram, np.array(rows).T @ targets), np.linalg.inv(gram)
    for b in states:
        features = np.array([np.kron(d, b) for d in design])
        width = np.sqrt(np.einsum("ij,ij->i", features @ inverse, features))
        assert policy.explore(b, rng, 0.0) == np.argmax(features @ theta + 0.7 * width)
        assert policy.choose(b) == np.argmax((features @ theta)[:8])  # the ninth is untried


def test_thompson_draws_have_the_posterior_spread():
    X = contexts(10)
    policy = ThompsonSampling(noise=2.0, knots=0)
    policy.start(X, LINE)
    b = policy.encode(X)[0]
    for _ in range(3):
        policy.update(b, 1, 1.0)
    # One part per action here. Untried: N(0, 4 |b|^2). Tried three times: mean 3s/(1+3s) and
    # variance 4 s/(1+3s) with s = |b|^2 (Sherman-Morrison). Count how often action 1 wins.
    s = b @ b
    rng, n = np.random.default_rng(3), 4000
    wins = sum(policy.explore(b, rng, 0.0) == 1 for _ in range(n))
    sample = np.random.default_rng(8).standard_normal((200_000, 4)) * 2 * np.sqrt(s)
    tried = 3 * s / (1 + 3 * s) + sample[:, 1] / np.sqrt(1 + 3 * s)
    expected = np.mean(tried > np.delete(sample, 1, axis=1).max(axis=1))
    assert abs(wins / n - expected) < 5 * 0.5 / np.sqrt(n)


# RegressionPolicy


def threshold_rewards(X, space):
    """The fewer digits the better, as long as the first stage has more of them than kappa."""
    digits = np.array([[f.p * math.log10(2) for f in action] for action in space])
    works = X[:, :1] < digits[:, 0]
    return np.where(works, -digits.sum(axis=1), -digits.sum(axis=1) - 40.0)


def test_gradient_boosting_learns_a_threshold_and_carries_it_over():
    pytest.importorskip("sklearn")
    X, new = contexts(60), contexts(100, seed=1)
    policy = train(RegressionPolicy(), X, SPACE, threshold_rewards(X, SPACE), 30)
    rewards = threshold_rewards(new, SPACE)
    chosen = rewards[np.arange(100), policy.predict(new)]
    tabular = train(TabularQ(), X, SPACE, threshold_rewards(X, SPACE), 30)
    regret = (rewards.max(axis=1) - chosen).mean()
    tabular_regret = (rewards.max(axis=1) - rewards[np.arange(100), tabular.predict(new)]).mean()
    assert regret < 2.0  # a failure costs 40
    assert regret < tabular_regret / 3
    assert 0 < policy.coverage <= 30 / 35  # each context was seen thirty times


def test_multilayer_perceptron_learns_a_smooth_reward():
    neural_network = pytest.importorskip("sklearn.neural_network")
    regressor = neural_network.MLPRegressor(
        hidden_layer_sizes=(8,), solver="lbfgs", alpha=1e-2, max_iter=5000, tol=1e-3
    )
    X, new = contexts(30), contexts(50, seed=1)
    digits = np.array([[f.p * math.log10(2) for f in action] for action in SQUARE]).sum(axis=1)

    def rewards(X):
        return -((digits - 0.5 * X[:, :1] - 6) ** 2) / 100

    policy = train(RegressionPolicy(regressor), X, SQUARE, rewards(X), 20)
    chosen = rewards(new)[np.arange(50), policy.predict(new)]
    assert (rewards(new).max(axis=1) - chosen).mean() < 0.02 * np.ptp(rewards(new))
    assert regressor.random_state is None  # the given object is not touched


def test_regressor_is_described_without_pickle():
    ensemble = pytest.importorskip("sklearn.ensemble")
    tree = pytest.importorskip("sklearn.tree")
    regressor = ensemble.BaggingRegressor(tree.DecisionTreeRegressor(max_depth=3), 4)
    again = make_estimator(json.loads(json.dumps(describe_estimator(regressor))))
    assert str(again) == str(regressor)
    assert again.estimator.max_depth == 3


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "sklearn.pipeline.Pipeline",
        "sklearn.utils.Bunch",
        "sklearn.ensemble.nothing",
        "sklearn.ensemble.__name__",
        "RandomForestRegressor",
    ],
)
def test_loading_makes_listed_classes_only(name):
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match="sklearn"):
        make_estimator({"class": name, "parameters": {}})


def test_regressor_that_cannot_be_saved():
    pipeline = pytest.importorskip("sklearn.pipeline")
    policy = RegressionPolicy(pipeline.make_pipeline(small_forest()))
    policy.start(contexts(3), LINE)
    with pytest.raises(ValueError, match="without pickle"):
        policy.to_dict()
    policy = RegressionPolicy(small_forest().set_params(random_state=np.random.RandomState(1)))
    policy.start(contexts(3), LINE)
    with pytest.raises(ValueError, match="random_state"):
        policy.to_dict()


# Baselines


def names(policy, digits, space=SPACE):
    policy.start(np.empty((0, 1)), space)
    return [space.names[i] for i in policy.predict(np.array(digits)[:, None])]


def test_theory_rule_five_precision_by_hand():
    # u_g = u_p = 2^-53: kappa < 2^((53 + 2p)/3), that is 10^6.92 for bf16 (p = 8), 10^7.53 for
    # tf32 (p = 11) and 10^10.13 for fp32 (p = 24).
    chosen = names(TheoryRule(), [0, 6.9, 6.95, 7.5, 7.55, 10.1, 10.2, 15, 299, 400, np.inf])
    factors = ["bf16"] * 2 + ["tf32"] * 2 + ["fp32"] * 2 + ["fp64"] * 5
    assert chosen == [f"{factor}-fp64-fp64-fp64" for factor in factors]


def test_theory_rule_three_precision_by_hand():
    # kappa < 2^(53/2) 2^p: 10^10.39 for bf16, 10^11.29 for tf32, 10^15.2 for fp32.
    chosen = names(TheoryRule(limit="three-precision"), [10.3, 10.45, 11.2, 11.4, 15.1, 15.3])
    factors = ["bf16", "tf32", "tf32", "fp32", "fp32", "fp64"]
    assert chosen == [f"{factor}-fp64-fp64-fp64" for factor in factors]


def test_theory_rule_lu_ir_by_hand():
    # kappa < 2^p: 10^2.41, 10^3.31, 10^7.22.
    space = monotone_space(("factor", "update", "residual"), ["bf16", "tf32", "fp32", "fp64"])
    chosen = names(TheoryRule(), [2.4, 2.42, 3.3, 3.32, 7.2, 7.25], space)
    factors = ["bf16", "tf32", "tf32", "fp32", "fp32", "fp64"]
    assert chosen == [f"{factor}-fp64-fp64" for factor in factors]


def test_theory_rule_with_a_modest_target():
    # fp32 has u = 6e-8: enough for the update; for the residual only while kappa u_r <= 1e-7.
    chosen = names(TheoryRule(target=1e-7), [0.0, 1.0, 9.0])
    # (2^-24 + 10^9 2^-24) > 1: GMRES needs fp64, too. fp32 factors: 2^33.67 = 10^10.13.
    assert chosen == ["bf16-fp32-fp32-fp32", "bf16-fp32-fp32-fp64", "fp32-fp32-fp64-fp64"]


def test_theory_rule_takes_costs():
    costs = np.arange(len(SPACE))[::-1]
    assert names(TheoryRule(costs=costs), [1.0]) == ["fp64-fp64-fp64-fp64"]


def test_escalation_ladder_by_hand():
    policy = Escalation()
    policy.start(contexts(2), SPACE)
    ladder = [SPACE.names[i] for i in policy.ladder(None)]
    assert ladder == [
        "bf16-bf16-bf16-bf16",
        "bf16-fp64-fp64-fp64",
        "tf32-tf32-tf32-tf32",
        "tf32-fp64-fp64-fp64",
        "fp32-fp32-fp32-fp32",
        "fp32-fp64-fp64-fp64",
        "fp64-fp64-fp64-fp64",
    ]
    assert policy.choose(None) == policy.ladder(None)[0]
    own = Escalation(["fp32-fp32-fp64-fp64", "fp64-fp64-fp64-fp64", "bf16-bf16-bf16-bf16"])
    own.start(contexts(2), SPACE)
    assert [SPACE.names[i][:4] for i in own.ladder(None)] == ["fp32", "bf16", "fp64"]


def test_oracle_has_no_regret():
    rewards = np.random.default_rng(0).normal(size=(40, len(SPACE)))
    rewards[3] = 1.0  # all alike
    policy = Oracle(rewards)
    policy.start(contexts(40), SPACE)
    chosen = policy.predict(contexts(40))
    assert (rewards[np.arange(40), chosen] == rewards.max(axis=1)).all()
    assert chosen[3] == SPACE.safe
    with pytest.raises(ValueError, match="rows of rewards"):
        policy.encode(contexts(39))
    with pytest.raises(ValueError, match="one column per action"):
        Oracle(rewards[:, 1:]).start(contexts(40), SPACE)


def test_fixed_action():
    for given, index in [(None, 34), (7, 7), (SPACE.names[3], 3), (SPACE[4], 4)]:
        policy = FixedAction(given)
        policy.start(contexts(2), SPACE)
        assert policy.predict(contexts(5)).tolist() == [index] * 5
        assert policy.ladder(None) == ([34] if index == 34 else [index, 34])


# All of them: one contract


def trained(make, X, episodes=3):
    rewards = np.random.default_rng(1).normal(size=(len(X), len(SPACE)))
    return train(make(), X, SPACE, rewards, episodes)


@pytest.mark.parametrize("make", [*LEARNERS, *BASELINES])
def test_rank_orders_all_actions_and_choose_is_its_first(make):
    X = contexts(40)
    policy = trained(make, X)
    new = X if policy.name == "oracle" else np.vstack([X, contexts(20, 2), [[np.inf, 0.0]]])
    for state in policy.encode(new):
        ranking = policy.rank(state)
        assert ranking.first == policy.choose(state) == ranking.actions[0]
        assert sorted(ranking.actions) == list(range(len(SPACE)))
        assert len(ranking.costs) == len(SPACE)
        known = [cost for cost in ranking.costs if not math.isnan(cost)]
        assert known == sorted(known)
        assert ranking.reason.endswith(".")
        assert "\n" not in ranking.reason
        assert policy.ladder(state)[0] == ranking.first


@pytest.mark.parametrize("make", [*LEARNERS, *BASELINES])
def test_rank_of_allowed_actions_is_the_ranking_without_the_others(make):
    X = contexts(40)
    policy, rng = trained(make, X), np.random.default_rng(3)
    for state in policy.encode(X):
        allowed = set(rng.choice(len(SPACE), 9, replace=False).tolist())
        everything, some = policy.rank(state), policy.rank(state, allowed)
        assert some.actions == tuple(a for a in everything.actions if a in allowed)
        costs = dict(zip(everything.actions, everything.costs, strict=True))
        np.testing.assert_array_equal(some.costs, [costs[a] for a in some.actions])
        assert policy.rank(state, allowed | {SPACE.safe}).reason
    for nothing in ([], [len(SPACE)], [-1]):
        with pytest.raises(ValueError, match="allow at least one"):
            policy.rank(policy.encode(X)[0], nothing)


@pytest.mark.parametrize("make", LEARNERS)
def test_rank_puts_untried_actions_last_and_knows_no_cost_of_them(make):
    policy = make()
    policy.start(contexts(20), SPACE)
    state = policy.encode(contexts(20))[0]
    unknown = policy.rank(state)
    assert unknown.first == SPACE.safe
    assert np.isnan(unknown.costs).all()
    assert "No similar systems" in unknown.reason
    assert policy.rank(state, [3, 0]).first == 3  # the last stages have more bits
    assert "the safest action that is allowed" in policy.rank(state, [3, 0]).reason
    for action, reward in [(5, -50.0), (2, -40.0)]:
        for context in policy.encode(contexts(20)):
            policy.update(context, action, reward)
    ranking = policy.rank(state)
    assert set(ranking.actions[:2]) == {2, 5}
    assert not np.isnan(ranking.costs[:2]).any()
    assert np.isnan(ranking.costs[2:]).all()
    assert ranking.actions[2] == SPACE.safe
    assert policy.rank(state, [7, 5]).actions == (5, 7)
    assert policy.rank(state, [7, SPACE.safe]).first == SPACE.safe


def test_costs_are_minus_the_expected_rewards():
    policy = TabularQ(alpha=1.0)
    policy.start([[0.0], [1.0]], LINE)
    for action, reward in enumerate([1.5, 3.0, 1.5]):
        policy.update(0, action, reward)
    ranking = policy.rank(0)
    assert ranking.actions == (1, 2, 0, 3)  # of equal ones the higher index first
    assert ranking.costs[:3] == (-3.0, -1.5, -1.5)
    costs = np.arange(len(SPACE))[::-1]
    rule = TheoryRule(costs=costs)
    rule.start(np.empty((0, 1)), SPACE)
    assert rule.rank([1.0]).costs == tuple(float(costs[i]) for i in rule.rank([1.0]).actions)


@pytest.mark.parametrize("make", LEARNERS)
def test_learners_tell_methods_apart(make):
    actions = [Action(a, m) for m in ("cholesky", "lu") for a in LINE]
    space = ActionSpace(("a",), tuple(actions))
    better = np.array([1.0 + (action.method == "cholesky") - action[0].p / 100 for action in space])
    X = contexts(30)
    policy = train(make(), X, space, np.tile(better, (30, 1)), 60)
    assert {space[i].method for i in policy.predict(X)} == {"cholesky"}


def test_rules_keep_to_the_safe_method():
    actions = [Action(a, m) for a in SPACE for m in ("cholesky", "lu")]
    space = ActionSpace(STAGES, tuple(actions))
    assert space[space.safe].method  # whichever it is
    for policy in (Escalation(), TheoryRule()):
        policy.start(np.empty((0, 1)), space)
        for i in [*policy.ladder([2.0])[:-1], policy.rank([40.0], range(0, 60)).first]:
            assert space[i].method == space[space.safe].method


def test_rules_say_why():
    for policy, allowed, words in [
        (FixedAction(3), None, "was fixed"),
        (FixedAction(3), [1, 2], "is not allowed"),
        (TheoryRule(), None, "promises convergence at kappa = 1e2.0"),
        (TheoryRule(), [0], "promises convergence of no action"),
        (Escalation(), None, "first allowed rung"),
        (Escalation(), [4], "No action of the ladder"),
    ]:
        policy.start(np.empty((0, 1)), SPACE)
        assert words in policy.rank([2.0], allowed).reason


def test_table_with_a_state_that_does_not_exist_is_refused():
    policy = TabularQ()
    policy.start([[0.0], [1.0]], LINE)
    policy.update(9, 1, 1.0)
    saved, arrays = policy.to_dict(), policy.arrays()
    assert load_policy(saved, arrays).choose(9) == 1
    assert policy.discretizer_.n_states_ == 10
    for state in (10, -1):
        with pytest.raises(ValueError, match="corrupt"):
            load_policy(saved, arrays | {"states": np.array([state])})


@pytest.mark.parametrize("make", [*LEARNERS, *BASELINES])
def test_saved_policy_makes_identical_choices(make):
    X = contexts(40)
    rewards = np.random.default_rng(1).normal(size=(40, len(SPACE)))
    policy = train(make(), X, SPACE, rewards, 3)
    stream = io.BytesIO()
    np.savez(stream, **policy.arrays())
    text = json.dumps(policy.to_dict(), allow_nan=False)
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as arrays:
        again = load_policy(json.loads(text), dict(arrays))
    assert type(again) is type(policy)
    assert again.coverage == policy.coverage
    assert again.space == SPACE
    new = X if policy.name == "oracle" else np.vstack([contexts(100, 2), [[np.inf, 0.0]]])
    np.testing.assert_array_equal(again.predict(new), policy.predict(new))
    # What it goes on to learn is the same, too.
    states, rng, same = policy.encode(X), np.random.default_rng(4), np.random.default_rng(4)
    for state, other in zip(states, again.encode(X), strict=True):
        action = policy.explore(state, rng, 0.9)
        assert again.explore(other, same, 0.9) == action
        assert again.update(other, action, 0.5) == policy.update(state, action, 0.5)


@pytest.mark.parametrize("make", LEARNERS)
def test_untrained_policy_can_be_saved(make):
    policy = make()
    policy.start(contexts(9), SPACE)
    again = load_policy(json.loads(json.dumps(policy.to_dict())), policy.arrays())
    assert (again.predict(contexts(9)) == SPACE.safe).all()


def test_missing_scikit_learn_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"roundwise\[tune\]"):
        RegressionPolicy().start(contexts(3), SPACE)


@pytest.mark.parametrize("make", LEARNERS)
def test_same_seed_same_policy(make):
    X = contexts(20)
    rewards = np.random.default_rng(1).normal(size=(20, len(SPACE)))
    first, second = (train(make(), X, SPACE, rewards, 5, seed=3).arrays() for _ in range(2))
    for key in first:
        np.testing.assert_array_equal(first[key], second[key])


@pytest.mark.parametrize("make", LEARNERS)
def test_start_forgets(make):
    X = contexts(20)
    rewards = np.random.default_rng(1).normal(size=(20, len(SPACE)))
    policy = train(make(), X, SPACE, rewards, 5)
    assert policy.coverage > 0
    policy.start(X, SPACE)
    assert policy.coverage == 0
    assert (policy.predict(X) == SPACE.safe).all()


@pytest.mark.parametrize("make", LEARNERS)
def test_greedy_is_an_action_that_was_tried(make):
    policy = make()
    policy.start(contexts(20), SPACE)
    for state in policy.encode(contexts(20)):
        policy.update(state, 5, -50.0)
    assert set(policy.predict(contexts(20))) == {5}
    assert policy.predict([[np.inf, 0.0]]) == [SPACE.safe]


@pytest.mark.parametrize("make", LEARNERS)
def test_garbage_contexts_and_rewards(make):
    policy = make()
    with pytest.raises(ValueError, match="call start"):
        policy.encode(contexts(2))
    with pytest.raises(ValueError, match="call start"):
        policy.to_dict()
    with pytest.raises(ValueError, match=r"contexts\[1, 0\] is NaN"):
        policy.start([[1.0, 2.0], [np.nan, 1.0]], SPACE)
    for nothing in (np.empty((0, 2)), [[np.inf, 1.0]]):
        with pytest.raises(ValueError, match="at least one problem"):
            policy.start(nothing, SPACE)
    with pytest.raises(ValueError, match="shape"):
        policy.start([1.0, 2.0], SPACE)
    policy.start(contexts(3), SPACE)
    with pytest.raises(ValueError, match="NaN"):
        policy.encode([[1.0, np.nan]])
    with pytest.raises(ValueError, match="pass the same"):
        policy.encode([[1.0]])
    for reward in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="finite reward"):
            policy.update(policy.encode(contexts(3))[0], 0, reward)
    assert (policy.predict(contexts(3)) == SPACE.safe).all()


@pytest.mark.parametrize("make", LEARNERS)
@pytest.mark.parametrize(
    "X",
    [
        [[3.0, 1.0]],
        [[3.0, 1.0]] * 10,
        [[3.0, x] for x in range(10)],
        [[1e300, -1e300], [-1e300, 1e300]],
        [[3.0, 1.0], [np.inf, 1.0]],
    ],
    ids=["one problem", "all alike", "constant feature", "huge", "one infinite"],
)
def test_degenerate_training_sets(make, X):
    if 1e300 in X[0]:
        X = np.array(X) / 3
    for space in (list_space(STAGES, ["fp32-fp32-fp64-fp64"]), SPACE):
        rewards = np.tile(np.linspace(1, 0, len(space)), (len(X), 1))
        policy = train(make(), X, space, rewards, 40)
        assert all(0 <= i < len(space) for i in policy.predict(X))
        assert policy.predict(np.vstack([X, [[1.0, 1.0]]])).shape == (len(X) + 1,)


@pytest.mark.parametrize("make", [*LEARNERS, *BASELINES])
def test_foreign_and_corrupt_files(make):
    policy = train(make(), contexts(40), SPACE, np.zeros((40, len(SPACE))), 2)
    saved, arrays = policy.to_dict(), policy.arrays()
    with pytest.raises(ValueError, match="install the Roundwise"):
        load_policy(saved | {"version": 99}, arrays)
    with pytest.raises(ValueError, match="save it again"):
        load_policy({"policy": policy.name, "version": 1}, arrays)
    with pytest.raises(KeyError, match="known: "):
        load_policy(saved | {"policy": "pickle"}, arrays)
    with pytest.raises(KeyError, match="known: "):
        load_policy([], {})
    with pytest.raises(KeyError, match="known: "):
        load_policy({"policy": []}, {})
    other = "fixed" if policy.name != "fixed" else "theory"
    with pytest.raises(ValueError, match="is no"):
        POLICIES[other].from_dict(saved, arrays)
    for key in arrays:
        with pytest.raises(ValueError, match="save"):
            load_policy(saved, {k: a for k, a in arrays.items() if k != key})
        with pytest.raises(ValueError, match=r"save|one column"):
            load_policy(saved, arrays | {key: arrays[key][..., :-1]})


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: TabularQ(alpha=0), ValueError),
        (lambda: TabularQ(alpha=np.nan), ValueError),
        (lambda: TabularQ(alpha="N"), ValueError),
        (lambda: TabularQ(epsilon_min=1.5), ValueError),
        (lambda: TabularQ(generalise="magic"), ValueError),
        (
            lambda: TabularQ(generalise="monotone", hard_features=[2]).start([[1.0]], LINE),
            ValueError,
        ),
        (lambda: LinearUCB(alpha=-1), ValueError),
        (lambda: LinearUCB(ridge=0), ValueError),
        (lambda: LinearUCB(knots=1.5), ValueError),
        (lambda: LinearUCB(model="deep"), ValueError),
        (lambda: ThompsonSampling(noise=np.inf), ValueError),
        (lambda: RegressionPolicy(regressor="forest"), TypeError),
        (
            lambda: RegressionPolicy(small_forest(), kappa_feature=1).start([[1.0]], LINE),
            ValueError,
        ),
        (lambda: FixedAction(99).start([[1.0]], LINE), ValueError),
        (lambda: FixedAction("fp16").start([[1.0]], LINE), ValueError),
        (lambda: TheoryRule(target=0), ValueError),
        (lambda: TheoryRule(limit="hope"), ValueError),
        (lambda: TheoryRule().start([[1.0]], LINE), ValueError),
        (lambda: TheoryRule(kappa_feature=3).start([[1.0]], SPACE), ValueError),
        (lambda: TheoryRule(costs=[1.0]).start([[1.0]], SPACE), ValueError),
        (lambda: Escalation("fp64"), TypeError),
        (lambda: Oracle([[np.nan]]), ValueError),
        (lambda: Oracle([1.0]), ValueError),
    ],
)
def test_garbage_settings(make, error):
    with pytest.raises(error):
        make()


def test_top_25_of_the_paper_trains():
    space = SPACE.last(25)
    rewards = threshold_rewards(contexts(30), space)
    policy = train(TabularQ(), contexts(30), space, rewards, 50)
    assert (rewards.max(axis=1) - rewards[np.arange(30), policy.predict(contexts(30))]).mean() < 20


@pytest.mark.parametrize(("greedy", "chosen"), [("tried", "fp32"), ("all", "fp64")])
def test_untried_actions_count_as_zero_where_the_argmax_runs_over_all(greedy, chosen):
    space = list_space(["factor"], ["bf16", "fp32", "fp64"])
    policy = TabularQ(greedy=greedy)
    policy.start([[1.0], [8.0]], space)
    state, unseen = policy.encode([[1.0], [4.0]])
    policy.update(state, 1, -3.0)
    assert space.names[policy.choose(state)] == chosen  # of the untried ones, worth 0, the highest
    assert policy.rank(state).first == policy.choose(state)
    assert policy.choose(unseen) == space.safe
    policy.update(state, 0, 1.0)
    assert space.names[policy.choose(state)] == "bf16"


def test_a_greedy_rule_must_be_known():
    with pytest.raises(ValueError, match="choose 'tried' or 'all'"):
        TabularQ(greedy="some")
