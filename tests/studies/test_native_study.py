"""A small slice of the native study, the direct solvers beside it, and the scaling benchmark."""

import csv
import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import fail, succeed
from scipy import sparse
from scipy.linalg import lapack
from scripts import loaded

from roundwise.exceptions import RoundwiseError
from roundwise.machine import blas
from roundwise.outcomes import OutcomeTable
from roundwise.outcomes.workers import can_measure
from roundwise.problems import LinearSystem, poisson_2d, randsvd
from roundwise_studies import departures, paper
from roundwise_studies.native import device as native
from roundwise_studies.native import direct, judging, processor, tables
from roundwise_studies.native.direct import DirectSolve, dsgesv, has_dsgesv
from roundwise_studies.native.gather import gather
from roundwise_studies.native.processor import Processor
from roundwise_studies.native.study import NativeStudy
from roundwise_studies.protocol import reproduce
from roundwise_studies.report import write_csv
from roundwise_studies.writing import SCHEMA_VERSION, write

ROOT = Path(__file__).parents[2]
SLICE = Processor(train=4, test=5, sizes=(40, 60), repeats=2, episodes=10)
STUDY = NativeStudy(SLICE)
needs_dsgesv = pytest.mark.skipif(
    not has_dsgesv(), reason="SciPy's BLAS is not the wheel's OpenBLAS, which has dsgesv"
)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, write(STUDY, results, out).files


# Direct solvers


@needs_dsgesv
@pytest.mark.parametrize("kappa", [1e2, 1e6])
def test_dsgesv_refines_to_what_dgesv_finds(kappa):
    problem = randsvd(80, kappa, rng=1)
    before = problem.A.copy()
    x, steps = dsgesv(problem.A, problem.b)
    *_, reference, _ = lapack.dgesv(problem.A, problem.b)
    assert steps > 0
    error = np.abs(x - reference).max() / np.abs(reference).max()
    assert error < 100 * kappa * 2.0**-53
    assert np.array_equal(problem.A, before)


@needs_dsgesv
def test_dsgesv_gives_up_on_hard_systems_and_says_so():
    problem = randsvd(80, 1e12, rng=1)
    _, steps = dsgesv(problem.A, problem.b)
    assert steps < 0
    outcome = DirectSolve("dsgesv").run(problem, "fp64", "native")
    assert "FP64 took over" in outcome.reason
    assert outcome.outer_iterations == 0
    assert outcome.nbe < 1e-15


@needs_dsgesv
def test_dsgesv_of_a_singular_matrix():
    with pytest.raises(direct.DirectSolveError, match="zero; pass a regular matrix"):
        dsgesv(np.zeros((3, 3)), np.ones(3))


def test_without_the_wheels_openblas_dsgesv_is_left_out(monkeypatch):
    monkeypatch.setattr(blas, "bundled", lambda package: None)
    assert not has_dsgesv()
    with pytest.raises(RoundwiseError, match="leave it out"):
        dsgesv(np.eye(3), np.ones(3))


@pytest.mark.parametrize("routine", [*direct.ROUTINES, *direct.SPLU])
def test_direct_solvers_solve(routine):
    if routine == "dsgesv" and not has_dsgesv():
        pytest.skip("SciPy's BLAS is not the wheel's OpenBLAS, which has dsgesv")
    dense = routine in processor.REFERENCES
    problem = randsvd(50, 1e3, rng=0) if dense else poisson_2d(8)
    outcome = DirectSolve(routine).run(problem, "fp64", "native")
    assert outcome.nbe < 1e-14
    assert outcome.ferr < 1e-11
    assert outcome.seconds > 0
    unknown = LinearSystem(problem.A, problem.b)  # without x_true
    again = DirectSolve(routine).run(unknown, "fp64", "native")
    assert np.array_equal(again.x, outcome.x)
    assert np.isnan(again.ferr)


def test_an_unknown_routine_is_refused():
    with pytest.raises(ValueError, match="choose one of numpy"):
        DirectSolve("cramer")


# The study


@pytest.mark.parametrize("action", ["fp32-fp64-fp64-fp64", "fp16-fp16-fp32-fp32"])
@pytest.mark.parametrize("kappa", [1e2, 1e8])
def test_no_stopping_rule_looks_at_the_true_solution(action, kappa):
    problem = randsvd(60, kappa, rng=3)
    unknown = LinearSystem(problem.A, problem.b)
    with_truth, without = (native.ALGORITHM.run(p, action, "native") for p in (problem, unknown))
    assert np.array_equal(with_truth.x, without.x)
    assert with_truth.status is without.status
    assert with_truth.outer_iterations == without.outer_iterations <= native.RULE.max_steps


def test_systems_are_in_the_papers_ranges():
    settings = Processor(train=12, test=12, sizes=(10, 20))
    halves = {
        half: [settings.system(half, number) for number in settings.recipes(half)]
        for half in native.HALVES
    }
    for half, problems in halves.items():
        exponents = [np.log10(problem.meta["kappa"]) for problem in problems]
        low, high = processor.EXPONENTS[half]
        assert len(set(exponents)) > 3
        assert all(low <= exponent <= high for exponent in exponents)
        assert all(10 <= problem.n <= 20 for problem in problems)
    first = settings.system("train", 0)
    assert first.fingerprint == halves["train"][0].fingerprint != halves["test"][0].fingerprint
    assert max(p.meta["kappa"] for p in halves["test"]) > 1e6


def test_systems_are_handed_out_with_all_threads(threads):
    library = blas.bundled("scipy")
    if library is None:
        pytest.skip("SciPy's BLAS cannot be asked for its threads")
    threads(2)
    SLICE.system("train", 0)
    assert library.threads == 2


def test_actions_in_both_orders():
    ours, papers = (
        dataclasses.replace(SLICE, order=order).action_sets()["fp16"].space
        for order in native.ORDERS
    )
    assert len(ours) == len(papers) == 15
    assert len(set(ours.names) & set(papers.names)) == 10
    assert "fp16-fp64-fp32-fp64" in papers.names  # (u_f, u_g, u, u_r) = (16, 32, 64, 64)
    assert "fp16-fp64-fp32-fp64" not in ours.names
    assert (
        ours[ours.safe] == papers[papers.safe] == native.ALGORITHM.formats("-".join(["fp64"] * 4))
    )


def test_a_machine_without_bf16_runs_the_papers_formats(monkeypatch):
    formats = tuple(fmt for fmt in processor.native_formats() if fmt.name != "bf16")
    monkeypatch.setattr(processor, "native_formats", lambda: formats)
    assert list(SLICE.action_sets()) == ["fp16"]


def test_every_action_and_every_reference_is_measured(results):
    gathered = results.gathered
    for learn, test in gathered.halves.values():
        assert learn.shape == (SLICE.train, 15)
        assert test.shape == (SLICE.test, 15)
        assert (learn.repeats == SLICE.repeats).all()
        assert (test.repeats == SLICE.repeats).all()
        assert (test.seconds > 0).all()
    actions = {name for learn, _ in gathered.halves.values() for name in learn.action_names}
    assert gathered.computed == (SLICE.train + SLICE.test) * len(actions)
    for name in processor.REFERENCES:
        if name in gathered.references:
            assert gathered.references[name].seconds.shape == (SLICE.test, 1)
            assert (gathered.references[name].nbe < 1e-14).all()
    assert "numpy.linalg.solve" in gathered.references


def test_peak_memory_is_measured_on_the_first_validation_systems(monkeypatch, tmp_path):
    if not can_measure():
        pytest.skip("this system does not tell a process its peak memory")
    monkeypatch.setattr(processor, "PEAKS", 1)
    settings = dataclasses.replace(SLICE, train=1, test=2, repeats=1)
    gathered = gather(settings, OutcomeTable(tmp_path / "native.sqlite"))
    assert np.isfinite(gathered.first[1].peak_bytes[0]).all()
    assert np.isnan(gathered.first[1].peak_bytes[1]).all()


def test_a_second_run_solves_nothing_and_says_the_same(results, cache):
    again = reproduce(STUDY, cache)
    assert again.gathered.computed == 0
    assert again.gathered.halves.keys() == results.gathered.halves.keys()
    for first, second in zip(tables.judged_of(results), tables.judged_of(again), strict=True):
        assert first[:2] == second[:2]
        assert first[3].actions == second[3].actions
        assert np.array_equal(first[3].total, second[3].total)


def test_policies_pay_for_features_and_misses(results):
    for _, _, judged, found in tables.judged_of(results):
        view, space = judged.view, judged.space
        safe = np.array([action == space.names[space.safe] for action in found.actions])
        assert np.array_equal(judged.baseline, view.seconds[:, space.safe])
        extra = np.where(found.met | safe, 0.0, judged.baseline)
        assert found.total == pytest.approx(found.seconds + found.features + extra)
        assert found.met.tolist() == [
            nbe <= native.RULE.target(problem.n)
            for nbe, problem in zip(found.nbe, view.problems, strict=True)
        ]
        memory, _ = tables.memory_ratios(judged, found)
        assert (memory[safe] == 1).all()
        assert (memory <= 1.25).all()
    for judged in results.sets.values():
        view = judged.view
        for name, seen in {"time": "kappa_est norm_inf", "time, cheap state": "n norm_inf"}.items():
            columns = [view.feature_names.index(feature) for feature in seen.split()]
            paid = view.feature_seconds[:, columns].sum(axis=1)
            assert np.array_equal(judged.judged[name].features, paid)
        oracle = judged.judged[judging.ORACLE]
        assert oracle.met.all()
        assert (oracle.total <= judged.baseline).all()


def test_a_miss_pays_for_the_fallback(results):
    judged = next(iter(results.sets.values()))
    view, space = judged.view, judged.space
    lowest = np.zeros(SLICE.test, dtype=np.intp)
    found = judging.judge(view, space, lowest, ("norm_inf",))
    assert not found.met.any()
    column = view.feature_names.index("norm_inf")
    assert found.total == pytest.approx(
        view.seconds[:, 0] + view.seconds[:, space.safe] + view.feature_seconds[:, column]
    )


# Tables and files


def test_the_papers_rows_stand_beside_ours(results):
    table = tables.validation_table(results)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    papers = [row for row in rows if row["source"] == "paper"]
    assert [row["speedup"] for row in papers] == [1.74, 1.74, 1.44, 1.45]
    ours = [row for row in rows if row["source"] == "ours"]
    assert len(ours) == len(list(tables.judged_of(results))) * len(SLICE.taus)
    for row in ours:
        judged = results.sets[row["set"]]
        found = judged.judged[row["policy"]]
        good = found.ferr <= float(row["tau"])
        assert row["success"] == good.sum()
        assert row["reduced"] <= row["systems"] == SLICE.test
        if good.any():
            expected = (judged.baseline / found.seconds)[good].mean()
            assert row["speedup"] == pytest.approx(expected)


def test_ratios_against_every_reference(results):
    table = tables.ratio_table(results)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    for row in rows:
        assert row["worst"] <= row["median"]
        assert row["worst, all costs"] <= row["mean, all costs"]
    learned = [row for row in rows if row["set"] != "references"]
    assert {row["against"] for row in learned} == {"all-FP64", *results.gathered.references}
    oracle = next(r for r in rows if r["policy"] == "oracle" and r["against"] == "all-FP64")
    assert oracle["worst"] >= 1


def test_files(written, results):
    out, files = written
    assert all(path.stat().st_size > 0 for path in files)
    numbers = json.loads((out / "results.json").read_text())
    assert numbers["schema_version"] == SCHEMA_VERSION
    names = {"validation", "policies", "ratios", "actions", "systems", "outcomes"}
    assert set(numbers["tables"]) == names
    assert numbers["settings"]["test"] == SLICE.test
    assert numbers["provenance"]["machine"]
    with (out / "tables" / "native-systems.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(list(tables.judged_of(results))) * SLICE.test
    columns = [
        "set", "policy", "system", "name", "n", "kappa", "action", "ferr", "nbe", "met",
        "unsolved", "seconds", "feature_seconds", "total_seconds", "fp64_seconds",
    ]  # fmt: skip
    assert list(rows[0])[: len(columns)] == columns
    assert float(rows[0]["numpy.linalg.solve seconds"]) > 0
    for name in ("validation", "ratios", "actions"):
        assert (out / "tables" / f"native-{name}.md").read_text().count("|") > 10
    assert "QUICK RUN: too few systems" in (out / "report.md").read_text()
    for title, _ in departures.NATIVE:
        assert title in (out / "report.html").read_text()
    assert (out / "figures" / "native.png").stat().st_size < 200_000


def test_the_command(tmp_path):
    folders = ["--cache", tmp_path / "cache", "--out", tmp_path / "out"]
    size = ["--systems", 2, "--sizes", 20, 30]
    deployed = ["reproduce", "native", "--variant", "deployed"]
    text = succeed(*deployed, *size, *folders, "--verbose")
    assert "NATIVE CPU VALIDATION" in text
    assert "Report: " in text
    settings = json.loads(succeed(*deployed, *size, *folders, "--json"))["settings"]
    assert settings["sizes"] == [20, 30]
    assert (settings["train"], settings["test"]) == (1, 2)
    assert len(OutcomeTable(tmp_path / "cache" / "native.sqlite")) > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["native", "--jobs", 2], "timed one by one"),
        (["native", "--arithmetic", "storage"], "the hardware's"),
        (["native", "--sizes", 30, 20], "the smaller size first"),
        (["dense", "--order", "paper"], "--order is for native"),
        (["native", "--order", "paper"], "--order is for native --variant deployed"),
        (["native", "--variant", "paper", "--device", "cpu"], "--device is for native --variant"),
        (
            ["native", "--variant", "deployed", "--generator", "randsvd"],
            "its systems are randsvd's",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options, said):
    assert said in fail(2, "reproduce", *options)


@pytest.mark.parametrize("wrong", [{"train": 0}, {"sizes": (9, 5)}, {"order": "none"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="choose"):
        dataclasses.replace(SLICE, **wrong)


def test_the_papers_numbers():
    assert paper.NATIVE[1e-8, "RL(W2)"]["successes"] == 99
    assert {row["ms_fp64"] for row in paper.NATIVE.values()} == {320.09, 320.15}


# Scaling


@pytest.fixture(scope="module")
def scaling():
    from roundwise_studies.native import scaling

    return scaling


def test_sparse_fp32_halves_the_factors(scaling):
    problem = scaling.poisson_3d(6)
    assert sparse.issparse(problem.A)
    assert (problem.A.diagonal() == 6).all()
    found = {m.name: scaling.measure("cube", problem, m) for m in scaling.sparse_methods()}
    assert all(measured.met for measured in found.values())
    fp32, fp64 = found["LU-IR fp32"], found[scaling.SPARSE_REFERENCE]
    assert fp32.factors == fp64.factors / 2
    assert np.isnan(found["spsolve"].factors)


def test_the_table_of_the_scaling_study(scaling):
    problem = randsvd(40, 10.0, rng=0)
    found = [scaling.measure("small", problem, m) for m in scaling.dense_methods()]
    table = scaling.table("Dense", found, scaling.DENSE_REFERENCE)
    rows = {row[2]: row for row in table.rows}
    assert rows[scaling.DENSE_REFERENCE][4] == 1
    assert rows["GMRES-IR fp32"][5] == "yes"
    missed = dataclasses.replace(found[0], nbe=1.0)
    assert np.isnan(scaling.ratio(missed, found, scaling.DENSE_REFERENCE))


def test_the_page_takes_the_numbers(scaling, written, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scaling", "--out", str(tmp_path)])
    monkeypatch.setattr(scaling, "dense_systems", lambda sizes: [("D", randsvd(20, 9.0, rng=0))])
    monkeypatch.setattr(scaling, "sparse_systems", lambda m, k: [("S", poisson_2d(5))])
    scaling.main()
    bench = loaded("benchmarks/bench_native_lu.py")
    monkeypatch.setattr("timing.PAUSE", 0.0)
    lu = tmp_path / "lu.csv"
    write_csv(bench.compare_factorizations([20, 30, 40], 1), lu)
    refresh = loaded("docs/refresh_native.py")
    page = tmp_path / "native.md"
    page.write_text(refresh.PAGE.read_text())
    (tmp_path / "images").mkdir()
    refresh.refresh(written[0], tmp_path, lu, page, tmp_path / "images")
    once = page.read_text()
    assert "Not measured yet" not in once
    assert "| fp16 | RL(W1) | paper |" in once
    assert "| references |" in once
    assert "(images/native.png)" in once
    assert "(images/scaling.png)" in once
    for block in ("lu", "validation", "ratios", "scaling-dense", "scaling-sparse"):
        content = once.split(f"<!-- begin {block} -->")[1].split(f"<!-- end {block} -->")[0]
        assert content.count("\n|") > 3
    for image in ("native.png", "scaling.png"):
        assert (tmp_path / "images" / image).stat().st_size < 200_000
    refresh.refresh(written[0], tmp_path, lu, page, tmp_path / "images")
    assert page.read_text() == once
    with pytest.raises(ValueError, match="write each once"):
        refresh.replace_block("nothing", "ratios", "x")
    with pytest.raises(SystemExit, match="run make native-docs"):
        refresh.blocks(tmp_path / "none", tmp_path, lu)
