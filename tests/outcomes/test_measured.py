"""Measured outcomes: native runs are timed alone, and their times are kept, but are no facts."""

import contextlib
import json
import math
import sqlite3

import numpy as np
import pytest

import roundwise as rw
from roundwise.algorithms import Shared
from roundwise.algorithms import base as algorithms_base
from roundwise.backends import NativeBackend
from roundwise.costs import MeasuredTime
from roundwise.features import definitions as features
from roundwise.outcomes import (
    NATIVE_FEATURES,
    OutcomeTable,
    OutcomeTableError,
    fill,
    filling,
    schema,
)
from roundwise.outcomes import workers as measuring
from roundwise.outcomes.reading import measurement_arrays
from roundwise.outcomes.records import algorithm_json, feature_arithmetic
from roundwise.outcomes.table import table_summary
from roundwise.problems import randsvd
from roundwise.rewards import CostReward

GMRES_IR = rw.GmresIR.paper()
ACTIONS = ("fp32-fp32-fp64-fp64", "fp32-fp64-fp64-fp64", "fp64-fp64-fp64-fp64")
STAGES = ("factor", "update", "gmres", "residual")


def systems(count):
    return [randsvd(12 + i, 100.0, rng=i) for i in range(count)]


@pytest.fixture
def table(tmp_path):
    return OutcomeTable(tmp_path / "outcomes.sqlite")


def test_times_of_every_repeat_are_kept(table):
    problems = systems(2)
    assert fill(table, GMRES_IR, problems, ACTIONS, arithmetic="native") == 6
    assert (table.repeats(GMRES_IR, problems, ACTIONS) == 3).all()
    assert fill(table, GMRES_IR, problems, ACTIONS, arithmetic="native") == 0
    view = table.view(GMRES_IR, problems, ACTIONS, "native")
    assert view.feature_names == tuple(sorted(NATIVE_FEATURES))
    assert view.seconds.shape == view.repeats.shape == (2, 3)
    assert (view.seconds > 0).all()
    assert (view.repeats == 3).all()
    assert view.timing_names == (*STAGES, "verify")
    assert (view.timings > 0).all()
    outcome = view.outcome(1, 2)
    run = GMRES_IR.run(problems[1], ACTIONS[2], "native")
    assert outcome == run  # facts; times are not compared
    assert MeasuredTime().cost(outcome) == view.seconds[1, 2]
    assert set(outcome.timings) == {*STAGES, "verify"}
    taken = view.take([1])
    assert taken.outcome(0, 2) == outcome
    assert taken.seconds[0, 2] == taken.outcome(0, 2).seconds == view.seconds[1, 2]
    assert table_summary(table.path)["settings"][0]["measurements"] == 18


def test_cost_reward_from_measured_times(table):
    problems = systems(1)
    fill(table, GMRES_IR, problems, ACTIONS, arithmetic="native")
    tuner = rw.Tuner(
        GMRES_IR,
        formats=("fp32", "fp64"),
        arithmetic="native",
        reward=CostReward(MeasuredTime()),
        table=table,
    ).fit(problems)
    assert np.isfinite(tuner.rewards_).all()
    assert tuner.rewards_[0, -1] == 0.0  # the baseline is its own measure


def test_more_repeats_are_added_and_facts_kept(table, monkeypatch):
    (problem,) = systems(1)
    fill(table, GMRES_IR, [problem], ACTIONS[:1], arithmetic="native", repeats=1, memory=False)
    before = table.content()
    measured = []
    original = filling.measured_runs

    def noted(*arguments):
        measured.append((len(arguments[2]), arguments[4]))
        return original(*arguments)

    monkeypatch.setattr(filling, "measured_runs", noted)
    assert fill(table, GMRES_IR, [problem], ACTIONS, arithmetic="native", repeats=4) == 3
    assert sorted(measured, key=str) == [(1, range(0, 4)), (1, range(0, 4)), (1, range(1, 4))]
    assert (table.repeats(GMRES_IR, [problem], ACTIONS) == 4).all()
    assert set(before) <= set(table.content())
    assert fill(table, GMRES_IR, [problem], ACTIONS, arithmetic="native") == 0


class TickingClock:
    """Each look takes one second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_factors_are_made_once_per_repeat_and_charged_to_each_action(monkeypatch):
    (problem,) = systems(1)
    made = []
    matrix = NativeBackend.matrix

    def counted(self, A, fmt):
        made.append(getattr(fmt, "name", fmt))
        return matrix(self, A, fmt)

    monkeypatch.setattr(NativeBackend, "matrix", counted)
    monkeypatch.setattr(algorithms_base.time, "perf_counter", TickingClock())
    actions = [GMRES_IR.formats(text) for text in ACTIONS[:2]]
    outcomes, rows = measuring.measured_runs(
        GMRES_IR, problem, actions, NativeBackend(), range(2), False
    )
    assert [outcome.action for outcome in outcomes] == list(ACTIONS[:2])
    assert set(rows) == {(action, repeat) for action in ACTIONS[:2] for repeat in (0, 1)}
    assert made.count("fp32") == 2  # one factorization for each repeat
    # Analysing and factorizing take one tick each; substitution, on the real clock, far less.
    factor_seconds = [json.loads(row["timings"])["factor"] for row in rows.values()]
    assert factor_seconds == pytest.approx([2.0] * 4, abs=0.5)


def test_medians_by_hand():
    rows = [
        ("f", "a", 3.0, '{"factor":1.0,"verify":0.5}', None),
        ("f", "a", 1.0, '{"factor":0.25,"verify":0.75}', 4096),
        ("f", "a", 2.0, '{"factor":2.0,"verify":1.0}', None),
        ("f", "c", 7.0, "{}", None),
    ]
    arrays = measurement_arrays(rows, [("f", "a"), ("f", "b"), ("f", "c")], (1, 3), ["factor"])
    np.testing.assert_equal(arrays["seconds"], [[2.0, math.nan, 7.0]])
    np.testing.assert_equal(arrays["repeats"], [[3, 0, 1]])
    assert arrays["timing_names"] == ("factor", "verify")
    np.testing.assert_equal(arrays["timings"], [[[1.0, 0.75], [math.nan] * 2, [0.0, 0.0]]])
    np.testing.assert_equal(arrays["peak_bytes"], [[4096.0, math.nan, math.nan]])


def test_emulated_outcomes_have_no_times(table):
    problems = systems(1)
    fill(table, GMRES_IR, problems, ACTIONS[:1])
    view = table.view(GMRES_IR, problems, ACTIONS[:1])
    assert np.isnan(view.seconds).all()
    assert np.isnan(view.peak_bytes).all()
    assert not view.repeats.any()
    assert view.outcome(0, 0).seconds is None
    with pytest.raises(ValueError, match="no measured time"):
        MeasuredTime().cost(view.outcome(0, 0))


def test_machines_do_not_mix_and_can_be_read_elsewhere(table, threads):
    problems = systems(1)
    threads(1)
    fill(table, GMRES_IR, problems, ACTIONS[:1], arithmetic="native", memory=False)
    there = NativeBackend().description
    threads(2)
    assert not table.stored(GMRES_IR, problems, ACTIONS[:1], "native").any()
    with pytest.raises(OutcomeTableError, match="1 of 1 outcomes are missing"):
        table.view(GMRES_IR, problems, ACTIONS[:1], "native")
    assert table.arithmetics() == [there]
    view = table.view(GMRES_IR, problems, ACTIONS[:1], there)
    assert view.seconds[0, 0] > 0
    assert view.outcome(0, 0).arithmetic == "native"


def test_times_are_no_facts_and_the_first_are_kept(table, tmp_path):
    problems = systems(1)
    other = OutcomeTable(tmp_path / "other.sqlite")
    for target in (table, other):
        fill(target, GMRES_IR, problems, ACTIONS[:1], arithmetic="native", repeats=1, memory=False)
    fill(other, GMRES_IR, problems, ACTIONS[:1], arithmetic="native", repeats=2, memory=False)
    assert table.digest() == other.digest()
    before = table.view(GMRES_IR, problems, ACTIONS[:1], "native").seconds[0, 0]
    table.merge([other.path])
    assert table.repeats(GMRES_IR, problems, ACTIONS[:1])[0, 0] == 2
    with contextlib.closing(sqlite3.connect(table.path)) as connection:
        (kept,) = connection.execute("SELECT seconds FROM measurement WHERE repeat = 0").fetchone()
    assert kept == before


def test_native_features_count_their_factorization(monkeypatch):
    (problem,) = systems(1)
    monkeypatch.setattr(features, "perf_counter", TickingClock())
    alone = features.compute_with_factors(problem, ["norm_inf", "kappa_est"])
    native = features.compute_with_factors(problem, ["norm_inf", "kappa_est"], "native")
    assert (alone["norm_inf"].seconds, alone["kappa_est"].seconds) == (1.0, 1.0)
    assert (native["norm_inf"].seconds, native["kappa_est"].seconds) == (1.0, 2.0)
    assert native["kappa_est"].value == pytest.approx(alone["kappa_est"].value, rel=1e-10)


def test_features_by_their_factors(table):
    hard = [randsvd(20, 1e12, rng=1)]
    here, settings = {"arithmetic": "native", "memory": False}, (GMRES_IR, hard, ACTIONS[:1])
    fill(table, *settings, **here)
    fill(table, *settings, **here, feature_format="fp32")
    fill(table, *settings, features=["kappa_est"])
    exact = table.view(*settings, "native", ["kappa_est"]).features[0, 0]
    rough = table.view(*settings, "native", ["kappa_est"], "fp32").features[0, 0]
    emulated = table.view(*settings, features=["kappa_est"]).features[0, 0]
    assert exact == pytest.approx(emulated, rel=1e-2)
    assert rough < exact / 10  # fp32 does not see condition numbers beyond its precision
    assert feature_arithmetic("storage") == "operation"
    assert feature_arithmetic("operation", "fp32") == "operation, factors in fp32"
    with pytest.raises(OutcomeTableError, match="features are missing"):
        table.view(*settings, "native", ["symmetry"])


def test_a_singular_matrix_has_infinite_features_and_a_time(monkeypatch):
    monkeypatch.setattr(features, "perf_counter", TickingClock())
    singular = rw.LinearSystem(np.ones((3, 3)), np.ones(3))
    value = features.compute_with_factors(singular, ["kappa_est"], "native")["kappa_est"]
    assert (value.value, value.seconds) == (math.inf, 1.0)


# Memory


@pytest.mark.skipif(not measuring.can_measure(), reason="this system does not tell")
def test_peak_memory_counts_the_run_alone():
    size = 16 * 2**20

    def run(shared):
        with shared.diagnostics():
            kept = np.ones(4 * size // 8)  # no part of the run, though it stays
        work = np.ones(size // 8)
        return kept[0] + work[0]

    assert measuring.peak_bytes(run) == pytest.approx(size, rel=0.25)
    assert measuring.peak_bytes(lambda shared: None) < size / 4


def test_peak_memory_is_stored_once(table, monkeypatch):
    monkeypatch.setattr(measuring, "peak_bytes", lambda run: (run(Shared()), 12345)[1])
    problems = systems(1)
    fill(table, GMRES_IR, problems, ACTIONS, arithmetic="native", repeats=2)
    assert (table.view(GMRES_IR, problems, ACTIONS, "native").peak_bytes == 12345).all()
    with contextlib.closing(sqlite3.connect(table.path)) as connection:
        query = "SELECT repeat, count(peak_bytes) FROM measurement GROUP BY repeat"
        assert dict(connection.execute(query).fetchall()) == {0: 3, 1: 0}


def test_no_memory_where_the_system_does_not_tell(table, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "_CLEAR", tmp_path / "none")
    assert measuring.peak_bytes(lambda shared: None) is None
    problems = systems(1)
    fill(table, GMRES_IR, problems, ACTIONS[:1], arithmetic="native", repeats=1)
    assert np.isnan(table.view(GMRES_IR, problems, ACTIONS[:1], "native").peak_bytes).all()


# Calls and files


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"arithmetic": "native", "jobs": 2}, "would disturb each other; leave out jobs"),
        ({"arithmetic": "native", "jobs": -1}, "would disturb each other; leave out jobs"),
        ({"arithmetic": "native", "client": object()}, "would disturb each other; leave out"),
        ({"arithmetic": "native", "repeats": 0}, "repeats = 0; pass a count of at least 1"),
        ({"arithmetic": "native", "repeats": True}, "repeats = True; pass a count"),
        ({"repeats": 3}, "for timed runs, as native ones are; leave them out"),
        ({"memory": True}, "for timed runs, as native ones are; leave them out"),
    ],
)
def test_wrong_calls(table, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        fill(table, GMRES_IR, systems(1), ACTIONS, **arguments)
    assert len(table) == 0


def test_unsupported_formats_are_refused(table):
    with pytest.raises(rw.RoundwiseError, match="no native arithmetic for tf32"):
        fill(table, GMRES_IR, systems(1), ["tf32-fp32-fp64-fp64"], arithmetic="native")


def test_a_table_of_the_first_schema_is_migrated(tmp_path):
    problems = systems(1)
    new = OutcomeTable(tmp_path / "new.sqlite")
    fill(new, GMRES_IR, problems, ACTIONS[:1])
    path = tmp_path / "old.sqlite"
    tables = {
        "problem": "*",
        "format": "*",
        "setting": "*",
        "origin": "*",
        "feature": "problem, results_version, name, value, seconds, origin",
        "outcome": "*",
    }
    with contextlib.closing(sqlite3.connect(path)) as old, old:
        for statement in schema.MIGRATIONS[0]:
            old.execute(statement)
        old.execute("ATTACH DATABASE ? AS new", (str(new.path),))
        for name, columns in tables.items():
            old.execute(f"INSERT INTO {name} SELECT {columns} FROM new.{name}")
        old.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
    migrated = OutcomeTable(path)
    assert migrated.content() == new.content()
    view = migrated.view(GMRES_IR, problems, ACTIONS[:1])
    assert view.algorithm == algorithm_json(GMRES_IR)
    assert view.feature_names == ("kappa_exact", "norm_inf")
    assert not view.repeats.any()
    assert fill(migrated, GMRES_IR, problems, ACTIONS[:1]) == 0
    assert fill(migrated, GMRES_IR, problems, ACTIONS[:1], arithmetic="native") == 1
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert version == 2
    assert "feature_1" not in names
