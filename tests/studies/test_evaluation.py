"""Evaluation against counts by hand, brute force on tiny tables, and known coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest

import roundwise as rw
from roundwise.actions import list_space
from roundwise.algorithms import Tally
from roundwise.commands.outputs import format_table
from roundwise.costs import MachineProfile, Rate
from roundwise.rewards import BackwardErrorTarget, ProblemFacts
from roundwise.rewards.base import strict_success
from roundwise_studies.evaluation import (
    PAPER_RANGES,
    accuracy_table,
    best_fixed_action,
    cost_matrix,
    met_matrix,
    modelled_speedup,
    regret_table,
    regrets,
)
from roundwise_studies.evaluation.accuracy import (
    KappaRange,
    assign_ranges,
    paper_success,
    usage_table,
)
from roundwise_studies.evaluation.choices import climb_costs
from roundwise_studies.evaluation.tables import mean_interval, ratio_interval, seed_spread


def rng(seed=0):
    return np.random.default_rng(seed)


def outcome(ferr=1e-12, nbe=1e-16, outer=2, inner=3, status="CONVERGED"):
    return rw.Outcome(
        rw.OutcomeStatus[status],
        None,
        ferr=ferr,
        nbe=nbe,
        outer_iterations=outer,
        inner_iterations=inner,
    )


FAILED = rw.Outcome(rw.OutcomeStatus.ZERO_PIVOT, None)


def test_costs_and_successes_of_a_table_by_hand():
    counted = {("gmres", "fp64"): Tally(1000.0, 1.0)}
    machine = MachineProfile("toy", {"fp64": Rate(400.0, 4.0)})
    rows = [[outcome(), None], [outcome(nbe=1.0), replace(outcome(), operations=counted)]]
    costs = cost_matrix(machine, rows)
    np.testing.assert_array_equal(costs, [[0.0, math.nan], [0.0, machine.cost(rows[1][1])]])
    space, known = list_space(["factor"], ["fp32", "fp64"]), ProblemFacts(9, 9.0, 1.0, 1.0, 1.0)
    met = met_matrix(BackwardErrorTarget(), rows, [known] * 2, space)
    np.testing.assert_array_equal(met, [[True, False], [False, True]])


# --- ranges and success ---------------------------------------------------------------------


def test_ranges_are_closed_above():
    names = {}
    for kappa in (0.5, 1.0, 1e3, 1e3 * (1 + 1e-9), 1.001e3, 1e6, 2e6, 1e9, 1.1e9, 1e300, math.inf):
        (names[kappa],) = [r.name for r in PAPER_RANGES if r.contains(kappa)]
    assert list(names.values()) == [
        *["low"] * 4,
        *["medium"] * 2,
        *["high"] * 2,
        *["very high"] * 3,
    ]


def test_powers_of_ten_split_as_in_the_paper():
    members = assign_ranges(10.0 ** np.arange(1, 9))
    assert [len(m) for m in members.values()] == [3, 3, 2, 0]


def test_ranges_must_cover_each_kappa_once():
    with pytest.raises(ValueError, match="overlap"):
        assign_ranges([5.0], [KappaRange("a", 0, 10), KappaRange("b", 0, 10)])
    with pytest.raises(ValueError, match="overlap"):
        assign_ranges([50.0], [KappaRange("a", 0, 10)])
    for bad in ([math.nan], 3.0):
        with pytest.raises(ValueError, match="kappas"):
            assign_ranges(bad)


def test_paper_success_by_hand():
    # Low: kappas 10, 100, 1000 with median 100, threshold 1e-6 * 100 = 1e-4, strictly below.
    # Medium: 1e4 and 1e6, median 505000, threshold 0.505.
    kappas = [10, 100, 1000, 1e4, 1e6]
    ferr = [0.9e-4, 2.0**-20, 2e-4, 0.5, 0.6]
    nbe = [1e-9, 1e-3, 1e-9, 1e-9, 1e-9]
    assert paper_success(ferr, nbe, kappas, 1e-6).tolist() == [True, False, False, True, False]
    # Exactly at the threshold is no success (2**-10 * 8 is exact).
    at = 8 * 2.0**-10
    assert paper_success([at, math.nextafter(at, 0)], [0, 0], [8, 8], 2.0**-10).tolist() == [
        False,
        True,
    ]


def test_paper_success_is_vacuous_for_large_kappa():
    # tau * 1e8 = 100: x = 0 (ferr = 1) succeeds; no result, or NaN, does not.
    success = paper_success([1.0, math.inf, math.nan], [1.0, math.inf, 0.0], [1e8] * 3, 1e-6)
    assert success.tolist() == [True, False, False]
    # Without any finite kappa the threshold is infinite; inf < inf is still false.
    assert paper_success([1.0, math.inf], [1.0, 1.0], [math.inf] * 2, 1e-6).tolist() == [
        True,
        False,
    ]


def test_strict_success_by_hand():
    tau = 1e-6
    cases = [  # ferr, nbe, ferr of the baseline, success
        (1e-6, 1e-6, 1e-15, True),
        (1.1e-6, 1e-16, 1e-15, False),
        (1e-2, 1e-16, 1e-3, True),  # ten times the baseline's
        (1.1e-2, 1e-16, 1e-3, False),
        (1e-15, 1.1e-6, 1e-3, False),
        (1e-3, 1e-16, math.inf, False),  # a baseline without a result gives no slack
        (1e-7, 1e-16, math.nan, True),
        (math.nan, 1e-16, 1e-3, False),
        (1e-9, math.nan, 1e-3, False),
        (math.inf, math.inf, math.inf, False),
    ]
    ferr, nbe, baseline, expected = zip(*cases, strict=True)
    assert strict_success(ferr, nbe, baseline, tau).tolist() == list(expected)


# --- accuracy table -------------------------------------------------------------------------


def test_accuracy_table_by_hand():
    outcomes = [
        outcome(ferr=1e-8, nbe=2e-10, outer=2, inner=4),
        outcome(ferr=3e-8, nbe=4e-10, outer=4, inner=8),
        FAILED,
        outcome(ferr=0.5, nbe=1e-3, outer=1, inner=1),
    ]
    table = accuracy_table(outcomes, [outcome()] * 4, [1e1, 1e3, 1e2, 1e8], tau=1e-6)
    low, high, everything = table.ranges
    assert [r.name for r in table.ranges] == ["low", "high", "all"]  # no empty ranges
    assert (low.count, low.without_result) == (3, 1)
    assert low.threshold == pytest.approx(1e-4)
    assert low.paper_success == low.strict_success == pytest.approx(2 / 3)
    # The failed run has no errors to average, but its (no) iterations count.
    assert low.ferr == pytest.approx(2e-8)
    assert low.nbe == pytest.approx(3e-10)
    assert (low.outer_iterations, low.inner_iterations) == (2.0, 4.0)
    assert not low.vacuous
    # 1e-6 * 1e8 = 100: the paper's criterion asks for nothing.
    assert high.vacuous
    assert (high.paper_success, high.strict_success) == (1.0, 0.0)
    assert (everything.count, everything.paper_success, everything.strict_success) == (4, 0.75, 0.5)
    assert math.isnan(everything.threshold)
    assert not everything.vacuous
    text = format_table(table.to_rows())
    assert "100.0*" in text
    assert "66.7" in text


def test_accuracy_without_any_result_or_truth():
    (low, _) = accuracy_table([FAILED], [FAILED], [10.0], tau=1e-6).ranges
    assert (low.paper_success, low.strict_success, low.without_result) == (0.0, 0.0, 1)
    assert math.isnan(low.ferr)
    assert math.isnan(low.nbe)
    (low, _) = accuracy_table([outcome(ferr=math.nan)], [outcome()], [10.0], tau=1e-6).ranges
    assert low.without_result == 0
    assert math.isnan(low.ferr)
    assert low.nbe == 1e-16


def test_accuracy_table_refuses_garbage():
    with pytest.raises(ValueError, match="1 outcomes, 0 baselines"):
        accuracy_table([FAILED], [], [1.0], 1e-6)
    with pytest.raises(ValueError, match="at least one"):
        accuracy_table([], [], [], 1e-6)
    with pytest.raises(ValueError, match="tau"):
        accuracy_table([FAILED], [FAILED], [1.0], 0.0)


# --- precision usage ------------------------------------------------------------------------


def test_usage_by_hand():
    space = list_space(["factor", "residual"], ["bf16-fp64", "fp32-fp32", "fp64-fp64"])
    # Two low problems with bf16-fp64 and fp32-fp32, one high with fp64-fp64.
    table = usage_table([0, 1, 2], space, [10, 100, 1e8])
    low, high, everything = table.ranges
    assert low.formats == {"bf16": 0.5, "fp32": 1.0, "fp64": 0.5}
    assert high.formats == {"bf16": 0.0, "fp32": 0.0, "fp64": 2.0}
    assert low.stages["factor"] == {"bf16": 0.5, "fp32": 0.5, "fp64": 0.0}
    assert low.stages["residual"] == {"bf16": 0.0, "fp32": 0.5, "fp64": 0.5}
    assert everything.formats == pytest.approx({"bf16": 1 / 3, "fp32": 2 / 3, "fp64": 1.0})
    assert len(table.to_rows()) == 3


def test_usage_sums_to_the_number_of_stages():
    from roundwise.actions import monotone_space

    space = monotone_space(rw.GmresIR.stages, ["bf16", "tf32", "fp32", "fp64"]).last(25)
    draw = rng()
    table = usage_table(draw.integers(25, size=200), space, 10 ** draw.uniform(0, 12, 200))
    assert sum(r.count for r in table.ranges[:-1]) == table.ranges[-1].count == 200
    for r in table.ranges:
        assert sum(r.formats.values()) == pytest.approx(4)
        assert all(sum(s.values()) == pytest.approx(1) for s in r.stages.values())


@pytest.mark.parametrize("bad", [[0, 3], [0, -1], [0.0, 1.0], [0], []])
def test_usage_refuses_garbage(bad):
    space = list_space(["s"], ["bf16", "fp32", "fp64"])
    with pytest.raises(ValueError, match=r"chosen action"):
        usage_table(bad, space, [1.0, 2.0])


# --- regret ---------------------------------------------------------------------------------

R = np.array([[1.0, 5.0, 3.0], [4.0, 0.0, 3.0], [2.0, 2.0, 2.5]])


def test_regret_by_brute_force():
    draw = rng(1)
    rewards = draw.standard_normal((7, 4))
    chosen = draw.integers(4, size=(3, 7))
    expected = [[max(rewards[i]) - rewards[i][chosen[s, i]] for i in range(7)] for s in range(3)]
    np.testing.assert_allclose(regrets(rewards, chosen), expected)
    np.testing.assert_allclose(regrets(rewards, chosen[0]), expected[0])
    assert (regrets(rewards, rewards.argmax(axis=1)) == 0).all()


def test_regret_table_by_hand():
    # Oracle 5, 4, 2.5. Means of the columns: 7/3, 7/3, 8.5/3: action 2 is the best fixed one.
    table = regret_table(R, {"mine": [1, 2, 0]}, safe=0, rng=rng())
    mine = table["mine"]  # 5, 3, 2: mean 10/3
    assert mine.reward == pytest.approx(10 / 3)
    assert mine.oracle.value == pytest.approx((0 + 1 + 0.5) / 3)
    assert mine.best_fixed.value == pytest.approx((3 - 5 + 3 - 3 + 2.5 - 2) / 3)
    assert mine.fp64.value == pytest.approx((1 - 5 + 4 - 3 + 2 - 2) / 3)
    assert table["oracle"].oracle.value == table["oracle"].oracle.high == 0.0
    assert table["best fixed"].oracle.value == pytest.approx((2 + 1 + 0) / 3)
    assert table["best fixed"].best_fixed.value == table["all-FP64"].fp64.value == 0.0
    assert table["all-FP64"].oracle.value == pytest.approx((4 + 0 + 0.5) / 3)
    assert table.count == 3
    with pytest.raises(KeyError, match="best"):
        table["yours"]
    # A fixed action chosen elsewhere.
    assert regret_table(R, {}, 0, rng(), fixed=1)["best fixed"].reward == pytest.approx(7 / 3)


def test_seeds_are_averaged_and_their_spread_is_told():
    # Regrets of the two seeds: (0 + 0 + 0.5) / 3 and (4 + 4 + 0.5) / 3.
    table = regret_table(R, {"mine": [[1, 0, 0], [0, 1, 1]]}, safe=0, rng=rng())
    low, high = 0.5 / 3, 8.5 / 3
    seeds = table["mine"].seeds
    assert (seeds.low, seeds.high, seeds.seeds) == (pytest.approx(low), pytest.approx(high), 2)
    assert seeds.mean == table["mine"].oracle.value == pytest.approx((low + high) / 2)
    assert seeds.std == pytest.approx((high - low) / math.sqrt(2))
    assert math.isnan(table["oracle"].seeds.std)
    assert len(format_table(table.to_rows()).splitlines()) == 2 + 4


def test_seed_spread_by_hand():
    spread = seed_spread([1.0, 2.0, 6.0])
    assert (spread.mean, spread.low, spread.high, spread.seeds) == (3.0, 1.0, 6.0, 3)
    assert spread.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    with pytest.raises(ValueError, match="seed"):
        seed_spread([])


def test_rewards_that_are_not_known():
    gaps = R.copy()
    gaps[0, 1] = math.nan  # now 3 is the best of the first problem, and action 1 cannot be fixed
    assert regrets(gaps, [2, 0, 2]).tolist() == [0.0, 0.0, 0.0]
    gaps[:, 1] = [math.nan, 100.0, 100.0]
    assert best_fixed_action(gaps) == 2
    with pytest.raises(ValueError, match="no value"):
        regrets(gaps, [1, 1, 1])
    with pytest.raises(ValueError, match="no action has a reward"):
        best_fixed_action(np.where(np.eye(3, dtype=bool), math.nan, 1.0))
    with pytest.raises(ValueError, match="a problem has no action"):
        regrets(np.full((2, 2), math.nan), [0, 0])


@pytest.mark.parametrize("bad", [[0, 1], [0, 1, 3], [0, 1, -1], [0.0, 1.0, 2.0], [], [[[0, 1, 2]]]])
def test_choices_are_checked(bad):
    with pytest.raises(ValueError, match="mine"):
        regret_table(R, {"mine": bad}, 0, rng())


def test_regret_table_refuses_garbage():
    with pytest.raises(ValueError, match="oracle"):
        regret_table(R, {"oracle": [0, 0, 0]}, 0, rng())
    for bad in (np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3)):
        with pytest.raises(ValueError, match="shape"):
            regret_table(bad, {}, 0, rng())
    with pytest.raises(ValueError, match="outside"):
        regret_table(R, {}, 7, rng())


def test_ties_of_the_best_fixed_action_go_to_the_last():
    assert best_fixed_action([[1.0, 2.0, 2.0]]) == 2


# --- bootstrap ------------------------------------------------------------------------------


def test_bootstrap_of_a_constant_has_no_width():
    interval = mean_interval(np.full(20, 3.0), rng())
    assert (interval.value, interval.low, interval.high) == (3.0, 3.0, 3.0)


def test_bootstrap_of_two_points_is_binomial():
    # Resampled means of {0, 1} are 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4: the central half
    # lies between the quartiles, and the central 40 % is 1/2 alone.
    interval = mean_interval([0.0, 1.0], rng(), resamples=20_000, confidence=0.4)
    assert (interval.low, interval.value, interval.high) == (0.5, 0.5, 0.5)
    interval = mean_interval([0.0, 1.0], rng(), resamples=20_000, confidence=0.9)
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_bootstrap_width_is_that_of_the_standard_error():
    x = rng(3).standard_normal(400)
    interval = mean_interval(x, rng(4), resamples=4000)
    half = 1.96 * x.std() / math.sqrt(400)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.05)
    assert interval.low < interval.value < interval.high


def test_bootstrap_coverage():
    # 300 samples of 50 exponentials with mean 1; a 90 % percentile interval covers a little less
    # often than that for a skewed law. Binomial noise of the count is 1.7 %.
    draw = rng(5)
    intervals = [mean_interval(draw.exponential(size=50), draw, 400, 0.9) for _ in range(300)]
    covered = np.mean([i.low <= 1.0 <= i.high for i in intervals])
    assert 0.82 < covered < 0.95


def test_bootstrap_is_deterministic_and_paired():
    choices = {"a": [1, 2, 0], "b": [1, 2, 0], "c": [0, 0, 0]}
    first, second = (regret_table(R, choices, 0, rng(9)) for _ in range(2))
    assert str(first) == str(second)
    assert first["a"].oracle == first["b"].oracle
    # All-FP64 chosen by hand is all-FP64.
    assert first["c"].oracle == first["all-FP64"].oracle


def test_bootstrap_in_blocks_covers_every_resample():
    # 2**20 draws at once: 300,000 numbers take three resamples at a time.
    x = rng(6).uniform(size=300_000)
    interval = mean_interval(x, rng(7), resamples=10)
    assert abs(interval.low - x.mean()) < 5 * x.std() / math.sqrt(x.size)
    assert abs(interval.high - x.mean()) < 5 * x.std() / math.sqrt(x.size)


def test_ratio_interval():
    interval = ratio_interval([2.0, 6.0], [1.0, 1.0], rng())
    assert (interval.value, interval.low, interval.high) == (4.0, 2.0, 6.0)
    # Proportional numbers have one ratio, whatever is drawn.
    y = rng(8).uniform(1, 2, 30)
    interval = ratio_interval(3 * y, y, rng())
    assert interval.low == pytest.approx(3)
    assert interval.high == pytest.approx(3)
    # Some resamples divide by zero: infinity, no warning.
    interval = ratio_interval([0.0, 1.0], [0.0, 1.0], rng())
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, math.inf)


@pytest.mark.parametrize(
    ("x", "y"),
    [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([1.0], [-1.0]), ([math.nan], [1.0])],
)
def test_ratio_refuses_garbage(x, y):
    with pytest.raises(ValueError, match=r"pass|leave|compare"):
        ratio_interval(x, y, rng())


def test_bootstrap_settings_are_checked():
    for bad in ({"resamples": 0}, {"confidence": 1.0}, {"confidence": 95}):
        with pytest.raises(ValueError, match="resamples"):
            mean_interval([1.0], rng(), **bad)


# --- speedup --------------------------------------------------------------------------------

COSTS = np.array([[1.0, 4.0], [2.0, 8.0], [3.0, 12.0]])
MET = np.array([[True, True], [False, True], [False, False]])


def test_speedup_by_hand():
    # The cheap action everywhere: 1, then 2 + 8 and 3 + 12 with the fallbacks: 26 against 24.
    result = modelled_speedup(COSTS, MET, [0, 0, 0], safe=1, rng=rng())
    assert result.speedup.value == pytest.approx(24 / 26)
    assert result.fallback_rate == pytest.approx(2 / 3)
    assert result.unsolved_rate == pytest.approx(1 / 3)
    assert result.oracle == pytest.approx(24 / (1 + 8 + 12))
    # The oracle's choice: the third problem is unsolved, but not solved twice.
    result = modelled_speedup(COSTS, MET, [0, 1, 1], safe=1, rng=rng())
    assert result.speedup.value == result.oracle
    assert result.fallback_rate == 0.0
    assert result.unsolved_rate == pytest.approx(1 / 3)
    # All-FP64 is no faster than itself; features that cost half of it make it slower.
    result = modelled_speedup(COSTS, MET, [1, 1, 1], 1, rng(), feature_costs=COSTS[:, 1] / 2)
    assert result.speedup.value == result.speedup.low == pytest.approx(2 / 3)
    assert "unsolved %" in format_table(result.to_rows())


def test_speedup_over_seeds_is_of_the_mean_cost():
    result = modelled_speedup(COSTS, MET, [[0, 0, 0], [1, 1, 1]], safe=1, rng=rng())
    assert result.speedup.value == pytest.approx(24 / ((26 + 24) / 2))
    assert result.fallback_rate == pytest.approx(2 / 6)


def test_speedup_refuses_garbage():
    with pytest.raises(ValueError, match="met is"):
        modelled_speedup(COSTS, MET[:, :1], [0, 0, 0], 1, rng())
    gaps = COSTS.copy()
    gaps[0, 0] = math.nan
    with pytest.raises(ValueError, match="no value"):
        modelled_speedup(gaps, MET, [0, 0, 0], 1, rng())
    assert modelled_speedup(gaps, MET, [1, 1, 1], 1, rng()).oracle == 1.0


# --- climbs ---------------------------------------------------------------------------------


def test_climbs_by_hand():
    costs = [[1.0, 3.0, 10.0], [1.0, 4.0, 20.0], [2.0, 5.0, 30.0]]
    met = [[True, True, True], [False, True, True], [False, False, False]]
    ladders = [(0, 1, 2), (1, 2), (2,)]
    expected = [[1, 3, 10], [1 + 4, 4, 20], [2 + 5 + 30, 5 + 30, 30]]
    np.testing.assert_array_equal(climb_costs(costs, met, ladders), expected)
    # Another ladder, downward: the second action is tried after the third one.
    found = climb_costs(costs, met, [(0, 2), (1,), (2, 1)])
    np.testing.assert_array_equal(found, [[1, 3, 10], [21, 4, 20], [32, 5, 35]])


def test_climbs_need_only_the_costs_that_they_get_to():
    costs = [[1.0, 3.0, math.nan], [2.0, 4.0, 8.0]]
    met = [[False, True, False], [False, False, True]]
    # Action 2 was not run on the first problem, whose climbs end at action 1.
    found = climb_costs(costs, met, [(0, 1, 2), (1, 2), (2,)])
    np.testing.assert_array_equal(found, [[4, 3, math.nan], [14, 12, 8]])
    with pytest.raises(ValueError, match=r"problem 0: the ladder \[0, 2\] gets to action 2"):
        climb_costs(costs, met, [(0, 2), (1,), (2,)])


@pytest.mark.parametrize("ladders", [[(0,)], [(0,), ()], [(1,), (1,)], [(0, 2), (1,)]])
def test_climbs_refuse_wrong_ladders(ladders):
    with pytest.raises(ValueError, match="ladder"):
        climb_costs(COSTS, MET, ladders)
    with pytest.raises(ValueError, match="met is"):
        climb_costs(COSTS, MET[:1], [(0,), (1,)])


# --- text -----------------------------------------------------------------------------------


def test_format_table():
    rows = [{"name": "a", "n": 5, "x": 0.123456}, {"name": "long", "n": 10, "x": math.nan, "y": 1}]
    assert format_table(rows) == "\n".join(
        ["name   n      x  y", "----  --  -----  -", "a      5  0.123", "long  10      -  1"]
    )
    assert format_table([]) == ""
