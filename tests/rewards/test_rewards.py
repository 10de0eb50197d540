"""Rewards against values computed by hand, and the laws they must obey."""

import dataclasses
import json
import math
from typing import ClassVar

import numpy as np
import pytest

import roundwise as rw
from roundwise.actions import as_action, list_space, monotone_space
from roundwise.algorithms.stage import Tally
from roundwise.costs import (
    BITS_PROPORTIONAL,
    GENERIC_AVX512_CPU,
    H200_LIKE,
    PROFILES,
    MachineProfile,
    MeasuredTime,
    Rate,
)
from roundwise.rewards import (
    PAPER_W1,
    PAPER_W2,
    BackwardErrorTarget,
    CostReward,
    PaperReward,
    ProblemFacts,
    Reward,
    StrictTarget,
    reward_from_dict,
)
from roundwise.rewards.base import reward_matrix, target_from_dict, with_baseline

STAGES = rw.GmresIR.stages
FP64 = as_action("fp64-fp64-fp64-fp64")
MIXED = as_action("bf16-tf32-fp32-fp64")


def outcome(action="", ferr=1e-8, nbe=1e-16, inner=4, status="CONVERGED", **more):
    return rw.Outcome(
        rw.OutcomeStatus[status],
        None,
        ferr=ferr,
        nbe=nbe,
        inner_iterations=inner,
        action=action,
        **more,
    )


def facts(kappa=1e3, norm_A=3.0, norm_x_true=2.0, norm_b=4.0, n=100, baseline=None):
    return ProblemFacts(n, kappa, norm_A, norm_x_true, norm_b, baseline)


# --- the paper's reward ---------------------------------------------------------------------


def test_paper_precision_by_hand():
    # kappa = 1e3: d = 1 + 3 = 4. Bits 8, 11, 24, 53:
    # 53 (1/8 + 1/11 + 1/24 + 1/53) / 4 = (6.625 + 4.8181818 + 2.2083333 + 1) / 4 = 3.6628788.
    for reward in (PAPER_W1, PAPER_W2):
        precision = reward.components(outcome(), facts(), MIXED)["precision"]
        assert precision == pytest.approx(
            reward.w2 * (53 / 8 + 53 / 11 + 53 / 24 + 1) / 4, rel=1e-14
        )
        assert precision == pytest.approx(reward.w2 * 3.6628788, rel=1e-7)
    # All-FP64 with kappa = 1: d = 1, four stages of 1 each.
    assert PAPER_W2.components(outcome(), facts(kappa=1.0), FP64)["precision"] == 4.0


def test_paper_accuracy_by_hand():
    # ||x|| = 2, ||A|| = 3, ||b|| = 4: the scale is 3 * 2 + 4 = 10 and ferr = 1e-5 gives
    # e_ref = 1e-5 (up to epsilon), e_scaled = 1e-6, so f = 5 + 6 = 11.
    reward = PaperReward(w1=2.0, c1=3.0)
    assert reward.errors(outcome(ferr=1e-5), facts()) == pytest.approx((1e-5, 1e-6), rel=1e-9)
    parts = reward.components(outcome(ferr=1e-5), facts(), FP64)
    assert parts["accuracy"] == pytest.approx(2 * 3 * 11, rel=1e-9)


def test_paper_epsilon_in_the_denominators():
    # With epsilon = 0.5: e_ref = 0.1 * 2 / 2.5 = 0.08, e_scaled = 0.1 / 10.5; both logarithms
    # are floored at log10 0.5.
    reward = PaperReward(epsilon=0.5)
    assert reward.errors(outcome(ferr=0.1), facts()) == pytest.approx((0.08, 0.1 / 10.5))
    accuracy = reward.components(outcome(ferr=0.1), facts(), FP64)["accuracy"]
    assert accuracy == pytest.approx(-2 * math.log10(0.5))


def test_paper_accuracy_has_a_floor_at_epsilon():
    # Below 1e-10 nothing is gained: f = 10 + 10, for an error of 0 too.
    for ferr in (0.0, 1e-300, 1e-16, 1e-10):
        assert PAPER_W1.components(outcome(ferr=ferr), facts(), FP64)["accuracy"] == 20.0


def test_paper_iterations_by_hand():
    for inner, expected in [(0, 0.0), (1, 0.0), (2, -0.5), (8, -1.5), (1024, -5.0)]:
        reward = PaperReward(lambda_iter=0.5)
        parts = reward.components(outcome(inner=inner), facts(), FP64)
        assert parts["iterations"] == expected
        assert not (expected == 0 and math.copysign(1, parts["iterations"]) < 0)


def test_paper_cap_is_beyond_one_only():
    # norm_x_true = 0: ferr is absolute, e_ref = ferr / epsilon, so that E = 1 is exact.
    zero = facts(norm_x_true=0.0, norm_b=0.0)
    reward = PaperReward(epsilon=0.25)
    assert reward.errors(outcome(ferr=0.25), zero) == (1.0, 1.0)
    assert reward.components(outcome(ferr=0.25), zero, FP64)["accuracy"] == 0.0
    above = outcome(ferr=math.nextafter(0.25, 1))
    assert reward.components(above, zero, FP64)["accuracy"] == -5.0
    # Either error alone triggers it: e_ref = 2, e_scaled = 0.2; then e_ref = 0.5, e_scaled = 5.
    assert PAPER_W1.components(outcome(ferr=2.0), facts(), FP64)["accuracy"] == -5.0
    small = facts(norm_A=0.01, norm_x_true=1.0, norm_b=0.09)
    assert PAPER_W1.components(outcome(ferr=0.5), small, FP64)["accuracy"] == -5.0


def test_paper_failure_is_capped():
    failed = rw.Outcome(rw.OutcomeStatus.ZERO_PIVOT, None)
    parts = PAPER_W2.components(failed, facts(kappa=10.0), MIXED)
    assert parts["accuracy"] == -5.0
    assert parts["iterations"] == 0.0


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_paper_kappa_below_one_counts_as_one(kappa):
    assert PAPER_W2.components(outcome(), facts(kappa=kappa), FP64)["precision"] == 4.0


def test_paper_infinite_kappa_leaves_no_precision_term():
    assert PAPER_W2.components(outcome(), facts(kappa=math.inf), MIXED)["precision"] == 0.0


def test_paper_reward_is_the_sum_of_its_components():
    # 0.1 * 1 (four FP64 stages, d = 4) + (8 + 9) - log2 4 = 15.1.
    assert PAPER_W1(outcome(), facts(), FP64) == pytest.approx(15.1, rel=1e-9)
    assert sum(PAPER_W1.components(outcome(), facts(), FP64).values()) == PAPER_W1(
        outcome(), facts(), FP64
    )
    assert (PAPER_W1.w1, PAPER_W1.w2, PAPER_W2.w1, PAPER_W2.w2) == (1.0, 0.1, 1.0, 1.0)


def test_paper_monotonicity():
    def reward(action=MIXED, kappa=1e3, **changes):
        return PAPER_W2(outcome(**changes), facts(kappa=kappa), action)

    by_error = [reward(ferr=e) for e in (1e-9, 1e-6, 1e-3, 0.9, 2.0)]
    by_work = [reward(inner=t) for t in (1, 2, 5, 100)]
    by_kappa = [reward(kappa=k) for k in (1e0, 1e2, 1e5, 1e12)]
    by_bits = [reward(as_action("-".join([f] * 4))) for f in ("bf16", "tf32", "fp32", "fp64")]
    for values in (by_error, by_work, by_kappa, by_bits):
        assert all(np.diff(values) < 0)


def test_paper_refuses_what_it_cannot_know():
    with pytest.raises(ValueError, match="x_true"):
        PAPER_W1(outcome(ferr=math.nan), facts(), FP64)
    with pytest.raises(ValueError, match="x_true"):
        PAPER_W1(outcome(), facts(norm_x_true=math.nan), FP64)
    for bad in ({"w1": -1.0}, {"lambda_iter": math.nan}, {"c1": math.inf}, {"epsilon": 0.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            PaperReward(**bad)


# --- facts ----------------------------------------------------------------------------------


def test_facts_of_a_problem():
    problem = rw.LinearSystem([[3.0, -4.0], [0.0, 2.0]], [3.0, -4.0], x_true=[1.0, -2.0])
    made = ProblemFacts.from_problem(problem, kappa=5.0)
    assert made == ProblemFacts(n=2, kappa=5.0, norm_A=7.0, norm_x_true=2.0, norm_b=5.0)
    assert ProblemFacts.from_stored(made, kappa=5.0) == made
    unknown = ProblemFacts.from_problem(rw.LinearSystem([[1e200]], [1e200]), kappa=1.0)
    assert math.isnan(unknown.norm_x_true)
    assert unknown.norm_b == 1e200


@pytest.mark.parametrize(
    "bad",
    [{"kappa": math.nan}, {"norm_A": -1.0}, {"norm_b": math.nan}, {"n": 0}, {"norm_x_true": -1.0}],
)
def test_facts_refuse_garbage(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        facts(**bad)


# --- machine profiles -----------------------------------------------------------------------

TINY = MachineProfile(
    "tiny",
    {"fp64": Rate(10.0, 100.0), "bf16": Rate(40.0, 100.0)},
    outer_overhead=0.5,
    inner_overhead=0.25,
)


def run(action, operations=None, **more):
    return outcome(action, operations=operations or {}, **more)


def test_roofline_by_hand():
    # factor: max(400 / 40, 100 / 100) = 10; gmres: max(20 / 10, 1000 / 100) = 10;
    # overheads: 3 * 0.5 + 4 * 0.25 = 2.5.
    operations = {("factor", "bf16"): Tally(400, 100), ("gmres", "fp64"): Tally(20, 1000)}
    assert TINY.cost(run("", operations, outer_iterations=3)) == 22.5
    assert TINY.cost(run("", {}, inner=0)) == 0.0


def test_bits_proportional_by_hand():
    # A flop costs p / 53 and traffic nothing: 53 * (8 / 53) + 10 = 18.
    operations = {("factor", "bf16"): Tally(53, 1e9), ("gmres", "fp64"): Tally(10, 1e9)}
    assert BITS_PROPORTIONAL.cost(run("", operations)) == pytest.approx(18.0, rel=1e-14)
    assert set(BITS_PROPORTIONAL.rates) == set(rw.formats.NAMED_FORMATS)


def test_a_format_the_machine_lacks_is_an_error():
    operations = {("factor", "e4m3"): Tally(1, 1)}
    with pytest.raises(rw.RoundwiseError, match=r"cannot run e4m3.*leave e4m3 out"):
        GENERIC_AVX512_CPU.cost(run("", operations))
    assert H200_LIKE.cost(run("", operations)) > 0


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_shipped_profiles(profile):
    # Fewer bits never cost more, for the same flops and numbers.
    ordered = [f for f in ("bf16", "tf32", "fp32", "fp64") if f in profile.rates]
    for flops, numbers in [(1e9, 0), (1e3, 1e6), (1e6, 1e6)]:
        costs = [
            profile.cost(
                run("", {("s", f): Tally(flops, numbers * rw.get_format(f).storage_bytes)})
            )
            for f in ordered
        ]
        assert all(np.diff(costs) >= 0)
    saved = json.loads(json.dumps(profile.to_dict(), allow_nan=False))
    assert MachineProfile.from_dict(saved) == profile
    assert profile.source
    assert PROFILES[profile.name] is profile


def test_h200_ratios_are_those_of_the_data_sheet():
    def factorization(fmt):
        return H200_LIKE.cost(run("", {("factor", fmt): Tally(1e15, 1.0)}))

    assert factorization("fp64") / factorization("bf16") == pytest.approx(989 / 67)
    assert factorization("fp64") / factorization("tf32") == pytest.approx(494 / 67)
    assert factorization("fp64") == factorization("fp32")


def test_profiles_refuse_garbage():
    with pytest.raises(ValueError, match="flops_per_second"):
        Rate(0.0)
    with pytest.raises(ValueError, match="bytes_per_second"):
        Rate(1.0, math.nan)
    with pytest.raises(ValueError, match="rates"):
        MachineProfile("none", {})
    with pytest.raises(ValueError, match="inner_overhead"):
        dataclasses.replace(TINY, inner_overhead=-1.0)
    for saved in ({}, {"rates": 3}, None, {"rates": {"fp64": {"speed": 1}}, "name": "x"}):
        with pytest.raises(ValueError, match="not a saved machine profile"):
            MachineProfile.from_dict(saved)


SIZED = MachineProfile(
    "sized",
    {"fp64": Rate(400.0, 4.0)},
    run_overhead=3.0,
    sizes={400: {"fp64": Rate(400.0, 4.0)}, 100: {"fp64": Rate(100.0, 1.0)}},
)


def test_rates_by_size():
    assert list(SIZED.sizes) == [100, 400]
    assert SIZED.rate("fp64") == Rate(400.0, 4.0)
    assert SIZED.rate("fp64", 10**6).flops_per_second == pytest.approx(400.0)
    assert SIZED.rate("fp64", 1) == SIZED.rate("fp64", 100)
    between = SIZED.rate("fp64", 200)  # half way in log n
    assert between.flops_per_second == pytest.approx(200.0)
    assert between.bytes_per_second == pytest.approx(2.0)
    operations = {("gmres", "fp64"): Tally(1000.0, 1.0)}
    assert SIZED.cost(run("", operations, inner=0), 100) == pytest.approx(13.0)
    assert SIZED.cost(run("", operations, inner=0)) == pytest.approx(5.5)  # its size is not known
    assert SIZED.cost(run("", {}, inner=0)) == 0.0  # a run that could not start
    assert MachineProfile.from_dict(json.loads(json.dumps(SIZED.to_dict()))) == SIZED


def test_the_size_follows_from_the_factorization():
    operations = {("factor", "fp64"): Tally(2 / 3 * 200**3, 1.0)}
    expected = 3.0 + 2 / 3 * 200**3 / 200.0
    assert SIZED.cost(run("", operations, inner=0)) == pytest.approx(expected)
    assert SIZED.cost(run("", operations, inner=0), 200) == pytest.approx(expected)


def test_traffic_may_be_free_at_every_size():
    free = MachineProfile("free", {"fp64": Rate(1.0)}, sizes={10: {"fp64": Rate(1.0)}})
    assert free.rate("fp64", 10) == Rate(1.0)


def test_sizes_need_the_rates_of_every_format():
    for sizes in ({100: {}}, {0: {"fp64": Rate(1.0)}}, {100: {"fp32": Rate(1.0)}}):
        with pytest.raises(ValueError, match="pass sizes of at least 1, each with rates for fp64"):
            dataclasses.replace(SIZED, sizes=sizes)


def test_profiles_saved_without_sizes_still_load():
    saved = {"name": "old", "rates": {"fp64": {"flops_per_second": 1.0, "bytes_per_second": None}}}
    saved |= {"outer_overhead": 0.0, "inner_overhead": 0.0, "source": ""}
    assert MachineProfile.from_dict(saved) == MachineProfile("old", {"fp64": Rate(1.0)})


def test_operations_that_were_not_counted_have_no_price():
    uncounted = run("", {("factor", "fp64"): Tally(math.nan, 1.0)})
    with pytest.raises(rw.RoundwiseError, match="flops of factor were not counted"):
        SIZED.cost(uncounted)


def test_measured_time():
    timed = outcome("fp64")
    with pytest.raises(ValueError, match="no measured time"):
        MeasuredTime().cost(timed)
    assert MeasuredTime().cost(dataclasses.replace(timed, seconds=0.125)) == 0.125
    run = rw.LuIR().run(rw.problems.randsvd(20, 10, rng=0), "fp64-fp64-fp64")
    assert MeasuredTime().cost(run) == run.seconds > 0


# --- targets --------------------------------------------------------------------------------


def test_backward_error_target():
    default = BackwardErrorTarget()
    limit = 10 * 2.0**-53  # sqrt(100) u
    assert default.met(outcome(nbe=limit), facts())
    assert not default.met(outcome(nbe=math.nextafter(limit, 1)), facts())
    assert BackwardErrorTarget(1e-6).met(outcome(nbe=1e-6, ferr=math.nan), facts())
    for nbe in (math.nan, math.inf):
        assert not BackwardErrorTarget(1e-6).met(outcome(nbe=nbe), facts())
    with pytest.raises(ValueError, match="tolerance"):
        BackwardErrorTarget(0.0)


def test_strict_target():
    target = StrictTarget(1e-6)
    hard, easy = facts(baseline=outcome(ferr=1e-3)), facts(baseline=outcome(ferr=1e-12))
    assert target.met(outcome(nbe=1e-6, ferr=1e-6), easy)
    assert not target.met(outcome(nbe=1e-6, ferr=1.1e-6), easy)
    assert target.met(outcome(nbe=1e-6, ferr=1e-2), hard)  # ten times the baseline's
    assert not target.met(outcome(nbe=1e-6, ferr=1.1e-2), hard)
    assert not target.met(outcome(nbe=1.1e-6, ferr=1e-9), easy)
    assert not target.met(outcome(nbe=math.nan), easy)
    # A baseline without a result gives no slack.
    assert not target.met(outcome(ferr=1e-3), facts(baseline=outcome(ferr=math.inf)))
    with pytest.raises(ValueError, match="x_true"):
        target.met(outcome(ferr=math.nan), easy)
    with pytest.raises(ValueError, match="baseline"):
        target.met(outcome(), facts())
    with pytest.raises(ValueError, match="tau"):
        StrictTarget(0.0)


# --- the cost reward ------------------------------------------------------------------------

SPACE = list_space(["s"], ["bf16", "fp64"])
LOW, HIGH = SPACE.actions
REWARD = CostReward(
    MachineProfile("m", {"bf16": Rate(1.0), "fp64": Rate(1.0)}), BackwardErrorTarget(1e-8)
)


def priced(action, cost, nbe=1e-16, **more):
    return run(action, {("s", action): Tally(cost, 0)}, nbe=nbe, **more)


def test_cost_reward_by_hand():
    known = facts(baseline=priced("fp64", 8.0))
    assert REWARD.components(priced("bf16", 2.0), known, LOW) == {"saving": 2.0, "fallback": 0.0}
    assert REWARD(priced("bf16", 32.0), known, LOW) == -2.0  # good, but slower
    # A miss at a cost of 24 pays 24 + 8: log2(8 / 32) = -2.
    missed = priced("bf16", 24.0, nbe=1e-3)
    assert REWARD.components(missed, known, LOW) == {"saving": 0.0, "fallback": -2.0}
    assert REWARD(priced("fp64", 8.0), known, HIGH) == 0.0


def test_failures_never_pay():
    known = facts(baseline=priced("fp64", 8.0))
    rewards = [
        REWARD(priced("bf16", c, nbe=math.inf), known, LOW) for c in (0.0, 1e-9, 1.0, 8.0, 1e9)
    ]
    assert rewards[0] == 0.0
    assert all(np.diff(rewards) < 0)
    assert REWARD(priced("bf16", 1.0, nbe=math.nan), known, LOW) < 0


def test_the_baseline_has_nothing_to_fall_back_to():
    known = facts(baseline=priced("fp64", 8.0, nbe=1e-3))
    assert REWARD(priced("fp64", 8.0, nbe=1e-3), known, HIGH) == 0.0
    assert REWARD(priced("bf16", 8.0, nbe=1e-3), known, LOW) == -1.0


def test_cost_reward_refuses_what_it_cannot_price():
    with pytest.raises(ValueError, match="baseline"):
        REWARD(priced("bf16", 1.0), facts(), LOW)
    with pytest.raises(ValueError, match="costs nothing"):
        REWARD(priced("bf16", 1.0), facts(baseline=priced("fp64", 0.0)), LOW)
    with pytest.raises(ValueError, match="not counted"):
        REWARD(priced("bf16", 0.0), facts(baseline=priced("fp64", 1.0)), LOW)


def test_rows_find_the_baseline_and_matrices_are_rows():
    rows = [
        [priced("bf16", 2.0), priced("fp64", 8.0)],
        [priced("bf16", 4.0, nbe=1.0), priced("fp64", 4.0)],
        [None, priced("fp64", 4.0)],
    ]
    matrix = reward_matrix(REWARD, rows, [facts()] * 3, SPACE)
    np.testing.assert_array_equal(matrix, [[2.0, 0.0], [-1.0, 0.0], [math.nan, 0.0]])
    # A baseline in the facts goes before the row's.
    row = REWARD.row(rows[0], facts(baseline=priced("fp64", 32.0)), SPACE)
    np.testing.assert_array_equal(row, [4.0, 0.0])
    assert reward_matrix(REWARD, [], [], SPACE).shape == (0, 2)


def test_rows_are_checked():
    with pytest.raises(ValueError, match="1 outcomes, the space 2"):
        REWARD.row([priced("bf16", 1.0)], facts(), SPACE)
    with pytest.raises(ValueError, match="order of the space"):
        REWARD.row([priced("fp64", 1.0), priced("bf16", 1.0)], facts(), SPACE)
    with pytest.raises(ValueError, match="baseline"):
        REWARD.row([priced("bf16", 1.0), None], facts(), SPACE)


@pytest.mark.parametrize(
    "reward",
    [
        PAPER_W2,
        CostReward(H200_LIKE, StrictTarget(1e-8)),
        CostReward(MeasuredTime()),
        CostReward(TINY, BackwardErrorTarget(1e-10)),
    ],
)
def test_rewards_survive_json(reward):
    assert reward_from_dict(json.loads(json.dumps(reward.to_dict(), allow_nan=False))) == reward


def test_a_reward_of_your_own_is_named_to_the_reader():
    @dataclasses.dataclass(frozen=True)
    class Steps(Reward):
        name: ClassVar[str] = "steps"
        price: float = 1.0

        def components(self, outcome, facts, action):
            return {"steps": -self.price * outcome.outer_iterations}

    saved = json.loads(json.dumps(Steps(2.0).to_dict()))
    assert saved == {"reward": "steps", "price": 2.0}
    assert reward_from_dict(saved, [Steps]) == Steps(2.0)
    with pytest.raises(rw.UnknownNameError, match="unknown reward 'steps'; known: paper, cost"):
        reward_from_dict(saved)

    class Bare(Reward):
        name = "bare"
        components = Steps.components

    with pytest.raises(TypeError, match="make it a frozen dataclass"):
        Bare().to_dict()


@pytest.mark.parametrize(
    "saved",
    [None, {}, {"reward": 3}, {"reward": "best"}, {"reward": "cost"}, {"reward": "paper", "w3": 1}],
)
def test_garbage_is_no_saved_reward(saved):
    with pytest.raises((ValueError, rw.UnknownNameError)):
        reward_from_dict(saved)
    with pytest.raises(ValueError, match="not a saved target"):
        target_from_dict({"target": ["strict"]})


# --- real runs ------------------------------------------------------------------------------


def test_rewards_of_real_runs():
    rng = np.random.default_rng(0)
    problem = rw.LinearSystem.from_solution(
        rng.standard_normal((30, 30)) + 12 * np.eye(30), rng.standard_normal(30)
    )
    space = monotone_space(STAGES, ["bf16", "fp32", "fp64"])
    outcomes = rw.GmresIR().run_all(problem, space)
    known = ProblemFacts.from_problem(problem, kappa=3.0)
    for profile in PROFILES.values():
        reward = CostReward(profile, StrictTarget(1e-6))
        row = reward.row(outcomes, known, space)
        assert np.isfinite(row).all()
        assert row[space.safe] == 0.0
        completed = with_baseline(known, outcomes, space)
        good = np.array([reward.target.met(outcome, completed) for outcome in outcomes])
        costs = np.array([profile.cost(outcome) for outcome in outcomes])
        assert good[space.safe]
        # By definition, over the ratio of costs.
        expected = np.where(good, np.log2(costs[space.safe] / costs), 0.0)
        np.testing.assert_allclose(row[good], expected[good], atol=1e-12)
        assert (row[~good] < 0).all()
    paper = PAPER_W1.row(outcomes, known, space)
    # e_ref recomputed from the solution itself.
    x, x_true = outcomes[0].x, problem.x_true
    e_ref = abs(x - x_true).max() / (abs(x_true).max() + 1e-10)
    assert PAPER_W1.errors(outcomes[0], known)[0] == pytest.approx(e_ref, rel=1e-12)
    assert np.isfinite(paper).all()
