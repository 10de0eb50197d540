"""The departures of the released code: each from its definition, then a slice of the study."""

import csv
import json
import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner

from roundwise.actions import monotone_space
from roundwise.algorithms import GmresIR, Outcome, OutcomeStatus, PaperRule
from roundwise.algorithms.accuracy import ErrorMeasure
from roundwise.cli import main
from roundwise.formats import FP64, get_format
from roundwise.policies import TabularQ
from roundwise.problems import random_sparse_spd, randsvd
from roundwise.rewards import PaperReward, ProblemFacts
from roundwise.rounding import round_to
from roundwise_studies import paper
from roundwise_studies.evaluation.accuracy import assign_ranges
from roundwise_studies.paper import systems as paper_systems
from roundwise_studies.paper.systems import (
    PDE_OVERLAP,
    TEST_ABOVE,
    TRAINING_BELOW,
    released_pde_set,
    released_set,
    released_sparse_set,
)
from roundwise_studies.protocol import reproduce
from roundwise_studies.released import tables as numbers
from roundwise_studies.released.code import (
    ReleasedGmresIR,
    with_released_count,
    without_last_update,
)
from roundwise_studies.released.learning import (
    ReleasedQ,
    ReleasedReward,
    TruncatingDiscretizer,
    training_order,
)
from roundwise_studies.released.study import DepartureStudy
from roundwise_studies.released.tables import all_tables
from roundwise_studies.released.variants import ALL, DATA, DEPARTURES, Variant, variants
from roundwise_studies.simulated import Settings
from roundwise_studies.tabulating import plain_rows
from roundwise_studies.writing import write

TAU = 1e-6
SPACE = monotone_space(GmresIR.stages, ("bf16", "tf32", "fp32", "fp64")).last(25)
LOW = "tf32-fp32-fp32-fp64"


@pytest.fixture(scope="module")
def problem():
    return randsvd(30, 1e3, mode=2, rng=np.random.default_rng(5))


def released(**switches):
    return ReleasedGmresIR(tolerance=TAU, stop=PaperRule(TAU), **switches)


def seen(outcome):
    return (
        outcome.status, outcome.ferr, outcome.nbe, outcome.cbe, outcome.outer_iterations,
        outcome.inner_iterations, outcome.reason,
    )  # fmt: skip


# The solver


def test_without_departures_it_is_gmres_ir_bit_for_bit(problem):
    for ours, theirs in zip(
        released().run_all(problem, SPACE, "storage"),
        GmresIR.paper(TAU).run_all(problem, SPACE, "storage"),
        strict=True,
    ):
        assert seen(ours) == seen(theirs)
        assert ours.operations == theirs.operations


def test_tf32_is_computed_as_fp32_but_in_the_factors(problem):
    run = released(tf32_as_fp32=True).run(problem, "tf32-fp64-tf32-tf32", "storage")
    same = released().run(problem, "tf32-fp64-fp32-fp32", "storage")
    other = released().run(problem, "tf32-fp64-tf32-tf32", "storage")
    assert seen(run) == seen(same) != seen(other)


def test_the_stopping_rule_keeps_the_roundoff_of_tf32(problem):
    """A first correction below 2^-11 of x ends the run, though x is computed with 24 bits."""
    run = released(tf32_as_fp32=True).run(problem, "fp32-tf32-fp64-fp64", "storage")
    assert (run.outer_iterations, run.status) == (1, OutcomeStatus.CONVERGED)
    assert released().run(problem, "fp32-fp32-fp64-fp64", "storage").outer_iterations > 1


def test_stages_are_swapped(problem):
    run = released(swapped_stages=True).run(problem, "tf32-fp32-fp64-fp64", "storage")
    same = released().run(problem, "tf32-fp64-fp32-fp64", "storage")
    assert seen(run) == seen(same)
    assert run.action == "tf32-fp32-fp64-fp64"


def test_an_absolute_tolerance_does_not_follow_the_scale(problem):
    """A larger b has a larger residual, which an absolute tolerance asks to reduce by more."""
    counts = {}
    for scale in (2.0**-30, 1.0, 2.0**30):
        scaled = replace(problem, b=scale * problem.b, x_true=scale * problem.x_true)
        for absolute in (False, True):
            run = released(absolute_tolerance=absolute).run(scaled, LOW, "storage")
            counts[scale, absolute] = run.history[0]["inner_iterations"]
    assert len({counts[scale, False] for scale in (2.0**-30, 1.0, 2.0**30)}) == 1
    assert counts[2.0**-30, True] == 1  # one step at least
    assert counts[2.0**-30, True] < counts[1.0, True] < counts[2.0**30, True]


def test_an_absolute_residual_is_reported_in_the_units_of_the_problem(problem):
    step = released(absolute_tolerance=True).run(problem, LOW, "storage").history[0]
    assert 0 < step["inner_residual"] <= TAU
    fp64 = "tf32-fp32-fp64-fp64"
    relative, absolute = (
        released(absolute_tolerance=switch).run(problem, fp64, "storage") for switch in (0, 1)
    )
    assert seen(relative) == seen(absolute)


def test_scipy_asks_for_a_small_true_residual():
    """At kappa = 1e8 the preconditioned residual is small after one step, the true one is not."""
    tight = {"tolerance": 1e-8, "stop": PaperRule(1e-8)}
    more = 0
    for seed in range(6):  # rounding decides of which ones
        hard = randsvd(120, 1e8, mode=2, rng=np.random.default_rng(seed))
        ours, scipy = (
            ReleasedGmresIR(**tight, scipy_gmres=on).run(hard, "fp64-fp64-fp64-fp64", "storage")
            for on in (False, True)
        )
        assert [step["inner_iterations"] for step in ours.history] == [1, 1]
        assert all(step["inner_residual"] <= 1e-8 for step in scipy.history)
        more += scipy.inner_iterations - ours.inner_iterations
    assert more > 0
    low = "bf16-fp32-fp32-fp64"
    plain, same = (
        released(scipy_gmres=switch).run(hard, low, "storage") for switch in (False, True)
    )
    assert seen(plain) == seen(same)


def test_loose_rounding_solves_the_system_rounded_to_u(problem):
    """x is not rounded; it converges to the solution for A and b in the update's format."""
    run = released(loose_rounding=True).run(problem, "fp32-fp32-fp64-fp64", "storage")
    A, b = round_to(problem.A, "fp32"), round_to(problem.b, "fp32")
    expected = np.linalg.solve(A, b)
    assert np.abs(run.x - expected).max() < 1e-7 * np.abs(expected).max()
    assert not np.array_equal(run.x, round_to(run.x, "fp32"))
    assert run.ferr == pytest.approx(ErrorMeasure(problem).forward(expected), rel=1e-2)


def test_loose_rounding_changes_nothing_in_fp64(problem):
    safe = "fp64-fp64-fp64-fp64"
    loose, plain = (
        released(loose_rounding=switch).run(problem, safe, "storage") for switch in (True, False)
    )
    assert seen(loose) == seen(plain)


# What is reported


def test_the_dropped_update_leaves_x_before_it(problem):
    """The same run with a budget of one step less ends with that x."""
    full = released().run(problem, LOW, "storage")
    assert full.outer_iterations >= 2
    rule = PaperRule(TAU, max_steps=full.outer_iterations - 1)
    earlier = ReleasedGmresIR(tolerance=TAU, stop=rule).run(problem, LOW, "storage")
    dropped = without_last_update(full)
    assert (dropped.ferr, dropped.nbe) == (earlier.ferr, earlier.nbe) != (full.ferr, full.nbe)
    assert dropped.outer_iterations == full.outer_iterations
    measured = without_last_update(full, measured=True)
    assert (measured.ferr, measured.nbe) == (dropped.ferr, full.history[-1]["backward_error"])


def test_a_failure_drops_nothing():
    failed = Outcome(OutcomeStatus.OVERFLOW, None, ferr=0.5, history=({"correction": 1.0},))
    assert without_last_update(failed) is failed


def test_the_released_count():
    history = ({"inner_residual": 1e-9}, {"inner_residual": 1e-3}, {"inner_residual": 1e-6})
    run = Outcome(OutcomeStatus.STAGNATED, None, inner_iterations=17, history=history)
    assert with_released_count(run, n=50, tolerance=1e-6).inner_iterations == 50
    assert with_released_count(run, n=50, tolerance=1e-2).inner_iterations == 0


# Reward and training


def test_zero_iterations_are_charged_five():
    run = Outcome(OutcomeStatus.STAGNATED, None, ferr=1e-3, nbe=1e-9, inner_iterations=0)
    known = ProblemFacts(n=10, kappa=1e2, norm_A=1.0, norm_x_true=1.0, norm_b=1.0)
    action = GmresIR().formats("bf16-tf32-fp32-fp64")
    ours, theirs = PaperReward(lambda_iter=0.5), ReleasedReward(lambda_iter=0.5, zero_penalty=5.0)
    assert theirs(run, known, action) == ours(run, known, action) - 2.5
    counted = replace(run, inner_iterations=8)
    assert theirs(counted, known, action) == ours(counted, known, action)


def test_explicit_bits():
    run = Outcome(OutcomeStatus.STAGNATED, None, ferr=1e-3, nbe=1e-9, inner_iterations=1)
    known = ProblemFacts(n=10, kappa=1e2, norm_A=1.0, norm_x_true=1.0, norm_b=1.0)
    action = GmresIR().formats("bf16-tf32-fp32-fp64")
    part = ReleasedReward(w2=1.0, explicit_bits=True).components(run, known, action)["precision"]
    assert part == pytest.approx((52 / 7 + 52 / 10 + 52 / 23 + 1) / 3)


def test_bins_truncate():
    points = TruncatingDiscretizer(10).fit([[0.0], [9.0]])
    values = {0.0: 0, 0.9: 0, 1.0: 1, 8.99: 8, 9.0: 9, -5.0: 0, 50.0: 9}
    found = points.bin_indices([[value] for value in values]).ravel()
    assert found.tolist() == list(values.values())


def started(policy, contexts=((1.0, -3.0), (8.0, 2.0))):
    policy.start(np.array(contexts), SPACE)
    return policy


def test_untried_actions_are_worth_zero():
    ours, theirs = started(TabularQ()), started(ReleasedQ(steps=10))
    for policy in (ours, theirs):
        policy.update(0, 3, -4.0)
    assert ours.choose(0) == 3
    assert theirs.choose(0) == SPACE.safe
    theirs.update(0, 5, 1.0)
    assert theirs.choose(0) == 5
    assert theirs.choose(77) == SPACE.safe


def test_features_are_at_least_one():
    policy = started(ReleasedQ(steps=10), ((0.0, -3.0), (8.0, 0.0), (8.0, 2.0)))
    assert policy.encode([[0.0, -3.0]]) == policy.encode([[0.0, 0.0]])
    assert started(TabularQ()).encode([[1.0, -3.0]]) != started(TabularQ()).encode([[1.0, 0.0]])


def test_epsilon_decays_per_step():
    class Generator:
        asked = 0

        def random(self):
            self.asked += 1
            return 0.55

    policy, generator = started(ReleasedQ(steps=10)), Generator()
    explored = []
    for _ in range(10):
        before = generator.asked
        policy.explore(0, generator, progress=0.0)
        explored.append(generator.asked - before == 2)  # a second number draws the action
    assert explored == [True] * 5 + [False] * 5


def test_systems_are_met_from_low_to_high():
    kappas = np.array([1e8, 10.0, 1e5, 0.99999999e4, 1.000001e7, 9.999999e3, 100.0])
    assert training_order(kappas).tolist() == [1, 5, 6, 2, 3, 0, 4]  # 5 is of those below 1e4


def test_the_released_stream():
    """Python's generator with its seed; actions are numbered from high to low precision."""
    policy, expected = started(ReleasedQ(steps=100, stream=Random(42))), Random(42)
    policy.update(0, 7, 3.0)
    for step in range(100):
        explores = expected.random() < max(0.1, 1 - step / 100)
        action = 24 - expected.randint(0, 24) if explores else 7
        assert policy.explore(0, None, progress=0.0) == action


# The paper's own systems


def test_the_papers_systems_have_its_sizes():
    """The sizes of its first test systems, from its released results."""
    data = released_set(1, 4, seed=0)
    assert [p.n for p in data.test] == [285, 199, 493, 337]
    assert [p.meta["kappa"] for p in data.test] == [1e2, 1e8, 1e7, 1e6]
    system = released_set(2, 0, seed=0).train[1]
    assert np.linalg.cond(system.A) == pytest.approx(system.meta["kappa"], rel=1e-6)
    assert np.array_equal(system.A @ system.x_true, system.b)


def test_ranges_hold_as_many_systems_as_the_papers():
    draws = [kappa for _, kappa, _ in paper_systems._draws(200, 42, (100, 500))]
    test = np.array(draws[100:])
    test[list(TEST_ABOVE)] *= 1 + 1e-5
    counts = {r.name: len(members) for r, members in assign_ranges(test).items()}
    assert counts == {"low": 37, "medium": 35, "high": 28, "very high": 0}
    for i in TEST_ABOVE:
        assert draws[100 + i] in (1e3, 1e6)
    for i in TRAINING_BELOW:
        assert draws[i] in (1e4, 1e7)


def test_fewer_systems_are_the_first_ones():
    some, more = (released_set(n, n, seed=3, sizes=(5, 9)) for n in (2, 3))
    for few, many in ((some.train, more.train), (some.test, more.test)):
        assert [p.fingerprint for p in few] == [p.fingerprint for p in many[:2]]
    with pytest.raises(ValueError, match="100 training systems"):
        released_set(101, 1, seed=0)


def test_the_papers_sparse_systems_are_the_released_ones():
    """Orders, condition numbers and densities of its file train_metrics.csv."""
    known = [(202, 507509756.78, 0.025095578864817), (103, 1059063726.35, 0.023282118955604)]
    made = released_sparse_set(2, 0, seed=0)
    for system, (n, kappa, density) in zip(made.train, known, strict=True):
        assert system.n == n
        assert system.density == pytest.approx(density, rel=1e-12)
        assert np.linalg.cond(system.A.toarray()) == pytest.approx(kappa, rel=1e-6)
        assert abs(system.A - system.A.T).max() < 1e-14


def test_the_papers_pde_systems_are_the_released_ones():
    """Of its file test_metrics.csv: n, and kappa or what was drawn."""
    test = released_pde_set(0, 4, seed=0).test
    assert [system.n for system in test] == [441, 256, 400, 169]
    assert test[1].meta["eps"] == 5.908511374177027e-05
    assert test[2].meta["contrast"] == 9573525558.140726
    assert test[3].meta["beta"] == [-7.864957355893809, -7.860920054963003]
    kappas = [np.linalg.cond(test[i].A.toarray()) for i in (0, 3)]
    assert kappas == pytest.approx([195.49148500252, 24.45870427378], rel=1e-9)


def test_the_papers_pde_test_systems_that_it_trained_on():
    made = released_pde_set(100, 100, seed=0)
    known = {system.fingerprint for system in made.train}
    again = [system for system in made.test if system.fingerprint in known]
    assert len(again) == PDE_OVERLAP
    assert {system.meta["family"] for system in again} == {"poisson_2d"}


@pytest.mark.parametrize("make", [released_sparse_set, released_pde_set])
def test_fewer_sparse_systems_are_the_first_ones(make):
    some, more = (make(n, n, seed=3, sizes=(9, 16)) for n in (2, 3))
    for few, many in ((some.train, more.train), (some.test, more.test)):
        assert [p.fingerprint for p in few] == [p.fingerprint for p in many[:2]]
    with pytest.raises(ValueError, match="100 training systems"):
        make(101, 1, seed=0)


def test_loose_rounding_rounds_sparse_systems_as_dense_ones():
    sparse = random_sparse_spd(30, 0.1, 1e-2, rng=0)
    dense = replace(sparse, A=sparse.A.toarray())
    for action in ("fp32-fp32-fp64-fp64", "bf16-fp32-fp32-fp64"):
        one, two = (
            released(loose_rounding=True).run(p, action, "storage") for p in (sparse, dense)
        )
        assert one.ferr == pytest.approx(two.ferr, rel=0.5)
        assert one.outer_iterations == two.outer_iterations


# The study

SLICE = Settings(systems=3, seeds=2, episodes=20, sizes=(12, 24))
ADDED = tuple(variant for variant in variants() if not variant.name.startswith("all - "))
STUDY = DepartureStudy(SLICE, variants=ADDED)


def test_outcomes_are_shared_between_variants():
    storage, tolerance = Variant("a"), Variant("b", departures=frozenset({"tolerance"}))
    action = GmresIR().formats("bf16-fp32-fp64-fp64")
    assert storage.algorithm(action, TAU) == tolerance.algorithm(action, TAU)
    safe = GmresIR().formats("fp64-fp64-fp64-fp64")
    assert Variant("c", departures=ALL - {"scipy"}).algorithm(safe, TAU) == storage.algorithm(
        safe, TAU
    )
    swapped = Variant("d", departures=frozenset({"stages", "tolerance"}))
    assert swapped.algorithm(action, TAU).absolute_tolerance  # GMRES is in fp32 now


def test_counting_follows_the_format_that_gmres_has():
    history = ({"inner_residual": 1.0},)
    run = Outcome(OutcomeStatus.STAGNATED, None, inner_iterations=3, history=history)
    action = (get_format("bf16"), get_format("fp32"), FP64, FP64)
    counting, both = frozenset({"counting"}), frozenset({"counting", "stages"})
    assert Variant("a", departures=counting).seen(run, action, 9, TAU).inner_iterations == 3
    assert Variant("b", departures=both).seen(run, action, 9, TAU).inner_iterations == 9


def test_replayed_departures_solve_nothing(results, cache):
    assert list(results) == [variant.name for variant in ADDED]
    for name in ("stop", "counting", "learning"):
        assert results[f"+ {name}"].gathered.computed == 0
    again = reproduce(STUDY, cache)
    for name, result in again.items():
        assert result.gathered.computed == 0
        for old, new in zip(results[name].cases, result.cases, strict=True):
            assert np.array_equal(old.chosen, new.chosen)
            assert np.array_equal(old.rewards, new.rewards)


def test_departures_show_where_they_should(results):
    """On all actions of all test systems, not only on those that a policy chooses."""
    rows = {name: result.gathered.halves[TAU][1].rows for name, result in results.items()}
    storage = rows["storage"]
    for name in DEPARTURES:
        pairs = [
            (a, b)
            for one, two in zip(storage, rows[f"+ {name}"], strict=True)
            for a, b in zip(one, two, strict=True)
        ]
        differs = any(seen(a) != seen(b) for a, b in pairs)
        assert differs == (name != "learning"), name
        if name == "counting":
            assert all(a.ferr == b.ferr for a, b in pairs)
        if name == "stop":
            assert all(a.inner_iterations == b.inner_iterations for a, b in pairs)


@pytest.mark.parametrize("experiment", ["sparse", "pde", "ablation"])
def test_other_experiments_have_the_same_variants(experiment, tmp_path):
    names = [variant.name for variant in variants(experiment)]
    assert names == [variant.name for variant in variants()]
    few = {"our systems", "storage", "+ rounding", "all - tf32", "all, its stream"}
    chosen = tuple(v for v in variants(experiment) if v.name in few)
    study = DepartureStudy(replace(SLICE, systems=4), experiment, chosen)
    written = write(study, reproduce(study, tmp_path), tmp_path / "out", draw=False)
    rows = plain_rows(written.parts[0].numbers)["distances"]
    ranges = {row["range"] for row in rows}
    assert ranges <= {"low", "medium", "high"} if experiment == "ablation" else ranges == {"all"}
    assert {row["variant"] for row in rows} == few
    assert {v.data for v in chosen if v.name != "our systems"} == {DATA[experiment]}


def test_leaving_out_is_all_but_one():
    by_name = {variant.name: variant.departures for variant in variants()}
    for name in DEPARTURES:
        assert by_name[f"all - {name}"] == by_name["all"] - {name}


def test_distances():
    assert numbers.distance("ferr", 1e-9, 1e-6) == pytest.approx(3)
    assert numbers.distance("gmres", 0.0, 8.0) == 3
    assert numbers.distance("success", 90.0, 100.0) == 10
    ours = {"bf16": 1.0, "tf32": 0.0, "fp32": 0.0, "fp64": 3.0}
    theirs = {"bf16": 0.0, "tf32": 0.5, "fp32": 0.0, "fp64": 3.5}
    assert numbers.usage_distance(ours, theirs) == 1.0
    assert numbers.usage_distance(theirs, theirs) == 0


def test_the_papers_dense_usage_adds_up():
    assert len(paper.DENSE_USAGE) == 12
    for key, shares in paper.DENSE_USAGE.items():
        assert sum(shares.values()) == pytest.approx(4), key
    low = paper.DENSE_USAGE[1e-8, "W1", "low"]
    assert (low["fp32"], low["fp64"]) == pytest.approx((0.35135, 3.64865), abs=1e-5)


SCHEMAS = {
    "performance": "variant tau method range systems metric paper ours mean std min max seeds",
    "usage": "variant tau method range systems format paper ours mean std seeds",
    "distances": "variant tau method range metric distance std seeds",
}
TEXTS = {"variant", "method", "range", "metric", "format"}


def test_files(results, tmp_path):
    files = write(STUDY, results, tmp_path).files
    names = sorted(path.name for path in files)
    assert names == sorted(
        ["report.html", "report.md", "results.json"]
        + [f"departures-{kind}.csv" for kind in SCHEMAS]
        + [f"departures-{kind}.svg" for kind in ("distances", "numbers", "usage")]
    )
    for kind, schema in SCHEMAS.items():
        with (tmp_path / "tables" / f"departures-{kind}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == schema.split()
        assert {row["variant"] for row in rows} == set(results)
        for row in rows:
            for column in set(row) - TEXTS:
                float(row[column])
    content = json.loads((tmp_path / "results.json").read_text())
    assert set(content) == {"schema_version", "settings", "provenance", "variants", "departures"}
    assert set(content["departures"]) == set(SCHEMAS)
    page = (tmp_path / "report.html").read_text()
    assert all(f"+ {name}" in page for name in DEPARTURES)


def test_tables_fit_the_terminal(results):
    for table in all_tables(results).values():
        assert len(table.header) <= 12
        assert "paper" in {row[1] for row in table.rows} or "distance" in table.caption.lower()


def test_distances_are_means_over_trainings(results):
    record = next(
        r
        for r in numbers.distances(results)
        if (r["variant"], r["tau"], r["method"], r["metric"]) == ("all", 1e-8, "W2", "ferr")
    )
    case = results["all"].case("W2", 1e-8)
    theirs = paper.reported("dense", 1e-8, "W2", record["range"], "ferr")
    each = [abs(math.log10(x / theirs)) for x in case.values(record["range"], "ferr")]
    assert record["distance"] == pytest.approx(np.mean(each))
    assert record["seeds"] == len(each) == SLICE.seeds
    assert len(results["all, its stream"].case("W2", 1e-8).chosen) == 1


# The command


def call(*arguments):
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)], prog_name="roundwise")


def test_command(tmp_path):
    options = ["--quick", "--systems", 1, "--sizes", 8, 12, "--seeds", 2, "--jobs", 1]
    folders = ["--cache", tmp_path / "cache", "--out", tmp_path / "out"]
    first = call("departures", *options, *folders)
    assert first.exit_code == 0, first.output
    assert "QUICK RUN" in first.stdout
    assert (tmp_path / "out" / "report.html").is_file()
    content = json.loads(call("departures", *options, *folders, "--json").stdout)
    assert content["settings"]["systems"] == 1


def test_the_study_has_its_own_arithmetics():
    result = call("departures", "--arithmetic", "storage")
    assert result.exit_code == 2
    assert "leave it out" in result.stderr


def test_interrupted(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("roundwise_studies.commands.reproduce.reproduce", interrupted)
    result = call("departures", "--cache", tmp_path)
    assert result.exit_code == 130
    assert "run the same command to go on" in result.stderr
