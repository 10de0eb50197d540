"""`roundwise solve`: the verdict, what is written, and what is refused."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from command_line import fail, roundwise, succeed
from exact import backward_error, passes

import roundwise as rw
from roundwise.costs.machines import GENERIC_AVX512_CPU
from roundwise.problems import randsvd, write_matrix_market
from roundwise.rewards import CostReward

MATRICES = Path(__file__).parents[3] / "shared" / "matrices"
needs_matrices = pytest.mark.skipif(not MATRICES.is_dir(), reason="no shared/matrices here")
FP64 = "fp64-fp64-fp64-fp64"

KEYS = {
    "matrix", "n", "sparse", "b_assumed", "algorithm", "stages", "arithmetic", "decision",
    "action", "accepted", "reason", "backward_error", "tolerance", "forward_error",
    "forward_error_bound", "error_kind", "condition", "timings", "attempts", "x",
}  # fmt: skip
ATTEMPT_KEYS = {
    "column", "action", "status", "reason", "backward_error", "outer_iterations",
    "inner_iterations", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """A well-conditioned dense system of 30 equations, with three right-hand sides in B.mtx."""
    folder = tmp_path_factory.mktemp("dense")
    A = randsvd(30, 100.0, mode=2, rng=0).A
    B = np.random.default_rng(1).standard_normal((30, 3))
    for name, data in (("A", A), ("B", B), ("b", B[:, :1])):
        write_matrix_market(folder / f"{name}.mtx", data)
    return folder, A, B


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    tuner = rw.Tuner(
        rw.GmresIR(stop=rw.algorithms.DeploymentRule()),
        ("bf16", "fp64"),
        reward=CostReward(GENERIC_AVX512_CPU),
        episodes=100,
    )
    tuner.fit([randsvd(30, 10.0, mode=2, rng=seed) for seed in range(3)]).save(path)
    return path


@pytest.mark.parametrize("action", [FP64, "bf16-fp64-fp64-fp64"])
def test_the_written_x_solves_the_system(tmp_path, dense, action):
    folder, A, B = dense
    out = tmp_path / "x.mtx"
    text = succeed("solve", folder / "A.mtx", folder / "b.mtx", "-o", out, "--action", action)
    assert re.search(r"\naccepted: backward error \S+ <= 6.1e-16\n", text)
    assert action.split("-")[0] in text
    x = scipy.io.mmread(out)
    assert x.shape == (30, 1)
    assert passes(A, x[:, 0], B[:, 0])


def test_the_written_x_has_every_bit(tmp_path, dense):
    folder, _, _ = dense
    out = tmp_path / "x.mtx"
    system = rw.problems.read_matrix_market(folder / "A.mtx", folder / "b.mtx")
    succeed("solve", folder / "A.mtx", folder / "b.mtx", "-o", out, "--action", FP64)
    x = rw.GmresIR(stop=rw.algorithms.DeploymentRule()).run(system, FP64).x
    assert np.array_equal(scipy.io.mmread(out)[:, 0], x)
    succeed("solve", folder / "A.mtx", folder / "b.mtx", "-o", out)
    x = rw.solve(system.A, system.b[:, None], full_output=True).x
    assert np.array_equal(scipy.io.mmread(out), x)


def test_the_front_door(tmp_path, dense):
    folder, A, B = dense
    out = tmp_path / "X.mtx"
    text = succeed("solve", folder / "A.mtx", folder / "B.mtx", "-o", out, "--explain")
    assert "Verified: x solves exactly" in text
    assert "accepted: backward error" in text
    facts = json.loads(succeed("solve", folder / "A.mtx", folder / "B.mtx", "-o", out, "--json"))
    assert facts["accepted"]
    assert facts["arithmetic"] == "native"
    assert facts["backward_error"] <= facts["tolerance"] == np.sqrt(30) * 2.0**-53
    assert facts["attempts"][-1]["status"] == "converged"
    assert facts["attempts"][-1]["column"] is None
    X = scipy.io.mmread(out)
    for x, b in zip(X.T, B.T, strict=True):
        assert backward_error(A, x, b) <= 2 * facts["tolerance"]
    facts = json.loads(succeed("solve", folder / "A.mtx", "--json"))
    assert facts["b_assumed"]
    assert 0 < facts["forward_error"] < 1e-12


def test_columns_are_solved_one_by_one(tmp_path, dense):
    folder, A, B = dense
    out = tmp_path / "X.mtx.gz"
    options = ["-o", out, "--json", "--action", FP64]
    facts = json.loads(succeed("solve", folder / "A.mtx", folder / "B.mtx", *options))
    assert [attempt["column"] for attempt in facts["attempts"]] == [1, 2, 3]
    assert facts["x"] == str(out)
    X = scipy.io.mmread(out)
    for x, b, attempt in zip(X.T, B.T, facts["attempts"], strict=True):
        assert attempt["backward_error"] == pytest.approx(backward_error(A, x, b), abs=1e-16)


@pytest.mark.parametrize("options", [(), ("--action", FP64, "--arithmetic", "storage")])
def test_without_b_the_error_is_known(dense, options):
    folder, _, _ = dense
    facts = json.loads(succeed("solve", folder / "A.mtx", *options, "--json"))
    assert set(facts) == KEYS
    (attempt,) = facts["attempts"]
    assert set(attempt) == ATTEMPT_KEYS
    assert facts["b_assumed"]
    assert facts["accepted"]
    assert (facts["x"], facts["reason"]) == (None, "")
    assert facts["arithmetic"] == ("storage" if options else "native")
    assert facts["tolerance"] == np.sqrt(30) * 2.0**-53
    assert 0 < facts["forward_error"] < 1e-12
    assert attempt["backward_error"] == facts["backward_error"] <= facts["tolerance"]
    assert "no b was given" in succeed("solve", folder / "A.mtx", *options)
    assert "no b was given" not in succeed("solve", folder / "A.mtx", folder / "b.mtx", *options)


@pytest.mark.parametrize("arithmetic", ["operation", "storage", "native"])
@pytest.mark.parametrize(("method", "algorithm"), [("", "GmresIR"), ("lu:", "VerifiedSolve")])
def test_an_action_runs_once_in_every_arithmetic(dense, method, algorithm, arithmetic):
    folder, _, _ = dense
    action = f"{method}fp32-fp64-fp64-fp64"
    options = ["--action", action, "--arithmetic", arithmetic, "--json"]
    facts = json.loads(succeed("solve", folder / "A.mtx", folder / "b.mtx", *options))
    assert (facts["algorithm"], facts["arithmetic"]) == (algorithm, arithmetic)
    (attempt,) = facts["attempts"]
    assert attempt["action"] == facts["action"] == action
    assert attempt["outer_iterations"] > 0  # fp32 factors alone do not pass the gate


def test_a_policy_solves_natively_all_columns_at_once(tmp_path, dense, policy):
    folder, A, B = dense
    out = tmp_path / "X.mtx"
    files = folder / "A.mtx", folder / "B.mtx"
    facts = json.loads(succeed("solve", *files, "--policy", policy, "-o", out, "--json"))
    assert set(facts) == KEYS
    tuner = rw.Tuner.load(policy)
    solution = rw.solve(A, B, policy=tuner, full_output=True)
    assert facts["arithmetic"] == "native"
    assert (facts["action"], facts["decision"]) == (solution.action, solution.decision)
    assert facts["timings"]["features"] > 0
    assert np.array_equal(scipy.io.mmread(out), solution.x)
    text = succeed("solve", *files, "--policy", policy, "--explain")
    assert solution.decision in text
    assert "Verified: x solves exactly" in text
    again = ["--policy", policy, "--arithmetic", "native"]
    assert solution.decision in succeed("solve", *files, *again)


def test_a_policy_runs_its_algorithm_once_in_emulation(dense, policy):
    folder, _, _ = dense
    options = ["--policy", policy, "--arithmetic", "operation", "--json"]
    facts = json.loads(succeed("solve", folder / "A.mtx", folder / "B.mtx", *options))
    expected = rw.Tuner.load(policy).predict(rw.problems.read_matrix_market(folder / "A.mtx"))
    assert (facts["algorithm"], facts["arithmetic"]) == ("GmresIR", "operation")
    assert [attempt["action"] for attempt in facts["attempts"]] == 3 * [str(expected)]
    assert facts["timings"]["features"] > 0


@pytest.fixture(scope="module")
def front_door_policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("front_door") / "mine.json"
    systems = [randsvd(60, kappa, mode=2, rng=seed) for seed, kappa in enumerate((10.0, 1e6))]
    rw.Tuner(rw.VerifiedSolve()).fit(systems).save(path)
    return path


def test_a_policy_for_the_front_door(dense, front_door_policy):
    folder, _, _ = dense
    options = ["--policy", front_door_policy, "--json"]
    for arithmetic in ("native", "operation"):
        chosen = [*options, "--arithmetic", arithmetic]
        facts = json.loads(succeed("solve", folder / "A.mtx", *chosen))
        assert (facts["algorithm"], facts["arithmetic"]) == ("VerifiedSolve", arithmetic)
        assert facts["action"].startswith("lu:")


def test_methods_that_an_emulated_arithmetic_lacks(tmp_path):
    A = sp.csr_array(sp.diags_array([4.0, -1.0, -1.0], offsets=[0, 1, -1], shape=(90, 90)))
    write_matrix_market(tmp_path / "A.mtx", A)
    rw.Tuner(rw.VerifiedSolve()).fit([rw.LinearSystem(A, A @ np.ones(90))]).save(
        tmp_path / "p.json"
    )
    options = ["--policy", tmp_path / "p.json"]
    line = fail(1, "solve", tmp_path / "A.mtx", *options, "--arithmetic", "operation")
    assert "leave out --arithmetic to solve natively" in line
    assert "lu/left-looking" in succeed("solve", tmp_path / "A.mtx", *options)
    refused = ["--action", "superlu/colamd:fp32-fp64-fp64-fp64"]
    assert "is not for sparse A" in fail(1, "solve", tmp_path / "A.mtx", *refused)
    succeed("solve", tmp_path / "A.mtx", *refused, "--arithmetic", "native")


def test_a_poor_answer_is_refused_and_not_written(tmp_path, dense):
    folder, _, _ = dense
    out = tmp_path / "x.mtx"
    options = ["--action", "bf16-bf16-bf16-bf16", "-o", out]
    line = fail(1, "solve", folder / "A.mtx", folder / "B.mtx", *options)
    assert "column 1 of 3 is not accepted with bf16-bf16-bf16-bf16" in line
    assert "the library chooses" in line
    assert not out.exists()
    result = roundwise("solve", folder / "A.mtx", *options, "--json")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    facts = json.loads(result.stdout)
    assert (facts["accepted"], facts["x"]) == (False, None)
    assert not out.exists()


def test_a_nan_is_never_accepted(tmp_path, dense, monkeypatch):
    folder, _, _ = dense
    run = rw.GmresIR.run

    def broken(self, *args, **kwargs):
        return dataclasses.replace(run(self, *args, **kwargs), nbe=float("nan"))

    monkeypatch.setattr(rw.GmresIR, "run", broken)
    out = tmp_path / "x.mtx"
    assert "not accepted" in fail(1, "solve", folder / "A.mtx", "-o", out, "--action", FP64)
    assert not out.exists()


def test_a_singular_matrix(tmp_path, policy):
    path = tmp_path / "A.mtx"
    write_matrix_market(path, np.array([[1.0, 2.0], [2.0, 4.0]]))
    assert "A is singular" in fail(1, "solve", path)
    for options in (["--action", FP64], ["--policy", policy]):
        assert "A is singular in fp64" in fail(1, "solve", path, *options)


HEAD = "%%MatrixMarket matrix"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{HEAD} coordinate pattern general\n1 1 1\n1 1\n", "pattern without values"),
        (f"{HEAD} array real general\n1 2\n1\n2\n", "pass a square one"),
        (f"{HEAD} array real general\n1 1\nnan\n", "bad.mtx holds NaN"),
        ("nonsense\n", "no readable Matrix Market file"),
    ],
)
def test_unusable_files(tmp_path, text, complaint):
    path = tmp_path / "bad.mtx"
    path.write_text(text)
    assert complaint in fail(1, "solve", path)
    assert complaint in fail(1, "train", path, "-o", tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == [path]


def test_a_right_hand_side_that_does_not_fit(tmp_path, dense):
    folder, _, _ = dense
    write_matrix_market(tmp_path / "b.mtx", np.ones((4, 1)))
    assert "one column with 30 rows" in fail(1, "solve", folder / "A.mtx", tmp_path / "b.mtx")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "A.mtx"),
        ("nowhere.mtx", "does not exist"),
        ("I.mtx nowhere.mtx", "does not exist"),
        ("I.mtx --policy nowhere.json", "does not exist"),
        ("I.mtx --action fp64", "factor, update, gmres, residual"),
        ("I.mtx --action fp64-fp64-fp64-fp63", "unknown format 'fp63'"),
        ("I.mtx --action llu:fp64-fp64-fp64-fp64", "unknown method 'llu'; known: cholesky, "),
        ("I.mtx --action fp64-fp64-fp64-fp64 --policy I.mtx", "choose one"),
        ("I.mtx --arithmetic exact", "'operation', 'storage'"),
        ("I.mtx --arithmetic storage", "without --policy or --action"),
        ("I.mtx --explain --action fp64-fp64-fp64-fp64", "leave out --action"),
        ("I.mtx --explain --policy I.mtx --arithmetic storage", "--arithmetic"),
        ("I.mtx -o nowhere/x.mtx", "folder nowhere does not exist"),
        ("I.mtx -o .", "directory"),
    ],
)
def test_wrong_arguments(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    scipy.io.mmwrite("I.mtx", sp.identity(2))
    line = fail(2, "solve", *arguments.split())
    assert complaint in line
    assert "solve --help" in line


def test_a_file_that_is_no_policy(tmp_path, dense):
    folder, _, _ = dense
    (tmp_path / "p.json").write_text("{}")
    line = fail(1, "solve", folder / "A.mtx", "--policy", tmp_path / "p.json")
    assert "no saved tuner" in line


def test_a_policy_for_other_stages(tmp_path, dense):
    folder, _, _ = dense
    path = tmp_path / "lu.json"
    rw.Tuner(rw.LuIR(), ("fp32", "fp64"), episodes=1).fit([randsvd(9, 9.0, mode=2, rng=0)]).save(
        path
    )
    line = fail(1, "solve", folder / "A.mtx", "--policy", path)
    assert "train it for VerifiedSolve or GmresIR" in line
    emulated = ["--policy", path, "--arithmetic", "operation"]
    assert "LuIR in operation arithmetic" in succeed("solve", folder / "A.mtx", *emulated)


@needs_matrices
@pytest.mark.parametrize("name", ["west0479", "Trefethen_150", "gre_115"])
def test_real_matrices(tmp_path, name):
    source, out = MATRICES / f"{name}.mtx.gz", tmp_path / "x.mtx"
    options = ["--action", "bf16-fp64-fp64-fp64", "-o", out, "--json"]
    facts = json.loads(succeed("solve", source, *options))
    assert facts["attempts"][0]["outer_iterations"] > 0  # bf16 factors alone do not do
    problem = rw.problems.read_matrix_market(source)
    x = scipy.io.mmread(out)[:, 0]
    assert backward_error(problem.A.toarray(), x, problem.b) <= facts["tolerance"]


@needs_matrices
def test_a_matrix_too_large_for_an_exact_condition_number(policy):
    line = fail(1, "solve", MATRICES / "bayer10.mtx.gz", "--policy", policy)
    assert "train with --kappa estimate" in line


def test_the_forward_error_agrees_with_the_proved_bound(tmp_path):
    """b = fl(A x) moves the solution by kappa u: the error is not measured against that x."""
    A = rw.problems.randsvd(30, 1e10, rng=0).A
    scipy.io.mmwrite(tmp_path / "A.mtx", A)
    facts = json.loads(succeed("solve", tmp_path / "A.mtx", "--json"))
    assert facts["error_kind"] == "bound"
    assert facts["forward_error"] <= facts["forward_error_bound"]
    assert "against a solve in twice the precision" in succeed("solve", tmp_path / "A.mtx")


def test_where_no_reference_is_found_the_error_is_not_told(tmp_path):
    scipy.io.mmwrite(tmp_path / "A.mtx", rw.problems.randsvd(30, 5e15, rng=0).A)
    with pytest.warns(rw.IllConditionedWarning):
        result = roundwise("solve", tmp_path / "A.mtx", "--json")
    assert json.loads(result.stdout)["forward_error"] is None
    with pytest.warns(rw.IllConditionedWarning):
        assert "forward error not known" in roundwise("solve", tmp_path / "A.mtx").stdout
