"""The native study on a GPU and its benchmark, without one: see `fake_cupy` and `host_device`."""

import csv
import html
import json
import math
import sys
from dataclasses import replace

import fake_cupy as cupy
import host_device
import numpy as np
import pytest
from command_line import fail, succeed
from scipy import linalg
from scripts import ROOT, loaded

from roundwise.actions import ActionSpace
from roundwise.algorithms import VerifiedSolve
from roundwise.algorithms.accuracy import ErrorMeasure, default_tolerance
from roundwise.backends.cuda.device import DeviceUnavailable
from roundwise.exceptions import RoundwiseError
from roundwise.features import compute_features
from roundwise.outcomes import OutcomeTable
from roundwise.problems import LinearSystem
from roundwise.problems.generators import singular_values
from roundwise.solver import places
from roundwise_studies import departures
from roundwise_studies.native import gpu_runs as runs
from roundwise_studies.native import judging, tables
from roundwise_studies.native.device import FORMAT_SETS, space_of
from roundwise_studies.native.drawn import gaussian, heavy_diagonal, with_singular_values
from roundwise_studies.native.gpu import OURS, QUICK, THEIRS, Gpu
from roundwise_studies.native.gpu_systems import FAMILIES, DeviceErrors, Recipe
from roundwise_studies.native.study import NativeStudy
from roundwise_studies.protocol import reproduce
from roundwise_studies.writing import write

SLICE = Gpu((20, 33), (1, 1), (1, 1), papers_up_to=20, repeats=1, episodes=5)
STUDY = NativeStudy(SLICE)


@pytest.fixture(scope="module")
def backend():
    with pytest.MonkeyPatch.context() as patch:
        yield host_device.install(patch)


@pytest.fixture(scope="module")
def result(backend, cache):
    return reproduce(STUDY, cache)


@pytest.fixture(scope="module")
def written(result, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "native-gpu"
    return out, write(STUDY, result, out).files


# Systems


@pytest.mark.parametrize("family", FAMILIES)
def test_the_device_draws_what_the_processor_does(backend, family):
    system = Recipe(family, 30, 1e3 if family.startswith("mode") else math.nan, (1, 2)).drawn(
        backend
    )
    assert isinstance(system.A, cupy.ndarray)
    rng = np.random.default_rng((1, 2))
    if family == "gaussian":
        A = gaussian(30, rng=rng)
    elif family == "heavy diagonal":
        A = heavy_diagonal(30, rng.uniform(1.5, 4.0), rng=rng)
    else:
        A = with_singular_values(singular_values(30, 1e3, int(family[-1]), rng=rng), rng=rng)
    assert np.allclose(system.A.get(), A, rtol=0, atol=1e-14)
    residual = system.A.get() @ system.x_true - system.b.get()
    assert np.abs(residual).max() < 1e-13 * np.abs(A).sum(axis=1).max()


def test_recipes_cover_every_family_size_and_range():
    found = list(Gpu().recipes("test"))
    assert {(r.family, r.n) for r in found} == {
        (family, n) for family in FAMILIES for n in Gpu().sizes
    }
    kappas = {r.kappa for r in found if not math.isnan(r.kappa)}
    assert kappas == {10.0**j for j in range(1, 10)}
    keys = {r.fingerprint("one") for half in ("train", "test") for r in SLICE.recipes(half)}
    assert len(keys) == 2 * 2 * len(FAMILIES)
    assert not keys & {r.fingerprint("other") for r in SLICE.recipes("test")}


def test_settings():
    assert QUICK.within(1000, 1500).sizes == (1000,)
    assert Gpu().within(4000, 9000).test == Gpu().test[2:4]
    with pytest.raises(ValueError, match="choose a range with one of"):
        QUICK.within(5, 9)
    with pytest.raises(ValueError, match="differ in length"):
        replace(SLICE, train=(1,))
    with pytest.raises(ValueError, match="at least 1"):
        replace(SLICE, repeats=0)


# Runs


def test_errors_and_features_are_those_of_the_processor(backend):
    system = Recipe("mode 3", 40, 1e4, (3,)).drawn(backend)
    host = LinearSystem(system.A.get(), system.b.get(), system.x_true)
    x = host.x_true * (1 + 1e-9 * np.random.default_rng(0).standard_normal(40))
    ours, theirs = DeviceErrors(system), ErrorMeasure(host)
    for name in ("forward", "backward", "componentwise"):
        assert getattr(ours, name)(x) == pytest.approx(getattr(theirs, name)(x), rel=1e-5)
    assert system.norms == pytest.approx(host.norms)
    found = runs.measured_features(system)
    cheap = ("n", "norm_inf", *runs.PROBE)
    for name, value in compute_features(host, cheap).items():
        assert found[name].value == pytest.approx(value.value, rel=1e-6), name
    exact = np.linalg.cond(host.A, 1)
    assert 0.3 * exact < found["kappa_est"].value < 1.01 * exact
    paid = {name for name, value in found.items() if value.seconds > 0}
    assert paid == {"norm_inf", "kappa_est", "diagonal_share"}


def test_the_actions_are_those_of_the_front_door(backend):
    starts = VerifiedSolve().starts([False], backend=backend)
    assert runs.SPACE.names == tuple(a for a in starts.names if not a.startswith("cholesky"))
    assert runs.SPACE.names[runs.SPACE.safe] == "lu:fp64-fp64-fp64-fp64"


def test_an_unknown_routine_is_refused():
    with pytest.raises(ValueError, match="choose one of cupy"):
        runs.DeviceCall("cramer")


def test_every_action_and_routine_is_measured(result):
    learn, test = result.gathered.halves[OURS]
    assert learn.shape == test.shape == (2 * len(FAMILIES), len(runs.SPACE))
    assert result.gathered.halves[THEIRS][1].shape == (len(FAMILIES), 15)
    for view in (learn, test, *result.gathered.references.values()):
        assert (view.seconds > 0).all()
        assert (view.repeats == SLICE.repeats).all()
        assert view.arithmetic.startswith("cuda on ")
    safe = test.nbe[:, runs.SPACE.safe]
    assert (safe <= [default_tolerance(p.n) for p in test.problems]).all()
    assert (result.gathered.references[runs.FRONT_DOOR].nbe[:, 0] <= 1e-15).all()
    assert "a stand-in (version 1)" in result.gathered.machine


def test_a_second_run_solves_nothing_and_says_the_same(result, cache):
    again = reproduce(STUDY, cache)
    assert result.gathered.computed > 0 == again.gathered.computed
    for name, judged in result.sets.items():
        for policy, found in judged.judged.items():
            assert np.array_equal(found.total, again.sets[name].judged[policy].total)


def test_a_machine_without_a_gpu_reads_the_table(result, cache, monkeypatch, tmp_path):
    def none(number):
        raise DeviceUnavailable("there is none")

    monkeypatch.setattr(places, "backend_of", none)
    again = reproduce(STUDY, cache)
    assert again.gathered.machine == result.gathered.machine
    assert repr(tables.system_rows(again)) == repr(tables.system_rows(result))  # NaN, too
    empty = OutcomeTable(tmp_path / "empty.sqlite")
    with pytest.raises(DeviceUnavailable, match="there is none"):
        SLICE.arithmetic(empty)
    monkeypatch.setattr(OutcomeTable, "arithmetics", lambda self: ["cuda on a", "cuda on b"])
    with pytest.raises(RoundwiseError, match="several GPUs"):
        SLICE.arithmetic(empty)


# Judging: a table by hand


SPACE = ActionSpace(
    VerifiedSolve.stages,
    tuple(
        VerifiedSolve().formats(f"{name}-fp64-fp64-fp64")
        for name in ("lu/local:fp16", "lu/local:fp16x2", "lu:fp64")
    ),
)


@pytest.fixture
def by_hand(result):
    """Two systems and three actions: seconds, and which pass the gate."""
    view = result.gathered.halves[OURS][1].take([0, 1])
    some = [runs.SPACE.index(action) for action in SPACE]
    return replace(
        view,
        actions=tuple(SPACE),
        seconds=np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 5.0]]),
        nbe=np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]),
        feature_seconds=np.full_like(view.feature_seconds, 0.25),
        **{name: getattr(view, name)[:, some] for name in ("status", "ferr", "reasons")},
    )


def test_climbs_pay_for_what_was_tried_in_vain(by_hand):
    # On the second system only FP64 passes: 1 + 3 + 5, 3 + 5 and 5 seconds.
    assert judging.climbs(by_hand, SPACE).tolist() == [[1, 2, 4], [9, 8, 5]]
    seen = ("kappa_est", "norm_inf")
    found = judging.judge(by_hand, SPACE, np.array([0, 1]), seen)
    assert found.total.tolist() == [1.5, 8.5]
    assert found.features.tolist() == [0.5, 0.5]
    assert found.met.tolist() == [True, False]
    assert found.unsolved.tolist() == [False, False]


def test_without_methods_a_miss_is_followed_by_fp64():
    space = space_of(FORMAT_SETS["fp16"])
    assert all(ladder[-1] == space.safe and len(ladder) < 3 for ladder in judging.ladders_of(space))


def test_the_numbers_of_a_policy(by_hand):
    chosen = {"low": [0, 0], judging.FIXED: [1, 1], judging.SAFE: [2, 2], judging.ORACLE: [0, 2]}
    judged = {
        name: judging.judge(by_hand, SPACE, np.array(actions)) for name, actions in chosen.items()
    }
    judged_set = judging.JudgedSet(by_hand, SPACE, {"other": np.array([3.0, 4.5])}, judged)
    row = tables.policy_row(judged_set, judged["low"], "other")
    assert row["seconds"] == 10  # 1 + 9
    assert row["times faster than other"].startswith("0.75 [")  # 7.5 / 10
    assert row["times faster than FP64"].startswith("0.9 [")  # 9 / 10
    assert row["times faster than best fixed"].startswith("1 [")  # 2 + 8
    expected = (math.log2(1 / 1) + math.log2(9 / 5)) / 2
    assert float(row["regret"].split()[0]) == pytest.approx(expected, rel=0.01)
    assert row["median"] == (3 + 0.5) / 2
    assert row["worst"] == 0.5
    assert (row["missed"], row["unsolved"], row["systems"]) == (1, 0, 2)
    assert tables.policy_row(judged_set, judged[judging.ORACLE], "other")["regret"] == "0 [0, 0]"


def test_what_no_action_solves_is_counted(by_hand):
    view = replace(by_hand, nbe=np.ones((2, 3)))
    found = judging.judge(view, SPACE, np.array([0, 2]))
    assert found.total.tolist() == [7, 5]
    assert found.unsolved.all()


def test_policies_pay_for_features_and_the_oracle_is_the_best(result):
    for name, judged in result.sets.items():
        view, oracle = judged.view, judged.judged[judging.ORACLE]
        seen = {"RL(W1)": ("kappa_est", "norm_inf"), "time, look": ("n", *runs.PROBE)}
        for policy, features in seen.items():
            columns = [view.feature_names.index(feature) for feature in features]
            paid = view.feature_seconds[:, columns].sum(axis=1)
            assert np.array_equal(judged.judged[policy].features, paid)
        for policy, found in judged.judged.items():
            if policy != runs.FRONT_DOOR:
                assert (found.total >= oracle.total).all(), (name, policy)
        assert not oracle.unsolved.any()


# Tables and files


def test_files(written, result):
    out, files = written
    assert all(path.stat().st_size > 0 for path in files)
    numbers = json.loads((out / "results.json").read_text())
    names = {"policies", "sizes", "ratios", "actions", "systems", "outcomes"}
    assert set(numbers["tables"]) == names
    with (out / "tables" / "native-gpu-systems.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(s.judged) * s.view.shape[0] for s in result.sets.values())
    sizes = tables.size_table(result)
    counts = [row[sizes.header.index("count")] for row in sizes.rows]
    assert sum(counts) == 3 * len(FAMILIES)  # two sizes of ours, one of the paper's
    for title, _ in departures.NATIVE_GPU:
        assert html.escape(title) in (out / "report.html").read_text()
    assert "with all costs" in numbers["summary"][-1]
    assert (out / "figures" / "native-gpu.png").stat().st_size < 250_000


def test_the_command(backend, tmp_path, monkeypatch):
    quick = "roundwise_studies.commands.reproduce.QUICK_GPU"
    monkeypatch.setattr(quick, replace(SLICE, papers_up_to=1))
    folders = ["--cache", tmp_path / "cache", "--out", tmp_path / "out"]
    arguments = ["reproduce", "native", "--device", "cuda", "--quick", "--sizes", 10, 25, *folders]
    assert "ON A GPU" in succeed(*arguments, "--verbose")
    settings = json.loads(succeed(*arguments, "--json"))["settings"]
    assert settings["sizes"] == [20]
    assert len(OutcomeTable(tmp_path / "cache" / "native-gpu.sqlite")) > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["dense", "--device", "cuda"], "--device is for native"),
        (["native", "--device", "cuda", "--systems", 3], "--sizes selects"),
        (["native", "--device", "cuda", "--order", "paper"], "order of the stages"),
        (["native", "--device", "cuda", "--sizes", 2, 3], "choose a range"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, said):
    assert said in " ".join(fail(2, "reproduce", *options).split())


# The benchmark and the page


@pytest.fixture
def bench(backend, monkeypatch):
    class Pool:
        def free_all_blocks(self):
            pass

    def lu_factor(self, A):
        return linalg.lu_factor(A.get())

    monkeypatch.setattr(cupy, "get_default_memory_pool", Pool, raising=False)
    monkeypatch.setattr(host_device.HostDevice, "lu_factor", lu_factor, raising=False)
    return loaded("benchmarks/bench_gpu.py")


def test_targets(bench):
    gaussian, *_, hard, definite = bench.CASES
    assert [gaussian.target(n) for n in (4096, 10_000, 32768)] == [1.3, 2.0, 3.0]
    assert gaussian.target(1000) is None is definite.target(8192)
    assert hard.target(32768) == 0.8


def test_the_benchmark_and_the_page(bench, written, tmp_path, monkeypatch, capsys):
    sizes = ["--sizes", "30", "--lu-sizes", "24", "--profiled", "24"]
    arguments = ["bench_gpu.py", *sizes, "--systems", "1", "--runs", "1", "--out"]
    monkeypatch.setattr(sys, "argv", [*arguments, str(written[0].parent)])
    bench.main()
    assert "LU alone" in capsys.readouterr().out
    measured = (written[0].parent / "gpu.md").read_text()
    assert all(case.name in measured for case in bench.CASES)
    assert "cuSOLVER fp64" in measured
    assert "a stand-in (version 1)" in measured
    refresh = loaded("docs/refresh.py")
    page = tmp_path / "gpu.md"
    page.write_text((ROOT / "docs" / "gpu.md").read_text())
    refresh.gpu(written[0].parent, page, tmp_path)
    once = page.read_text()
    assert "| front door | RL(W1) |" in once
    assert "| LU | n |" in once
    assert "(images/native-gpu.png)" in once
    assert (tmp_path / "native-gpu.png").exists()
    refresh.gpu(written[0].parent, page, tmp_path)
    assert page.read_text() == once
    with pytest.raises(SystemExit, match="make gpu-docs"):
        refresh.gpu(tmp_path / "none", page, tmp_path)


def test_a_profile_accounts_for_all_the_time(bench, backend):
    rows = bench.profile_rows(24, 1, backend)
    *parts, whole = rows
    assert sum(row["share"] for row in parts) == pytest.approx(1)
    assert whole["share"] == 1
    assert {"look", "factors", "substitution", "residual"} <= {row["part"] for row in parts}
