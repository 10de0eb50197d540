"""A small slice of every experiment: outcomes, replay, findings, and the files."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from roundwise.cli import main
from roundwise.outcomes import OutcomeTable
from roundwise_studies import paper
from roundwise_studies.native.study import NativeStudy
from roundwise_studies.protocol import Study
from roundwise_studies.released.study import DepartureStudy
from roundwise_studies.report import format_text, scientific
from roundwise_studies.simulated import EXPERIMENTS, Settings, SimulatedStudy, numbers, sets
from roundwise_studies.simulated.findings import (
    CLAIMS,
    OurNumbers,
    PaperNumbers,
    check,
    examine,
    verdict,
)
from roundwise_studies.simulated.gather import Runs, gather
from roundwise_studies.simulated.running import range_metric, run
from roundwise_studies.simulated.tables import all_tables, spread_text
from roundwise_studies.writing import write

SLICE = Settings(systems=8, seeds=3, episodes=20, sizes=(20, 36))
STUDY = SimulatedStudy(SLICE)
ACTIONS, TAUS, WEIGHTS = 25, 2, 2


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, write(STUDY, results, out, draw=False).files


# The paper's numbers


def test_the_papers_usage_adds_up_to_four_stages():
    for shares in paper.USAGE.values():
        assert sum(shares.values()) == pytest.approx(4, abs=0.011)


def test_the_papers_tables_are_complete():
    for name, ranges in {"dense": 3, "ablation": 3, "sparse": 1, "pde": 1}.items():
        rows = [key for key in paper.PERFORMANCE if key[0] == name]
        assert len(rows) == TAUS * 3 * ranges
    assert paper.reported("dense", 1e-8, "W2", "low", "success") == 89.2
    assert paper.reported("pde", 1e-6, "W1", "all", "ferr") == 1.13e-2
    assert math.isnan(paper.reported("dense", 1e-6, "FP64", "low", "success"))
    assert math.isnan(paper.reported("dense", 1e-6, "W1", "very high", "ferr"))
    assert math.isnan(paper.reported("dense", 1e-6, "W1", "low", "strict"))


# Outcomes and replay


def test_every_action_is_run_once_on_every_system(results, cache):
    for data in ("dense", "sparse"):
        assert len(OutcomeTable(cache / f"{data}.sqlite")) == 2 * SLICE.systems * ACTIONS * TAUS
    assert results["dense"].gathered.computed == 2 * SLICE.systems * ACTIONS * TAUS


@pytest.mark.parametrize("data", ["dense", "sparse", "pde"])
def test_a_second_run_solves_nothing_and_gives_the_same(results, cache, data):
    again = gather(Runs(data, "operation", data), SLICE, cache)
    assert again.computed == 0
    replayed = run(EXPERIMENTS[data], SLICE, again)
    for old, new in zip(results[data].cases, replayed.cases, strict=True):
        assert np.array_equal(old.chosen, new.chosen)
        assert np.array_equal(old.rewards, new.rewards)
        assert old.regrets == new.regrets


def test_a_replay_makes_few_systems(cache, monkeypatch, results):
    made = []
    builder = sets.DATA_SETS["dense"]
    monkeypatch.setitem(
        sets.DATA_SETS, "dense", lambda a, b, **k: made.append(a + b) or builder(a, b, **k)
    )
    gather(Runs("dense", "operation", "dense"), SLICE, cache)
    assert made == [2 * sets.CHECKED]


@pytest.mark.parametrize(
    "damage",
    [
        lambda note: note["train"]["fingerprints"].reverse(),
        lambda note: note["test"]["fingerprints"].pop(),
        lambda note: note["test"].pop("densities"),
        lambda note: note.clear(),
    ],
)
def test_a_note_that_is_not_true_is_not_believed(cache, tmp_path, results, damage):
    notes = json.loads((cache / "pde-sets.json").read_text())
    (key,) = notes
    assert sets.recall(cache, "pde", SLICE) is not None
    damage(notes[key])
    (tmp_path / "pde-sets.json").write_text(json.dumps(notes))
    assert sets.recall(tmp_path, "pde", SLICE) is None
    (tmp_path / "pde-sets.json").write_text("{")
    assert sets.recall(tmp_path, "pde", SLICE) is None


def test_the_first_seeds_do_not_depend_on_how_many_follow(results):
    fewer = run(EXPERIMENTS["sparse"], replace(SLICE, seeds=1), results["sparse"].gathered)
    for one, many in zip(fewer.cases, results["sparse"].cases, strict=True):
        assert np.array_equal(one.chosen[0], many.chosen[0])


def test_the_ablation_has_the_dense_outcomes_and_no_penalty(results):
    dense, ablation = results["dense"], results["ablation"]
    assert ablation.gathered is dense.gathered
    for case in ablation.cases:
        inner = dense.gathered.halves[case.tau][1].inner
        penalty = np.log2(np.maximum(inner, 1))
        rewards = dense.case(case.weight, case.tau).rewards
        assert np.allclose(case.rewards - penalty, rewards, rtol=0, atol=1e-12)


def test_the_penalty_of_sparse_systems_weighs_half(results):
    case = results["sparse"].cases[0]
    assert case.reward.lambda_iter == 0.5
    assert (case.reward.w1, case.reward.w2) == (1.0, 0.1)
    assert results["sparse"].cases[1].reward.w2 == 1.0
    assert case.policy.alpha == 0.5
    assert len(case.policy.space) == ACTIONS
    assert "bf16-bf16-fp64-fp64" not in case.policy.space.names


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"systems": 0}, "systems = 0"), ({"seeds": 0}, "seeds"), ({"actions": 36}, "1 to 35")],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


# Records, by brute force


def test_performance_is_the_mean_over_systems_and_seeds(results):
    result = results["pde"]
    found = {
        (r["tau"], r["method"], r["range"], r["metric"]): r for r in numbers.performance(result)
    }
    for case in result.cases:
        inner = result.gathered.halves[case.tau][1].inner
        every = np.array([[inner[i, a] for i, a in enumerate(c)] for c in case.chosen])
        record = found[case.tau, case.weight, "all", "gmres"]
        assert record["ours"] == every[0].mean()
        assert record["mean"] == pytest.approx(every.mean())
        assert record["std"] == pytest.approx(every.mean(axis=1).std(ddof=1))
        assert record["paper"] == paper.reported("pde", case.tau, case.weight, "all", "gmres")
    fp64 = found[1e-6, "FP64", "all", "ferr"]
    assert fp64["ours"] == result.gathered.halves[1e-6][1].ferr[:, -1].mean()
    assert math.isnan(fp64["std"])


def test_usage_adds_up_to_four_stages(results):
    for result in results.values():
        sums = {}
        for r in numbers.usage(result):
            key = r["tau"], r["method"], r["range"]
            sums[key] = sums.get(key, 0) + r["mean"]
        assert all(total == pytest.approx(4) for total in sums.values())


def test_data_covers_both_halves_and_the_test_families(results):
    subsets = {r["subset"]: r for r in numbers.data(results["pde"]) if r["source"] == "ours"}
    assert list(subsets) == [
        "train",
        "test",
        *[subset for name, subset in paper.DATA if name == "pde"][2:],
    ]
    assert sum(r["systems"] for r in list(subsets.values())[2:]) == subsets["test"]["systems"]
    poisson = subsets["poisson_2d"]
    m = math.isqrt(poisson["n_min"])
    assert poisson["kappa_min"] == pytest.approx(1 / math.tan(math.pi / (m + 1) / 2) ** 2)


def test_families_average_to_the_whole(results):
    result = results["pde"]
    for tau in SLICE.taus:
        rows = [r for r in numbers.families(result) if (r["tau"], r["method"]) == (tau, "FP64")]
        mean = sum(r["systems"] * r["ferr"] for r in rows) / SLICE.systems
        assert mean == pytest.approx(range_metric(result.baselines[tau], "all", "ferr"))
    assert not list(numbers.families(results["dense"]))


# Findings


def test_verdicts():
    assert verdict([True, True]) == "confirmed"
    assert verdict([True, False]) == "partly"
    assert verdict([False]) == "not reproduced"


@pytest.fixture(scope="module")
def looked_at(results):
    return examine(results)


def test_every_claim_has_its_numbers_and_intervals(results, looked_at):
    known = {claim: places for claim, places in CLAIMS.items() if list(places(results))}
    for claim, places in looked_at.items():
        assert claim in known
        for each in places:
            assert each.interval[0] <= each.interval[1]
            assert each.place.low <= each.place.high
            assert any(character.isdigit() for character in str(each))
    findings = check({"dense": results["dense"]})
    assert not any("Sparse" in f.claim or "penalty" in f.claim for f in findings)


def test_claims_are_tested_on_the_papers_own_numbers(results):
    """Where the paper has the number, the test of its agreement with itself is passed."""
    theirs = PaperNumbers()
    for claim, places in CLAIMS.items():
        held = {}
        for place in places(results):
            value = place.number(theirs)
            if not math.isnan(value):
                held[place.where] = place.low <= value <= place.high
        if claim.startswith(("Agreement", "Success")):
            assert held
            assert all(held.values())
        if claim == "Dense: W1 never goes below FP32":  # the released usage has two stages
            assert [place for place, holds in held.items() if not holds] == [
                "dense medium, W1, tau = 1e-8"
            ]


def test_success_counts_both_ways():
    (claim,) = [claim for claim in CLAIMS if claim.startswith("Success")]
    assert "either way" in claim
    assert paper.reported("dense", 1e-8, "W2", "low", "success") == 89.2


def test_the_penalty_claim_says_what_the_outcomes_say(results, looked_at):
    (places,) = [found for claim, found in looked_at.items() if "raises the GMRES" in claim]
    by_name = {each.place.where: each for each in places}
    for case in results["ablation"].cases:
        before = results["dense"].case(case.weight, case.tau)
        for where in results["dense"].ranges:
            change = case.metric(where, "gmres").mean - before.metric(where, "gmres").mean
            each = by_name[f"{case.weight}, {where}, tau = {scientific(case.tau)}"]
            assert each.ours == pytest.approx(change)
            assert each.holds == (change >= 0)


def test_our_means_are_those_of_the_tables(results):
    ours = OurNumbers.of(results)
    for name, result in results.items():
        for case in result.cases:
            for where in (*result.ranges, "all"):
                for metric in ("success", "outer", "gmres", "fp64"):
                    found = ours.mean(name, case.tau, case.weight, where, metric)
                    if metric != "success" or where != "all":
                        assert found == pytest.approx(case.metric(where, metric).mean)


def test_a_policy_that_is_all_fp64_is_at_fp64_accuracy(results):
    dense = results["dense"]
    safe = dense.gathered.space.safe
    cases = [replace(case, chosen=np.full_like(case.chosen, safe)) for case in dense.cases]
    findings = check({"dense": replace(dense, cases=tuple(cases))})
    (finding,) = [f for f in findings if f.claim.startswith("Dense: W1 is at FP64")]
    assert finding.verdict == "confirmed"


# Tables and files

SCHEMAS = {
    "performance": "experiment tau method range systems metric paper ours mean std min max seeds",
    "usage": "experiment tau method range systems format paper ours mean std seeds",
    "data": "experiment subset source systems kappa_min kappa_max n_min n_max density_percent_min "
    "density_percent_max",
    "regret": "experiment tau weights policy reward oracle oracle_low oracle_high best_fixed "
    "best_fixed_low best_fixed_high fp64 fp64_low fp64_high std_over_seeds seeds",
    "families": "experiment tau method family systems ferr ferr_mean nbe nbe_mean gmres gmres_mean "
    "seeds",
}
TEXTS = {
    "experiment", "method", "range", "metric", "format", "subset", "source", "weights", "policy",
    "family",
}  # fmt: skip


def test_csv_files_have_their_schema(written, results):
    out, files = written
    names = {path.name for path in files if path.suffix == ".csv"}
    expected = {f"{name}-{kind}.csv" for name in results for kind in SCHEMAS if kind != "families"}
    assert names == expected | {"pde-families.csv"}
    for name in names:
        experiment, kind = name.removesuffix(".csv").split("-")
        with (out / "tables" / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert list(rows[0]) == SCHEMAS[kind].split()
        assert {row["experiment"] for row in rows} == {experiment}
        for row in rows:
            for column in set(row) - TEXTS:
                float(row[column])


def test_json_is_strict_and_complete(written, results):
    def refuse(text):
        raise AssertionError(text)

    out, _ = written
    content = json.loads((out / "results.json").read_text(), parse_constant=refuse)
    assert set(content) == {"schema_version", "settings", "provenance", "findings", "experiments"}
    assert content["settings"]["systems"] == SLICE.systems
    assert set(content["experiments"]) == set(results)
    assert len(content["experiments"]["dense"]["performance"]) == len(
        list(numbers.performance(results["dense"]))
    )
    assert {f["verdict"] for f in content["findings"]} <= {"confirmed", "partly", "not reproduced"}


def test_reports_show_every_experiment(written, results):
    out, files = written
    assert all(path.is_file() for path in files)
    for name in ("report.html", "report.md"):
        text = (out / name).read_text()
        for result in results.values():
            assert result.experiment.title in text
        assert "Departures" in text


def test_figures(results, tmp_path):
    study = SimulatedStudy(SLICE, ("pde",))
    files = write(study, {"pde": results["pde"]}, tmp_path).files
    drawn = sorted(path.stem for path in files if path.suffix == ".svg")
    kinds = ("errors", "iterations", "kappas", "landscape", "policy", "training", "usage")
    assert drawn == [f"pde-{kind}" for kind in kinds]
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img") + page.count("<svg") >= len(kinds)


def test_tables_stand_side_by_side(results):
    tables = all_tables(results["dense"])
    assert list(tables) == ["success", "errors", "iterations", "usage", "data", "regret"]
    assert list(tables["errors"].header[:7]) == [
        "tau", "method", "range", "systems", "ferr paper", "ferr ours", "ferr seeds",
    ]  # fmt: skip
    assert "families" in all_tables(results["pde"])
    assert "range" not in all_tables(results["pde"])["errors"].header
    for result in results.values():
        for table in all_tables(result).values():
            text = format_text(table)
            assert max(map(len, text.removesuffix(table.note).splitlines())) <= 132


def test_spread_text():
    record = {"mean": 2.5, "std": 0.25, "seeds": 3}
    assert spread_text(record) == "2.50 ± 0.25"
    assert spread_text(record | {"mean": 2.5e-9, "std": 1.2e-10}) == "2.50e-9 ± 1e-10"
    assert spread_text(record | {"mean": 2.5e-9, "std": 0.0}) == "2.50e-9 ± 0"
    assert spread_text(record | {"seeds": 1, "std": math.nan}) == ""


# The protocol


@pytest.mark.parametrize(
    ("study", "folder"),
    [(SimulatedStudy(), "reproduce"), (DepartureStudy(), "departures"), (NativeStudy(), "native")],
)
def test_every_study_has_the_papers_settings_and_its_own_folder(study, folder):
    assert isinstance(study, Study)
    assert study.settings.are_the_papers
    assert not replace(study.settings, episodes=7).are_the_papers
    assert study.name == folder


# The command


def call(*arguments):
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)], prog_name="roundwise")


def test_command(tmp_path):
    options = ["--quick", "--systems", 2, "--seeds", 2, "--jobs", 1]
    folders = ["--cache", tmp_path / "cache", "--out", tmp_path / "out"]
    first = call("sparse", *options, *folders)
    assert first.exit_code == 0, first.output
    assert "QUICK RUN: too few systems for any conclusion." in first.stdout
    assert "RANDOM SPARSE SYSTEMS" not in first.stdout
    told = call("sparse", *options, *folders, "--verbose").stdout
    assert "RANDOM SPARSE SYSTEMS" in told
    assert "FINDINGS" not in told  # too few systems for a verdict
    assert (tmp_path / "out" / "report.html").is_file()
    second = call("sparse", *options, *folders, "--json")
    content = json.loads(second.stdout)
    assert content["settings"]["seeds"] == 2
    assert str(tmp_path / "out" / "report.html") in content["files"]


def test_command_refuses_nonsense():
    for wrong in (["nothing"], ["dense", "--systems", 0], ["dense", "--actions", 7], []):
        result = call(*wrong)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1


def test_interrupted(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("roundwise_studies.commands.reproduce.reproduce", interrupted)
    result = call("dense", "--cache", tmp_path)
    assert result.exit_code == 130
    assert result.stderr.count("\n") == 1
    assert "run the same command to go on" in result.stderr
