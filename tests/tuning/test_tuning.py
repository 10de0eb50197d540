"""The tuner: learning by replay, predicting, saving; and what it says to garbage."""

import dataclasses
import hashlib
import inspect
import io
import itertools
import json
import os
import re
import shutil
import zipfile
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

import roundwise as rw
from roundwise.actions import list_space, monotone_space
from roundwise.costs import H200_LIKE
from roundwise.discretizer import FeatureDiscretizer
from roundwise.outcomes import OutcomeTable
from roundwise.policies import FixedAction, LinearUCB, Oracle, Policy, RegressionPolicy, TabularQ
from roundwise.problems import LinearSystem, randsvd
from roundwise.problems.given import as_problem
from roundwise.rewards import PAPER_W1, PAPER_W2, CostReward, ProblemFacts, Reward, StrictTarget
from roundwise.solver import default_policy
from roundwise.tuning import PAPER_CONTEXT, Context, Tuner, TunerFileError, train
from roundwise.tuning.files import read_tuner, write_tuner

FORMATS = ("bf16", "fp32", "fp64")
SPACE = monotone_space(rw.GmresIR.stages, FORMATS)


def problems(count, first_seed=0):
    return [
        randsvd(20 + 3 * i, 10.0 ** (1 + i % 6), mode=2, rng=first_seed + i) for i in range(count)
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return OutcomeTable(tmp_path_factory.mktemp("tuning") / "outcomes.sqlite")


@pytest.fixture(scope="module")
def fitted(table):
    return Tuner(rw.GmresIR.paper(), FORMATS, table=table, episodes=30).fit(problems(8))


def synthetic(states=4, actions=5, seed=0):
    """Contexts on a line, one bin each, and rewards with a known best action per context."""
    rng = np.random.default_rng(seed)
    contexts = np.repeat(np.arange(float(states)), 3)[:, None]
    means = rng.permuted(np.tile(np.arange(actions), (states, 1)), axis=1).astype(float)
    return contexts, np.repeat(means, 3, axis=0), means.argmax(axis=1)


def one_stage_space(count):
    names = [rw.FloatFormat(f"f{p}", p, -100, 100) for p in range(2, 2 + count)]
    return list_space(("only",), [(fmt,) for fmt in names])


# Training


@pytest.mark.parametrize("alpha", [0.5, "1/N"])
def test_tabular_q_converges_to_the_tables_argmax(alpha):
    contexts, rewards, best = synthetic()
    policy = TabularQ(FeatureDiscretizer(4), alpha=alpha)
    curves = train(policy, contexts, rewards, one_stage_space(5), 200, np.random.default_rng(0))
    assert np.array_equal(policy.predict(contexts), np.repeat(best, 3))
    assert curves.coverage[-1] == 1.0
    assert curves.error[-20:].max() <= 1e-12 < curves.error[0]
    # At the end one choice in ten is random: mean reward 0.9 * 4 + 0.1 * 2, up to noise.
    assert curves.reward[-50:].mean() == pytest.approx(3.8, abs=0.15)


def test_the_papers_schedule_is_in_the_curves():
    contexts, rewards, _ = synthetic()
    curves = train(TabularQ(), contexts, rewards, one_stage_space(5), 20, np.random.default_rng(0))
    assert curves.epsilon.tolist() == pytest.approx([max(0.1, 1 - t / 20) for t in range(1, 21)])


def test_training_is_deterministic_by_seed():
    contexts, rewards, _ = synthetic()
    space = one_stage_space(5)
    runs = [
        train(TabularQ(), contexts, rewards, space, 10, np.random.default_rng(seed)).reward
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_baselines_need_no_training():
    contexts, rewards, best = synthetic()
    policy = Oracle(rewards)
    curves = train(policy, contexts, rewards, one_stage_space(5), 7, np.random.default_rng(0))
    assert np.all(curves.reward == 4.0)
    assert np.array_equal(policy.predict(contexts), np.repeat(best, 3))


def test_wrong_tables_are_refused():
    contexts, rewards, _ = synthetic()
    space, rng = one_stage_space(5), np.random.default_rng(0)
    with pytest.raises(ValueError, match="one row for each of 12 contexts"):
        train(TabularQ(), contexts, rewards[:-1], space, 5, rng)
    with pytest.raises(ValueError, match="hold NaN or inf"):
        train(TabularQ(), contexts, np.where(rewards == 0, np.nan, rewards), space, 5, rng)
    with pytest.raises(ValueError, match="choose at least 1"):
        train(TabularQ(), contexts, rewards, space, 0, rng)


# Fit and predict


def test_fit_learns_actions_of_the_space(fitted):
    assert len(fitted.space_) == 15
    assert fitted.rewards_.shape == (8, 15)
    assert fitted.contexts_.shape == (8, 2)
    assert len(fitted.curves_.reward) == 30
    for problem in problems(2, first_seed=50):
        action = fitted.predict(problem)
        assert action in fitted.space_.actions
        features = fitted.features(problem)
        assert fitted.predict_action(features) == action
        # The context is the paper's.
        expected = [np.log10(float(features["kappa_exact"])), np.log10(abs(problem.A).sum(1).max())]
        np.testing.assert_allclose(PAPER_CONTEXT.vector(features), expected, rtol=1e-12)


def test_rewards_are_those_of_the_outcomes(fitted):
    problem = problems(8)[3]
    outcome = rw.GmresIR.paper().run(problem, SPACE[4])
    kappa = float(fitted.features(problem)["kappa_exact"])
    facts = ProblemFacts.from_problem(problem, kappa)
    assert fitted.rewards_[3, 4] == pytest.approx(PAPER_W1(outcome, facts, SPACE[4]), rel=1e-9)


def test_another_reward_policy_or_seed_solves_nothing_again(fitted, table, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("solved again")

    monkeypatch.setattr(rw.GmresIR, "execute", refuse)
    for policy, reward in itertools.product(
        (TabularQ(alpha="1/N"), LinearUCB(), FixedAction()),
        (PAPER_W2, CostReward(H200_LIKE, StrictTarget(1e-6))),
    ):
        tuner = Tuner(rw.GmresIR.paper(), FORMATS, table=table, policy=policy, reward=reward)
        tuner.fit(problems(8))
        assert not hasattr(policy, "space")  # the parameter is left alone
        assert tuner.policy_.space == SPACE


def test_a_part_of_a_space_and_storage_arithmetic(tmp_path):
    space = SPACE.last(5)
    tuner = Tuner(
        rw.GmresIR.paper(),
        space=space,
        arithmetic="storage",
        table=tmp_path / "t.sqlite",
        episodes=5,
    )
    tuner.fit(problems(3))
    assert tuner.predict(problems(1)[0]) in space.actions
    assert tuner.provenance_["arithmetic"] == "storage"
    assert len(OutcomeTable(tmp_path / "t.sqlite")) == 15


def test_estimated_condition_number_as_context():
    context = Context(("kappa_est", "norm_inf", "density"), (1.0, 1e-300, None))
    tuner = Tuner(rw.LuIR(), ("fp32", "fp64"), context=context, episodes=5).fit(problems(4))
    assert tuner.contexts_.shape == (4, 3)
    assert tuner.contexts_[0, 2] == 1.0
    assert len(tuner.predict(problems(1)[0])) == 3


def test_partial_fit_learns_online(table):
    tuner = Tuner(rw.GmresIR.paper(), FORMATS, table=table, episodes=1).fit(problems(8))
    problem, action = problems(1)[0], "bf16-bf16-bf16-bf16"
    good = rw.GmresIR.paper().run(problem, "fp64-fp64-fp64-fp64")
    index = tuner.space_.index(action)
    state = tuner.policy_.encode(tuner.contexts_[:1])[0]
    # An outcome better than any: repeated, it must become the greedy choice.
    perfect = dataclasses.replace(good, ferr=1e-16, inner_iterations=0, action=action)
    with pytest.raises(ValueError, match="pass the action that was run"):
        tuner.partial_fit(problem, action, good)
    for _ in range(30):
        reward = tuner.partial_fit(problem, action, perfect)
    assert reward > tuner.rewards_[0].max()
    assert tuner.policy_.choose(state) == index
    assert tuner.predict(problem) == tuner.space_[index]
    cost = Tuner(rw.GmresIR.paper(), FORMATS, table=table, reward=CostReward(H200_LIKE))
    cost.fit(problems(8))
    with pytest.raises(ValueError, match="no baseline"):
        cost.partial_fit(problem, "fp64-fp64-fp64-fp64", good)
    cost.partial_fit(problem, "fp64-fp64-fp64-fp64", good, baseline=good)


def test_the_constructor_only_stores():
    given = {name: object() for name in inspect.signature(Tuner).parameters}
    assert vars(Tuner(**given)) == given


# Garbage


def test_garbage_gets_clear_errors_or_the_safe_action(fitted, table):
    with pytest.raises(TypeError, match=r"pass an Algorithm, GmresIR\.paper\(\) for example"):
        Tuner(rw.GmresIR).fit(problems(1))
    with pytest.raises(ValueError, match="no training problems"):
        Tuner(rw.GmresIR.paper()).fit([])
    with pytest.raises(ValueError, match="has learned nothing yet; call fit"):
        Tuner(rw.GmresIR.paper()).predict(problems(1)[0])
    with pytest.raises(ValueError, match=r"nan.* is undefined"):
        fitted.predict_action({"kappa_exact": float("nan"), "norm_inf": 1.0})
    with pytest.raises(ValueError, match="features lack norm_inf"):
        fitted.predict_action({"kappa_exact": 10.0})
    safe = fitted.space_[fitted.space_.safe]
    assert fitted.predict_action({"kappa_exact": float("inf"), "norm_inf": 1.0}) == safe
    singular = LinearSystem(np.diag([1.0, 0.0]), np.ones(2))
    assert fitted.predict(singular) == safe
    with pytest.raises(rw.UnknownNameError, match="unknown feature 'color'"):
        Context(("color",), (None,))


def test_a_policy_may_see_cheap_features_alone(table):
    # The paper's reward needs kappa all the same: in training, not in the context.
    cheap = Context(("norm_inf", "n"), (1e-300, 1.0))
    for reward in (None, CostReward(H200_LIKE)):
        tuner = Tuner(rw.GmresIR.paper(), FORMATS, context=cheap, reward=reward, table=table)
        tuner.fit(problems(8))
        assert tuner.contexts_.shape == (8, 2)
        assert len(tuner.predict(problems(1)[0])) == 4


def test_a_singular_matrix_gets_the_safe_action_from_an_estimate_too():
    context = Context(("kappa_est", "norm_inf"), (1.0, 1e-300))
    tuner = Tuner(rw.LuIR(), ("fp32", "fp64"), context=context, episodes=3).fit(problems(3))
    singular = LinearSystem(np.diag([1.0, 0.0]), np.ones(2))
    assert tuner.predict(singular) == tuner.space_[tuner.space_.safe]


def test_one_problem_one_action():
    tuner = Tuner(rw.LuIR(), ("fp64",), episodes=3).fit(problems(1))
    assert [fmt.name for fmt in tuner.predict(problems(1)[0])] == ["fp64"] * 3


# Files


@pytest.mark.parametrize(
    "policy", [TabularQ(), LinearUCB(), FixedAction(), RegressionPolicy()], ids=lambda p: p.name
)
def test_save_and_load_give_the_same_choices(policy, table, tmp_path):
    if policy.name == "regression":
        pytest.importorskip("sklearn")
    tuner = Tuner(rw.GmresIR.paper(), FORMATS, table=table, policy=policy, episodes=5)
    tuner.fit(problems(8)).save(tmp_path / "p.json")
    loaded = Tuner.load(tmp_path / "p.json")
    assert loaded.algorithm == tuner.algorithm
    assert loaded.context_ == tuner.context_
    assert loaded.provenance_ == tuner.provenance_
    assert np.array_equal(loaded.curves_.reward, tuner.curves_.reward)
    rng = np.random.default_rng(0)
    for kappa, norm in zip(10 ** rng.uniform(0, 9, 20), rng.uniform(0.1, 9, 20), strict=True):
        features = {"kappa_exact": kappa, "norm_inf": norm}
        assert loaded.predict_action(features) == tuner.predict_action(features)
    loaded.save(tmp_path / "again.json")


def test_saved_files_hold_no_pickle_and_tell_their_origin(fitted, tmp_path):
    fitted.save(tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text())
    assert content["schema"] == "roundwise-tuner"
    assert {"roundwise", "seed", "arithmetic", "created", "machine"} <= content["provenance"].keys()
    with np.load(tmp_path / content["arrays"], allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)


def test_saving_replaces_its_own_files_and_no_other(fitted, table, tmp_path):
    path = tmp_path / "p.json"
    others = [
        *("p.measurements.npz", "p.0123456789ab.npz", "run.0123456789ab.npz", "p.npz"),
        *("run1.0123456789ab.npz", "pp.0123456789ab.npz"),
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    second = Tuner(rw.GmresIR.paper(), FORMATS, table=table, episodes=3, seed=1).fit(problems(8))
    for tuner in (fitted, second, fitted, fitted):
        tuner.save(path)
        arrays = json.loads(path.read_text())["arrays"]
        assert {file.name for file in tmp_path.iterdir()} == {"p.json", arrays, *others}
        assert Tuner.load(path).predict(problems(1)[0]) == tuner.predict(problems(1)[0])
    assert all((tmp_path / name).read_bytes() == b"mine" for name in others)


@pytest.mark.parametrize("name", ["p*.json", "p?.json", "[p].json"])
def test_names_are_no_patterns(fitted, table, tmp_path, name):
    fitted.save(tmp_path / "p.json")
    fitted.save(tmp_path / "p1.json")
    second = Tuner(rw.GmresIR.paper(), FORMATS, table=table, episodes=3, seed=1).fit(problems(8))
    for tuner in (fitted, second):
        tuner.save(tmp_path / name)
    for path in (tmp_path / "p.json", tmp_path / "p1.json", tmp_path / name):
        Tuner.load(path)
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("copied", ["copyfile", "symlink", "link"])
def test_replacing_a_copy_leaves_the_arrays_of_the_original(fitted, table, tmp_path, copied):
    original, other = tmp_path / "p.json", tmp_path / "copy.json"
    fitted.save(original)
    getattr(shutil if copied == "copyfile" else os, copied)(original, other)
    Tuner(rw.GmresIR.paper(), FORMATS, table=table, episodes=3, seed=1).fit(problems(8)).save(other)
    for path in (original, other):
        Tuner.load(path)


@pytest.mark.parametrize(
    "previous",
    [
        "no JSON",
        "[1]",
        '{"arrays": "mine.npz"}',
        '{"schema": "roundwise-tuner", "arrays": "mine.npz", "sha256": "mine"}',
        '{"schema": "roundwise-tuner", "arrays": "../mine.npz", "sha256": "../../../mine"}',
        '{"schema": "roundwise-tuner", "sha256": 3}',
    ],
)
def test_what_a_foreign_file_names_is_kept(fitted, tmp_path, previous):
    (tmp_path / "mine.npz").write_bytes(b"mine")
    path = tmp_path / "p.json"
    path.write_text(previous)
    fitted.save(path)
    assert (tmp_path / "mine.npz").read_bytes() == b"mine"
    Tuner.load(path)


def test_bad_files_are_named(fitted, tmp_path):
    path = tmp_path / "p.json"
    with pytest.raises(ValueError, match=r"choose a name in \.json"):
        fitted.save(tmp_path / "p.pkl")
    fitted.save(path)
    good = json.loads(path.read_text())

    def refused(text, message):
        path.write_text(text)
        with pytest.raises(TunerFileError, match=message) as error:
            Tuner.load(path)
        assert "\n" not in str(error.value)

    refused("{", "is no JSON")
    refused("[]", "is no saved tuner")
    refused(json.dumps(good | {"schema": "other"}), "is no saved tuner")
    refused(json.dumps(good | {"version": 2}), "has version 2, this Roundwise reads 1")
    refused(json.dumps(good | {"policy": {}}), "is damaged")
    refused(json.dumps({k: v for k, v in good.items() if k != "context"}), "is damaged")
    refused(json.dumps(good | {"curves": []}), "is damaged")
    refused(json.dumps(good | {"arithmetic": "exact"}), "is damaged")
    refused("[" * 100_000, "is no JSON")
    refused("9" * 5000, "is no JSON")
    (arrays,) = tmp_path.glob("p.*.npz")
    refused(json.dumps(good | {"arrays": "../p.npz"}), "names no arrays beside it")
    arrays.write_bytes(b"PK damaged")
    refused(json.dumps(good), "does not belong to p.json")
    arrays.unlink()
    refused(json.dumps(good), "is missing; keep it beside p.json")
    with pytest.raises(FileNotFoundError):
        Tuner.load(tmp_path / "nothing.json")


def test_arrays_come_back_as_they_were(tmp_path):
    kept = {
        "matrix": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "number": np.float64(0.5),
        "counts": np.arange(3),
        "flags": np.array([True, False]),
        "names": np.array(["a", "fp32"]),
        "nothing": np.zeros((0, 4)),
    }
    write_tuner(tmp_path / "p.json", {}, kept)
    _, arrays = read_tuner(tmp_path / "p.json")
    for name, array in kept.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    arrays["matrix"][0, 0] = 7.0  # a policy goes on learning in them


def npy(header, data=b""):
    """A .npy file with this header."""
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + data


def plain(shape, kind="<f8"):
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "content",
    [
        npy(plain("(1,)"), bytes(8)),  # no archive
        {"a.txt": b"text"},
        {"a.npy": b"text"},
        {"a.npy": npy(plain("(2,)"), bytes(8))},
        {"a.npy": npy(plain(f"({10**30},)"))},
        {"a.npy": npy(plain(f"({10**12}, {10**12})"))},
        {"a.npy": npy(plain("(-1,)"))},
        {"a.npy": npy(plain("(True,)"), bytes(8))},
        {"a.npy": npy(plain("(1,)", "|O"), b"N.")},
        {"a.npy": npy(plain("(1,)", "<c8"), bytes(8))},
        {"a.npy": npy(plain("(1,)", "<U1"), b"\xff" * 4)},
        {"a.npy": npy("(" * 50)},
        {"a.npy": b"\x93NUMPY\1\0\xff"},
    ],
)
def test_hostile_arrays_are_refused(content, tmp_path):
    packed = content
    if isinstance(content, dict):
        with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        packed = buffer.getvalue()
    (tmp_path / "a.npz").write_bytes(packed)
    header = {"schema": "roundwise-tuner", "version": 1, "arrays": "a.npz"}
    digest = {"sha256": hashlib.sha256(packed).hexdigest()}
    (tmp_path / "p.json").write_text(json.dumps(header | digest))
    with pytest.raises(TunerFileError, match="is damaged"):
        read_tuner(tmp_path / "p.json")


@dataclasses.dataclass(frozen=True)
class FewBits(Reward):
    name: ClassVar[str] = "few bits"
    needs_kappa: ClassVar[bool] = False
    price: float = 0.1

    def components(self, outcome, facts, action):
        return {"bits": -self.price * sum(fmt.p for fmt in action), "error": -(outcome.nbe > 1e-3)}


class LastGood(Policy):
    """Remembers the best reward of each action, and studies how often each failed."""

    name = "last good"

    def __init__(self, start=0.0):
        self.initial = start

    def begin(self, contexts):
        self.best = np.full(len(self.space), -np.inf)
        self.failures = None

    def study(self, view, contexts):
        assert view.shape == (len(contexts), len(self.space))
        self.failures = [
            sum(view.outcome(i, j).status.failed for i in range(view.shape[0]))
            for j in range(view.shape[1])
        ]

    def expected(self, state):
        return self.best

    def update(self, state, action, reward):
        self.best[action] = max(self.best[action], reward)
        return 0.0

    def settings(self):
        return {"start": self.initial}

    def arrays(self):
        return {"best": self.best}

    def restore(self, settings, arrays):
        self.best = np.array(arrays["best"])


def test_a_reward_and_a_policy_of_your_own_are_passed_to_load(table, tmp_path):
    tuner = Tuner(
        rw.GmresIR.paper(), FORMATS, table=table, reward=FewBits(0.3), policy=LastGood(2.0)
    )
    tuner.fit(problems(8)).save(tmp_path / "p.json")
    loaded = Tuner.load(tmp_path / "p.json", rewards=[FewBits], policies=[LastGood])
    assert loaded.reward == FewBits(0.3)
    assert type(loaded.policy_) is LastGood
    assert loaded.policy_.initial == 2.0
    problem = problems(1)[0]
    assert loaded.predict(problem) == tuner.predict(problem) == SPACE[0]
    for missing in ({"rewards": [FewBits]}, {"policies": [LastGood]}, {}):
        with pytest.raises(TunerFileError, match=r"class of your own .*pass it to Tuner\.load"):
            Tuner.load(tmp_path / "p.json", **missing)


def test_a_policy_may_study_the_outcomes(table):
    tuner = Tuner(rw.GmresIR.paper(), FORMATS, table=table, policy=LastGood()).fit(problems(8))
    view = table.view(rw.GmresIR.paper(), problems(8), SPACE)
    assert tuner.policy_.failures == view.failed.sum(axis=0).tolist()


def test_an_algorithm_of_your_own_is_passed_to_load(fitted, tmp_path):
    fitted.save(tmp_path / "p.json")
    assert Tuner.load(tmp_path / "p.json", rw.GmresIR.paper()).algorithm == rw.GmresIR.paper()
    with pytest.raises(TunerFileError, match="trained for other settings"):
        Tuner.load(tmp_path / "p.json", rw.GmresIR.paper(1e-8))


def test_fit_takes_pairs_and_plain_matrices():
    rng = np.random.default_rng(0)
    matrices = [rng.standard_normal((n, n)) for n in (6, 7)]
    pairs = [(A, A @ np.ones(len(A))) for A in matrices]
    tuner = rw.Tuner(rw.VerifiedSolve(), ["fp32", "fp64"]).fit(pairs)
    assert len(tuner.contexts_) == 2
    assert tuner.predict(pairs[0]) == tuner.predict(rw.LinearSystem(*pairs[0]))
    whole = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=2)
    whole.fit([*matrices, sp.csr_array(matrices[0])])  # the paper's reward needs x_true
    assert whole.rewards_.shape == (3, 5)
    with pytest.raises(TypeError, match=re.escape("fit([(A1, b1), (A2, b2)])")):
        whole.fit(pairs[0])  # a pair that should have stood in a list


def test_pairs_of_least_squares():
    problem = as_problem((np.ones((3, 1)), np.arange(3.0)), rw.LsIR.problem_type)
    assert isinstance(problem, rw.problems.LeastSquares)


def test_reprs_are_short():
    tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=2)
    assert repr(tuner) == "Tuner(GmresIR, TabularQ, PaperReward, not fitted)"
    tuner.fit([np.eye(4)])
    assert repr(tuner) == "Tuner(GmresIR, TabularQ, PaperReward, 5 actions, trained on 1 problems)"
    assert repr(tuner.space_) == (
        "ActionSpace(5 for factor, update, gmres, residual: fp32-fp32-fp32-fp32 ... "
        "fp64-fp64-fp64-fp64)"
    )
    assert repr(tuner.policy_).endswith(", 5 actions)")
    assert len(repr(default_policy())) < 100
