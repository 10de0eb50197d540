"""`roundwise train` and `roundwise evaluate`: from systems to a judged policy."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import fail, interrupt, refuse, stored, succeed

import roundwise as rw
from roundwise.costs import H200_LIKE
from roundwise.outcomes import OutcomeTable
from roundwise.policies import POLICIES
from roundwise.problems import randsvd, write_matrix_market
from roundwise.rewards import BackwardErrorTarget, ClimbReward, CostReward, PaperReward
from roundwise.tuning import PROBE_CONTEXT, Tuner
from roundwise_studies.datasets import DATA_SETS

QUICK = ["--formats", "fp32,fp64", "--episodes", "30"]
ACTIONS = 5

TRAIN_KEYS = {
    "policy", "kind", "algorithm", "table", "outcomes_computed", "outcomes_in_table", "systems",
    "arithmetic", "episodes", "seed", "states", "coverage", "reward", "actions", "seconds",
}  # fmt: skip
EVALUATE_KEYS = {
    "policy", "kind", "algorithm", "arithmetic", "systems", "table", "outcomes_computed", "tau",
    "safe_action", "accuracy", "safe_accuracy", "actions", "usage", "regret", "speedup",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Six small systems of condition numbers 10 to 1e6."""
    folder = tmp_path_factory.mktemp("systems")
    for i in range(6):
        A = randsvd(20 + i, 10.0 ** (1 + i), mode=2, rng=i).A
        write_matrix_market(folder / f"A{i}.mtx", A)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def trained(tmp_path_factory, files):
    """A policy that has seen the first four, and what the command told."""
    path = tmp_path_factory.mktemp("trained") / "policy.json"
    facts = json.loads(succeed("train", *files[:4], "-o", path, *QUICK, "--json"))
    return path, facts


def test_train_tells_and_saves_what_the_tuner_learned(trained, files):
    path, facts = trained
    assert set(facts) == TRAIN_KEYS
    assert facts["outcomes_computed"] == facts["outcomes_in_table"] == 4 * ACTIONS
    assert facts["table"] == str(path.with_suffix(".sqlite"))
    assert sum(facts["actions"].values()) == facts["systems"]["count"] == 4
    reward = facts["reward"]
    assert reward["all_fp64"] == 0
    assert reward["oracle"] >= max(reward["policy"], reward["best_fixed"])

    tuner = Tuner.load(path)
    assert tuner.algorithm == rw.GmresIR(stop=rw.algorithms.DeploymentRule())
    assert isinstance(tuner.reward, CostReward)
    assert tuner.reward.target == BackwardErrorTarget()
    problems = [rw.problems.read_matrix_market(file) for file in files[:4]]
    assert tuner.provenance_["problems"] == [problem.fingerprint for problem in problems]
    chosen = ["-".join(f.name for f in tuner.predict(problem)) for problem in problems]
    assert facts["actions"] == {name: chosen.count(name) for name in chosen}
    assert path.read_text().startswith("{")  # JSON, no pickle


def test_training_again_solves_nothing(tmp_path, trained, files):
    path, facts = trained
    out = tmp_path / "again.json"
    options = ["-o", out, "--table", path.with_suffix(".sqlite"), *QUICK, "--json"]
    again = json.loads(succeed("train", *files[:4], *options))
    assert again["outcomes_computed"] == 0
    assert again["reward"] == facts["reward"]
    assert Tuner.load(out).curves_.reward.tolist() == Tuner.load(path).curves_.reward.tolist()


def test_train_text(tmp_path, files):
    out = tmp_path / "p.json"
    text = succeed("train", *files[:2], "-o", out, "--policy", "tabular", *QUICK)
    assert (
        f"{out}: tabular policy for GmresIR, learned from 2 Matrix Market systems, n = 20 to 21"
        in text
    )
    for word in ("outcomes", "states", "reward", "chosen", "time"):
        assert f"\n  {word} " in text


def test_train_says_when_there_is_nothing_to_learn(tmp_path, files):
    note = "no action beats all-FP64 on any of these systems"
    one, two = (tmp_path / name for name in ("one.json", "two.json"))
    assert note in succeed("train", files[0], "-o", one, "--formats", "fp64")
    paper = ["--reward", "paper", "--weights", "W2"]  # pays for low precision alone, too
    assert note not in succeed("train", files[0], "-o", two, *paper, *QUICK)


@pytest.mark.parametrize("learner", ["tabular", "linear-ucb", "thompson", "regression"])
def test_every_learner_is_saved_and_judged(tmp_path, trained, files, learner):
    out = tmp_path / "p.json"
    table = ["--table", trained[0].with_suffix(".sqlite")]
    options = ["-o", out, "--policy", learner, *table, *QUICK, "--json"]
    facts = json.loads(succeed("train", *files[:4], *options))
    assert (facts["states"] is None) == (learner != "tabular")
    assert type(Tuner.load(out).policy_) is POLICIES[learner.replace("-", "_")]
    judged = json.loads(succeed("evaluate", out, *files[:4], *table, "--json"))
    assert judged["kind"] == learner
    assert judged["actions"] == facts["actions"]


@pytest.mark.parametrize("name", ["dense", "sparse", "pde"])
def test_options_reach_the_tuner(tmp_path, name):
    out = tmp_path / "p.json"
    paper = ["--reward", "paper", "--weights", "W2", "--tau", 1e-4, "--formats", "fp64"]
    rest = ["--train", 1, "--seed", 3, "--arithmetic", "storage", "--kappa", "estimate"]
    succeed("train", name, "-o", out, *paper, *rest, "--episodes", 7)
    tuner = Tuner.load(out)
    assert tuner.algorithm == rw.GmresIR.paper(1e-4)
    lambda_iter = {"dense": 1.0, "sparse": 0.5, "pde": 0.5}[name]
    assert tuner.reward == PaperReward(w1=1.0, w2=1.0, lambda_iter=lambda_iter)
    assert tuner.context_.features == ("kappa_est", "norm_inf")
    assert (tuner.arithmetic_, tuner.episodes, tuner.seed) == ("storage", 7, 3)
    (system,) = DATA_SETS[name](1, 0, seed=3).train
    assert tuner.provenance_["problems"] == [system.fingerprint]


def test_profile_reaches_the_reward(tmp_path, files):
    out = tmp_path / "p.json"
    succeed("train", files[0], "-o", out, "--profile", "h200-like", *QUICK)
    reward = Tuner.load(out).reward
    assert isinstance(reward, CostReward)
    assert reward.cost == H200_LIKE


def test_evaluate_on_unseen_systems(trained, files):
    path, _ = trained
    facts = json.loads(succeed("evaluate", path, *files[4:], "--json"))
    assert set(facts) == EVALUATE_KEYS
    assert facts["systems"] == {"name": "Matrix Market", "count": 2, "trained_on": 0}
    assert facts["safe_action"] == "fp64-fp64-fp64-fp64"
    everything = facts["accuracy"]["ranges"][-1]
    assert (everything["name"], everything["count"]) == ("all", 2)
    assert everything["strict_success"] == 1.0

    # The same numbers by hand: run what the policy picks.
    tuner = Tuner.load(path)
    problems = [rw.problems.read_matrix_market(file) for file in files[4:]]
    outcomes = [tuner.algorithm.run(p, tuner.predict(p)) for p in problems]
    assert everything["ferr"] == pytest.approx(np.mean([o.ferr for o in outcomes]))
    assert everything["nbe"] == pytest.approx(np.mean([o.nbe for o in outcomes]))
    assert everything["inner_iterations"] == np.mean([o.inner_iterations for o in outcomes])
    regret = {row["policy"]: row for row in facts["regret"]["policies"]}
    assert set(regret) == {"thompson", "oracle", "best fixed", "all-FP64"}
    assert regret["thompson"]["oracle"]["value"] >= 0
    assert regret["oracle"]["oracle"]["value"] == 0
    assert sum(facts["usage"]["ranges"][-1]["formats"].values()) == pytest.approx(4)
    assert facts["speedup"]["speedup"]["value"] <= facts["speedup"]["oracle"]


def test_evaluate_says_what_was_trained_on(trained, files):
    text = succeed("evaluate", trained[0], *files[3:])
    assert "3 Matrix Market systems, n = 23 to 25, 1 of them trained on" in text
    for title in ("accuracy (tau = 1e-06)", "Stages of a solve", "Mean reward", "Modelled speedup"):
        assert title in text


def test_evaluate_a_data_set(tmp_path, trained):
    table = tmp_path / "t.sqlite"
    options = ["--test", 1, "--seed", 2, "--table", table, "--tau", 1e-3, "--json"]
    facts = json.loads(succeed("evaluate", trained[0], "pde", *options))
    assert (facts["tau"], facts["outcomes_computed"]) == (1e-3, ACTIONS)
    tuner = Tuner.load(trained[0])
    test = DATA_SETS["pde"](0, 1, seed=2).test
    assert OutcomeTable(table).stored(tuner.algorithm, test, tuner.space_, "operation").all()


FRONT_DOOR = ["--algorithm", "verified-solve"]


@pytest.fixture(scope="module")
def timed(tmp_path_factory, files):
    """A policy for the front door that has seen four systems, and what the command told."""
    path = tmp_path_factory.mktemp("timed") / "mine.json"
    facts = json.loads(succeed("train", *files[:4], "-o", path, *FRONT_DOOR, "--json"))
    return path, facts


def test_train_for_the_front_door(timed, files):
    path, facts = timed
    assert set(facts) == TRAIN_KEYS
    assert (facts["kind"], facts["algorithm"]) == ("neighbours", "VerifiedSolve")
    tuner = Tuner.load(path)
    assert tuner.algorithm == rw.VerifiedSolve()
    assert tuner.arithmetic_ == facts["arithmetic"] == "native"
    assert tuner.context_ == PROBE_CONTEXT
    assert tuner.reward == ClimbReward()
    assert facts["outcomes_computed"] == 4 * len(tuner.space_)
    assert facts["reward"]["all_fp64"] == 0
    assert sum(facts["actions"].values()) == 4
    system = rw.problems.read_matrix_market(files[4])
    told = succeed("solve", files[4], "--policy", path, "--explain")
    assert rw.solve(system.A, system.b, policy=path, full_output=True).decision in told


def test_judged_by_measured_time(timed, files):
    path, _ = timed
    facts = json.loads(succeed("evaluate", path, *files[4:], "--json"))
    assert set(facts) == EVALUATE_KEYS - {
        "tau",
        "accuracy",
        "safe_accuracy",
        "usage",
        "regret",
        "speedup",
    } | {"sufficed", "times"}
    assert facts["safe_action"] == "lu:fp64-fp64-fp64-fp64"
    assert facts["systems"]["trained_on"] == 0
    times = {row["comparison"]["policy"].split(":")[0]: row for row in facts["times"]}
    assert set(times) == {"neighbours", "oracle", "best fixed", "all-FP64"}
    assert times["all-FP64"]["speedup"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert times["oracle"]["comparison"]["regret"]["value"] == 0
    assert all(row["comparison"]["regret"]["value"] >= 0 for row in times.values())
    # Such small systems are solved in FP64 without a look, so that no features are paid for.
    assert facts["actions"] == facts["sufficed"] == {facts["safe_action"]: 2}
    assert times["neighbours"]["speedup"]["value"] == 1.0
    again = json.loads(succeed("evaluate", path, *files[4:], "--json"))
    assert again["outcomes_computed"] == 0
    assert again["times"] == facts["times"]


@pytest.mark.parametrize("learner", ["thompson", "linear-ucb", "tabular", "regression"])
def test_every_learner_for_the_front_door_pays_for_its_features(tmp_path, timed, files, learner):
    out = tmp_path / "p.json"
    table = ["--table", timed[0].with_suffix(".sqlite")]
    options = ["-o", out, *FRONT_DOOR, "--policy", learner, "--episodes", 20, *table]
    facts = json.loads(succeed("train", *files[:4], *options, "--json"))
    assert facts["outcomes_computed"] == 0
    assert type(Tuner.load(out).policy_) is POLICIES[learner.replace("-", "_")]
    text = succeed("evaluate", out, *files[:4], *table)
    assert f"{learner} policy for VerifiedSolve" in text
    for title in ("The first action", "Measured time of whole solves"):
        assert title in text
    judged = json.loads(succeed("evaluate", out, *files[:4], *table, "--json"))
    assert judged["actions"] == facts["actions"]
    assert not any(name.startswith("cholesky") for name in judged["actions"])  # not symmetric
    assert judged["times"][0]["comparison"]["regret"]["value"] > 0  # the oracle pays for none


def test_sizes_of_generated_systems(tmp_path):
    options = ["--train", 2, "--sizes", 30, 40, "--formats", "fp32,fp64"]
    out = tmp_path / "p.json"
    text = succeed("train", "pde", "-o", out, *FRONT_DOOR, *options)
    assert "2 pde systems, n = 36" in text
    system = DATA_SETS["pde"](2, 0, seed=0, sizes=(30, 40)).train[0]
    tuner = Tuner.load(out)
    assert system.fingerprint in tuner.provenance_["problems"]
    assert {"cholesky/amd", "superlu/mmd", "superlu/colamd"} <= set(tuner.space_.methods)
    assert "36" in succeed("evaluate", out, "pde", "--test", 1, "--sizes", 30, 40)
    line = fail(1, "evaluate", out, "dense", "--test", 1, "--sizes", 30, 40)
    assert "is dense, and the policy's methods" in line


def test_dense_and_sparse_systems_need_a_policy_each(tmp_path, files):
    sparse = tmp_path / "S.mtx"
    write_matrix_market(sparse, sp.eye_array(9, format="csr"))
    line = fail(1, "train", files[0], sparse, "-o", tmp_path / "p.json", *FRONT_DOOR)
    assert "train a policy for each" in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("train", "dense|sparse|pde|FILE"),
        ("train dense", "--out"),
        ("train denze -o p.json", "no file and no data set (dense, sparse, pde)"),
        ("train dense sparse -o p.json", "one data set, or files"),
        ("train dense -o p.npz", "a name in .json"),
        ("train dense -o nowhere/p.json", "folder nowhere does not exist"),
        ("train dense -o p.json --table nowhere/t.sqlite", "folder nowhere does not exist"),
        ("train dense -o p.json --train 0", "x>=1"),
        ("train dense -o p.json --tau 1", "choose 0 <"),
        ("train dense -o p.json --policy oracle", "'tabular'"),
        ("train dense -o p.json --weights W1", "belongs to --reward paper"),
        ("train dense -o p.json --reward paper --profile h200-like", "belongs to --reward cost"),
        ("train dense -o p.json --formats e4m3,fp64", "generic-avx512-cpu has no e4m3"),
        ("train dense -o p.json --jobs 0", "-1 for all cores"),
        ("train dense -o p.json --sizes 30 20", "the smaller size first"),
        ("train dense -o p.json --policy neighbours", "add --algorithm verified-solve"),
        *[
            (f"train dense -o p.json --algorithm verified-solve {option}", "leave it out")
            for option in (
                "--reward cost",
                "--profile h200-like",
                "--weights W1",
                "--kappa exact",
                "--tau 1e-6",
                "--arithmetic native",
                "--jobs 2",
            )
        ],
        (
            "train dense -o p.json --algorithm verified-solve --train 1 --formats tf32,fp64",
            "runs in tf32 here; choose --formats among",
        ),
        ("evaluate nowhere.json dense", "does not exist"),
    ],
)
def test_wrong_arguments(tmp_path, monkeypatch, arguments, complaint):
    refuse(arguments, complaint, tmp_path, monkeypatch)


def test_wrong_arguments_about_files(trained, timed, files):
    path, _ = trained
    sizes = ["--sizes", 20, 30]
    assert "leave it out for files" in fail(2, "evaluate", path, files[0], *sizes)
    for option in (["--jobs", 2], ["--tau", 1e-6]):
        assert "leave it out" in fail(2, "evaluate", timed[0], files[0], *option)
    out = path.with_name("other.json")
    assert "of files all are taken" in fail(2, "train", files[0], "-o", out, "--train", 1)
    assert "of files all are taken" in fail(2, "evaluate", path, files[0], "--test", 1)
    assert "choose a number > 0" in fail(2, "evaluate", path, files[0], "--tau", "nan")
    assert "is no JSON" in fail(1, "evaluate", files[0], "dense")


def test_interrupted_training_goes_on(tmp_path):
    out, table = tmp_path / "p.json", tmp_path / "p.sqlite"
    command = ["train", "sparse", "--train", "4", *QUICK, "-o", str(out)]
    process = interrupt(*command)
    kept = stored(table)
    assert (process.returncode, process.stdout) == (130, "")
    assert process.stderr.count("\n") == 1
    told = f"{table} keeps what is finished ({kept} outcomes), run the same command"
    assert told in process.stderr
    assert 0 < kept < 4 * ACTIONS
    assert not out.exists()
    facts = json.loads(succeed(*command, "--json"))
    assert facts["outcomes_computed"] == 4 * ACTIONS - kept
