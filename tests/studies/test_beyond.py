"""What the paper left for later: each part on a small slice, and what the machine cannot do."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from roundwise.exceptions import RoundwiseError
from roundwise_studies.beyond import algorithms, energy, features, judging, learners, patience
from roundwise_studies.beyond.__main__ import PARTS, plain
from roundwise_studies.simulated.experiment import Settings
from roundwise_studies.simulated.sets import make

SLICE = Settings(systems=6, sizes=(12, 20), actions=35, taus=(judging.TAU,))


@pytest.fixture(scope="module")
def replay(cache):
    return judging.replayed("dense", cache, 1, SLICE)


def test_the_oracle_has_no_regret_and_the_safe_action_that_of_the_table(replay):
    rewards = replay.rewards("test", replay.reward("W2"))
    best = judging.judged(replay, "W2", rewards.argmax(axis=1))
    assert best["regret"] == best["low"] == best["high"] == 0
    safe = np.full(len(rewards), replay.space.safe)
    row = judging.judged(replay, "W2", safe)
    assert row["regret"] == pytest.approx((rewards.max(axis=1) - rewards[:, -1]).mean())
    assert (row["against FP64"], row["stages below FP64"], row["strict %"]) == (0, 0, 100)


def test_the_papers_actions_are_the_highest_25(replay):
    assert len(replay.space) == 35
    names = [replay.space.names[i] for i in replay.top]
    assert len(names) == 25
    assert not any(name.startswith("bf16-bf16") for name in names)


def test_settings_change_one_at_a_time(replay):
    rows = list(learners.sensitivity(replay, seeds=1))
    first, *others = learners.changes()
    assert first.parameter == "the paper's"
    assert len(rows) == 2 * (1 + len(others))
    assert {"alpha", "bins", "least epsilon", "episodes", "C1", "actions"} <= {
        change.parameter for change in others
    }
    assert all(row["low"] <= row["regret"] <= row["high"] for row in rows)


def test_learners_have_the_same_actions(replay):
    rows = {(row["learner"], row["weights"]): row for row in learners.learners(replay, (), seeds=2)}
    assert rows["oracle", "W1"]["regret"] == 0
    assert rows["all-FP64", "W2"]["stages below FP64"] == 0
    assert ("Thompson sampling", "W1") in rows


@pytest.mark.parametrize("kind", ["DQN", "PPO"])
def test_library_learners_are_seeded(replay, kind, monkeypatch):
    pytest.importorskip("stable_baselines3", reason="an extra of the studies: [rl]")
    monkeypatch.setattr(learners, "STEPS", 260)
    choices = partial(learners.library_choices, kind, replay, "W1", replay.top)
    first, again = choices(0), choices(0)
    assert np.array_equal(first, again)
    assert set(first.tolist()) <= set(replay.top)


def test_without_the_library_the_error_says_what_to_install(replay, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(ImportError, match=r"roundwise-studies\[rl\]"):
        learners.library_choices("DQN", replay, "W1", replay.top, 0)


def test_literature_has_its_own_outcomes_where_the_order_forbids_them(replay):
    problems = make("dense", SLICE, 0, SLICE.systems).test
    rows = {row["configuration"]: row for row in learners.fixed_rows(replay, problems)}
    assert set(rows) == set(learners.LITERATURE)
    low = rows["five precisions, bf16, GMRES in fp32"]
    assert low["action"] not in replay.space.names
    safe = judging.judged(replay, "W1", np.full(len(problems), replay.space.safe))
    assert rows["all-FP64"]["regret W1"] == pytest.approx(safe["regret"])


def test_features_are_computed_once(replay, tmp_path, monkeypatch):
    made = make("dense", SLICE, SLICE.systems, SLICE.systems)
    names, file = ("fill_ratio", "density"), tmp_path / "features.json"
    halves = tuple(features.computed(half, names, file) for half in (made.train, made.test))
    assert set(halves[0]["density"]) == {1.0}
    monkeypatch.setattr(features, "compute_with_factors", None)
    again = features.computed(made.train, names, file)
    assert np.array_equal(again["fill_ratio"], halves[0]["fill_ratio"])
    rows = list(features.contributions(replay, halves, names, seeds=1))
    states = {row["state"] for row in rows}
    assert {"kappa alone", "norm alone", "nothing", "kappa, norm, density"} <= states
    # A constant feature changes nothing.
    by_state = {row["state"]: row["regret"] for row in rows if row["weights"] == "W1"}
    assert by_state["kappa, norm, density"] == by_state["kappa, norm (the paper's)"]


def test_algorithms_and_formats_are_learned(tmp_path):
    names = []
    for task in algorithms.tasks(6):
        rows = list(algorithms.learned(task, tmp_path, seeds=1, jobs=1))
        assert [row["reward"] for row in rows] == list(algorithms.REWARDS)
        assert all(row["regret"] >= 0 for row in rows)
        names.append(task.name)
    assert {"LU-IR", "CG-IR", "least squares", "GMRES-IR with FP8"} <= set(names)


def test_matrices_come_from_files(tmp_path):
    import scipy.io
    import scipy.sparse as sp

    for n in (4, 6, 9):
        scipy.io.mmwrite(tmp_path / f"m{n}.mtx", sp.diags_array(np.arange(1.0, n + 1)))
    task = algorithms.application_task(tmp_path, 6)
    assert sorted(problem.n for problem in task.problems) == [4, 6]
    with pytest.raises(RoundwiseError, match="pass others"):
        algorithms.application_problems(tmp_path, 2)


def test_patience_changes_the_stop_and_not_the_systems(cache):
    settings = replace(SLICE, actions=25, seeds=2, taus=(1e-6, 1e-8))
    rows = list(patience.rows("dense", settings, cache, 1))
    assert {row["source"] for row in rows} == {"paper", "patience 1", "patience 3"}
    fp64 = {
        (row["tau"], row["kappa"], row["source"]): row["outer"]
        for row in rows
        if row["policy"] == "FP64"
    }
    for (tau, where, source), outer in fp64.items():
        if source == "patience 3":
            assert outer >= fp64[tau, where, "patience 1"]
    assert max(fp64.values()) > 2


# Energy


def powercap(folder, readings, span=1000):
    """A folder as Linux shows it; the counter's file is written anew before each reading."""
    for zone in ("intel-rapl:0", "intel-rapl:0:0"):
        (folder / zone).mkdir()
        (folder / zone / "energy_uj").write_text(f"{readings}\n")
        (folder / zone / "max_energy_range_uj").write_text(f"{span}\n")
    return folder


def test_a_counter_is_read_and_starts_again_at_its_range(tmp_path):
    counter = energy.Counter.found(powercap(tmp_path, 900))
    assert counter.read() == (900,)  # packages alone: cores are part of them
    assert counter.joules((900,), (950,)) == pytest.approx(50e-6)
    assert counter.joules((900,), (99,)) == pytest.approx(200e-6)


def test_joules_are_those_of_one_call(tmp_path):
    folder, used = powercap(tmp_path, 0, span=10**9), [0]

    def run():
        used[0] += 7
        (folder / "intel-rapl:0" / "energy_uj").write_text(str(used[0]))

    counter = energy.Counter.found(folder)
    assert energy.joules_of(run, counter, 0.01) == pytest.approx(7e-6)


def test_without_a_counter_the_reason_is_told(tmp_path):
    with pytest.raises(energy.EnergyUnavailable, match="no RAPL counter"):
        energy.Counter.found(tmp_path)


def test_a_counter_for_root_alone_is_told(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError

    monkeypatch.setattr(energy.Counter, "read", refuse)
    with pytest.raises(energy.EnergyUnavailable, match="root alone"):
        energy.Counter.found(powercap(tmp_path, 0))


def test_a_miss_pays_for_the_safe_action():
    joules, met = np.array([[1.0, 4.0], [1.0, 4.0]]), np.array([[True, True], [False, True]])
    earned = energy.rewards(joules, met, 1)
    assert earned == pytest.approx(np.array([[2.0, 0.0], [np.log2(4 / 5), 0.0]]))


def test_the_energy_study_learns_from_joules(tmp_path):
    counter = energy.Counter.found(powercap(tmp_path, 0))
    counter = type(counter)(counter.files, counter.ranges)
    fake = iter(range(0, 10**9, 3))
    object.__setattr__(counter, "read", lambda: (next(fake) % 1000,))
    problems = algorithms.dense_problems(2, (10, 12), 2, 0)
    rows = list(energy.study(problems, counter))
    assert [row["action"] for row in rows] == ["fp32-fp64-fp64-fp64", "fp64-fp64-fp64-fp64"]
    assert sum(row["chosen %"] for row in rows) == pytest.approx(100)
    assert rows[1]["mean reward"] == 0


def test_numbers_are_plain():
    assert plain(float("nan")) is None
    assert plain(1 / 3) == 0.333333
    assert set(PARTS) >= {"sensitivity", "features", "learners", "literature", "energy"}
