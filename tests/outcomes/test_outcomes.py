"""The outcome table: facts are computed once, survive interruptions, and keep every bit."""

import contextlib
import dataclasses
import importlib
import io
import json
import linecache
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from cases import same_bits
from scipy import sparse

import roundwise as rw
from roundwise.algorithms import Outcome, StoppingRule, Tally
from roundwise.backends import OperationBackend
from roundwise.outcomes import (
    RESULTS_VERSION,
    STATUSES,
    OutcomeTable,
    OutcomeTableError,
    fill,
    progress_bar,
    schema,
    workers,
)
from roundwise.outcomes.records import (
    Setting,
    StoredArithmetic,
    StoredProblem,
    algorithm_json,
    from_json,
    outcome_facts,
    to_json,
)
from roundwise.outcomes.schema import DamagedText
from roundwise.outcomes.writing import ProblemResults
from roundwise.problems import randsvd
from roundwise.tuning import PAPER_CONTEXT

GMRES_IR = rw.GmresIR.paper()
ACTIONS = ("bf16-bf16-fp32-fp32", "fp32-fp32-fp64-fp64", "fp64-fp64-fp64-fp64")


def systems(count, n=12):
    return [randsvd(n + i, 10.0 ** (1 + i % 8), rng=i) for i in range(count)]


@pytest.fixture
def table(tmp_path):
    return OutcomeTable(tmp_path / "outcomes.sqlite")


@pytest.fixture
def another(tmp_path):
    """Makes further tables."""
    return lambda name: OutcomeTable(tmp_path / f"{name}.sqlite")


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


# What is stored


def test_outcomes_read_back_as_they_were_computed(table):
    problems = systems(3)
    assert fill(table, GMRES_IR, problems, ACTIONS) == 9
    view = table.view(GMRES_IR, problems, ACTIONS)
    assert view.shape == view.status.shape == (3, 3)
    assert view.action_names == ACTIONS
    for i, problem in enumerate(problems):
        for j, outcome in enumerate(GMRES_IR.run_all(problem, ACTIONS)):
            assert view.outcome(i, j) == outcome  # x is not compared
            assert view.outcome(i, j).x is None
            assert STATUSES[view.status[i, j]] is outcome.status
            assert view.ferr[i, j] == outcome.ferr
            assert view.outer[i, j] == outcome.outer_iterations
            assert view.inner[i, j] == outcome.inner_iterations
        assert view.row(i)[1] == view.outcome(i, 1)


def test_problems_keep_what_rewards_need(table):
    A, x = [[3.0, -4.0], [0.0, 1.0]], [1.0, -2.0]
    known = rw.LinearSystem(A, [3.0, 4.0], x, name="tiny", meta={"kappa": 7.0})
    unknown = rw.LinearSystem(A, [1e200, 1e200])
    fill(table, rw.LuIR(), [known, unknown], ["fp64-fp64-fp64"], features=["n", "kappa_est"])
    first, second = table.view(rw.LuIR(), [known, unknown], ["fp64-fp64-fp64"]).problems
    assert first.norm_A == 7.0
    assert first.norm_x_true == 2.0
    assert first.norm_b == 5.0
    assert (first.n, first.name, first.meta) == (2, "tiny", {"kappa": 7.0})
    assert math.isnan(second.norm_x_true)
    assert second.norm_b == pytest.approx(math.sqrt(2) * 1e200)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 0.1, 1e300, 1.0, 2.0**-1074 * 3]
)
def test_every_float_survives_bit_for_bit(table, value):
    (problem,) = systems(1)
    outcome = Outcome(
        rw.OutcomeStatus.OVERFLOW,
        np.ones(12),
        ferr=value,
        nbe=-value,
        cbe=value,
        history=({"correction": value, "inner_iterations": 3},),
        reason="LU: overflow",
        action=ACTIONS[0],
        arithmetic="operation",
        operations={("factor", "bf16"): Tally(value, -value)},
    )
    facts = {
        "problem": StoredProblem.of(problem),
        "setting": Setting.of(GMRES_IR, "operation"),
        "origin": "{}",
        "outcomes": {ACTIONS[0]: outcome_facts(outcome)},
    }
    table.write(ProblemResults(**facts))
    table.write(ProblemResults(**facts))  # the same once more is no contradiction, NaN included
    assert len(table) == 1
    view = table.view(GMRES_IR, [problem], ACTIONS[:1])
    back = view.outcome(0, 0)
    assert same_bits([back.ferr, back.nbe, back.cbe], [value, -value, value])
    assert same_bits(back.history[0]["correction"], value)
    assert type(back.history[0]["inner_iterations"]) is int
    tally = back.operations["factor", "bf16"]
    assert same_bits([tally.flops, tally.bytes], [value, -value])
    assert (back.status, back.reason) == (outcome.status, outcome.reason)
    assert view.failed.all()


def test_unknown_truth_and_failures_are_facts(table):
    singular = rw.LinearSystem([[1.0, 1.0], [1.0, 1.0]], [1.0, 2.0])
    fine = rw.LinearSystem([[2.0, 1.0], [1.0, 2.0]], [1.0, 2.0])
    names = ["kappa_est", "pivot_growth", "norm_inf"]
    fill(table, GMRES_IR, [singular, fine], ACTIONS, features=names)
    view = table.view(GMRES_IR, [singular, fine], ACTIONS)
    assert view.failed[0].all()
    assert "zero_pivot" in view.outcome(0, 0).reason
    assert np.isinf(view.ferr[0]).all()
    assert np.isnan(view.ferr[1]).all()
    assert view.features_of(0) == {"kappa_est": math.inf, "pivot_growth": math.inf, "norm_inf": 2}
    # ||A||_1 ||A^-1||_1 = 3 * 1 for [[2, 1], [1, 2]], and elimination leaves the pivot 3/2.
    assert view.features_of(1) == pytest.approx({"kappa_est": 3, "pivot_growth": 1, "norm_inf": 3})


# Each fact once


@dataclass(frozen=True)
class Recording(rw.GmresIR):
    """Notes which pairs were run."""

    runs: ClassVar = []

    def execute(self, problem, stages, shared):
        self.runs.append((problem.fingerprint, "-".join(s.fmt.name for s in stages.values())))
        return super().execute(problem, stages, shared)


def test_no_pair_is_computed_twice(table):
    Recording.runs.clear()
    problems, algorithm = systems(4), Recording.paper()
    assert fill(table, algorithm, problems[:2], ACTIONS[:2]) == 4
    assert fill(table, algorithm, problems, ACTIONS + ACTIONS) == 8
    assert fill(table, algorithm, problems + problems, ACTIONS) == 0
    assert len(Recording.runs) == len(set(Recording.runs)) == len(table) == 12


def test_order_and_grouping_do_not_matter(table, another):
    problems = systems(4)
    fill(table, GMRES_IR, problems, ACTIONS)
    other = another("other")
    for action in reversed(ACTIONS):  # no factorization is shared here
        for problem in reversed(problems):
            fill(other, GMRES_IR, [problem], [action])
    assert other.content() == table.content()
    assert other.digest() == table.digest()
    third = another("third")
    fill(third, GMRES_IR, problems, ACTIONS[:2])
    assert third.digest() != table.digest()


def test_features_can_be_added_later(table, another):
    Recording.runs.clear()
    problems, algorithm = systems(2), Recording.paper()
    fill(table, algorithm, problems, ACTIONS, features=["norm_inf"])
    assert fill(table, algorithm, problems, ACTIONS, features=["symmetry", "norm_inf"]) == 0
    assert len(Recording.runs) == 6
    view = table.view(algorithm, problems, ACTIONS)
    assert view.feature_names == ("norm_inf", "symmetry")
    expected = [rw.features.compute_features(p, ["norm_inf", "symmetry"]) for p in problems]
    assert view.features.tolist() == [[float(v) for v in row.values()] for row in expected]
    reordered = table.view(algorithm, problems, ACTIONS, features=["symmetry", "norm_inf"])
    assert np.array_equal(reordered.features, view.features[:, ::-1])
    with pytest.raises(OutcomeTableError, match=r"2 features are missing.*features=\('density',"):
        table.view(algorithm, problems, ACTIONS, features=["density"])


def test_keys_tell_settings_apart(table):
    problems = systems(1)
    algorithms = [
        rw.GmresIR(),
        rw.GmresIR(tolerance=1e-4),
        rw.GmresIR(stop=rw.algorithms.PaperRule(tau=1e-8)),
        rw.GmresIR(stop=rw.algorithms.DeploymentRule()),
        rw.LuIR(),
    ]
    for algorithm in algorithms:
        actions = ["-".join(["fp64"] * len(algorithm.stages))]
        for arithmetic in ("operation", "storage"):
            assert fill(table, algorithm, problems, actions, arithmetic=arithmetic) == 1
            outcome = table.view(algorithm, problems, actions, arithmetic).outcome(0, 0)
            assert outcome.arithmetic == arithmetic
    assert len(table) == 10


def test_another_results_version_is_not_found(table):
    problems = systems(1)
    fill(table, GMRES_IR, problems, ACTIONS)
    with sqlite3.connect(table.path) as connection:
        connection.execute("UPDATE setting SET results_version = ?", (RESULTS_VERSION - 1,))
        connection.execute("UPDATE feature SET results_version = ?", (RESULTS_VERSION - 1,))
    connection.close()
    assert not table.stored(GMRES_IR, problems, ACTIONS).any()
    assert fill(table, GMRES_IR, problems, ACTIONS) == 3
    assert len(table) == 6  # what was known stays known


def test_the_key_of_an_algorithm_is_canonical_json():
    key = json.loads(algorithm_json(rw.GmresIR(tolerance=np.float64(1e-4), cycles=np.int64(2))))
    assert key["stages"] == ["factor", "update", "gmres", "residual"]
    assert key["algorithm"]["class"] == "GmresIR"
    assert key["algorithm"]["tolerance"] == 1e-4
    assert key["algorithm"]["cycles"] == 2
    assert key["algorithm"]["stop"] == {
        "class": "PaperRule",
        "max_steps": 9999,
        "patience": 1,
        "tau": 1e-6,
    }
    assert to_json({"b": math.inf, "a": (1, None)}) == '{"a":[1,null],"b":"inf"}'
    with pytest.raises(TypeError, match="StoppingRule cannot be stored; use"):
        algorithm_json(rw.GmresIR(stop=StoppingRule()))
    with pytest.raises(DamagedText, match="no JSON"):
        from_json("{")


def test_one_name_stands_for_one_format(table):
    problems = systems(1)
    saturating = dataclasses.replace(rw.formats.E4M3, overflow="saturate")
    ours, theirs = (saturating, rw.FP64, rw.FP64), (rw.formats.E4M3, rw.FP64, rw.FP64)
    with pytest.raises(ValueError, match="two formats are called e4m3"):
        fill(table, rw.LuIR(), problems, [ours, theirs])
    assert fill(table, rw.LuIR(), problems, [ours]) == 1
    assert table.view(rw.LuIR(), problems, [ours]).actions == (ours,)
    for call in (fill, OutcomeTable.view):
        with pytest.raises(OutcomeTableError, match=r"e4m3 is .* there, but .* here") as error:
            call(table, rw.LuIR(), problems, [theirs])
        one_line(error)


# The view


def test_views_follow_the_order_asked_for(table):
    problems = systems(5)
    fill(table, GMRES_IR, problems, ACTIONS)
    view = table.view(GMRES_IR, problems, ACTIONS)
    back = table.view(GMRES_IR, [p.fingerprint for p in problems[::-1]], ACTIONS[::-1])
    assert np.array_equal(back.ferr, view.ferr[::-1, ::-1])
    assert np.array_equal(back.features, view.features[::-1])
    everything = table.view(GMRES_IR, None, ACTIONS)
    order = sorted(range(5), key=lambda i: problems[i].fingerprint)
    assert np.array_equal(everything.nbe, view.nbe[order])
    some = view.take([3, 0, 3])
    assert some.shape == (3, 3)
    assert [p.name for p in some.problems] == [problems[i].name for i in (3, 0, 3)]
    assert np.array_equal(some.inner, view.inner[[3, 0, 3]])
    assert some.outcome(1, 2) == view.outcome(0, 2)
    assert np.array_equal(some.operations_json, view.operations_json[[3, 0, 3]])
    contexts = [PAPER_CONTEXT.vector(view.features_of(i)) for i in range(5)]
    assert np.allclose(np.array(contexts)[:, 0], [1, 2, 3, 4, 5])


def test_missing_pairs_say_how_many_and_what_to_do(table):
    problems = systems(4)
    fill(table, GMRES_IR, problems[:3], ACTIONS[:2])
    stored = table.stored(GMRES_IR, problems, ACTIONS)
    assert stored.tolist() == [[True, True, False]] * 3 + [[False] * 3]
    with pytest.raises(
        OutcomeTableError, match=r"6 of 12 outcomes are missing.*call fill"
    ) as error:
        table.view(GMRES_IR, problems, ACTIONS)
    assert ACTIONS[2] in one_line(error)
    with pytest.raises(OutcomeTableError, match=r"4 of 4 .*arithmetic='storage'"):
        table.view(GMRES_IR, problems[:2], ACTIONS[:2], "storage")


def test_nothing_asked_nothing_done(table):
    assert fill(table, GMRES_IR, [], ACTIONS) == 0
    assert fill(table, GMRES_IR, systems(1), [], features=[]) == 0
    assert table.view(GMRES_IR, [], ACTIONS).shape == (0, 3)
    assert table.content() == []
    assert table


# In parallel


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The content of one undisturbed run in this process, and what it was made from."""
    problems = systems(12, n=20)
    table = OutcomeTable(tmp_path_factory.mktemp("undisturbed") / "table.sqlite")
    fill(table, GMRES_IR, problems, ACTIONS, features=list(rw.features.FEATURES))
    return problems, table.content()


@pytest.fixture
def joblib_workers():
    """Ends joblib's workers after the test."""
    yield
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


@pytest.mark.usefixtures("joblib_workers")
def test_joblib_gives_the_same_bits(table, undisturbed):
    problems, content = undisturbed
    calls = []
    features = list(rw.features.FEATURES)
    fill(table, GMRES_IR, problems[:2], ACTIONS, features=features)
    computed = fill(
        table,
        GMRES_IR,
        problems,
        ACTIONS,
        features=features,
        jobs=2,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert computed == 30
    # One call per problem and factor format, as each is stored.
    assert calls[0] == (6, 36)
    assert calls[-1] == (36, 36)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert table.content() == content
    (origin,) = table.origins()
    assert origin["roundwise"] == rw.__version__

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    with pytest.raises(Stop):  # a caller's error is not swallowed, and stops the workers
        fill(table, rw.GmresIR(), problems, ACTIONS, jobs=2, progress=stop)


def test_two_dask_workers_give_the_same_bits(table, undisturbed):
    from distributed import Client, LocalCluster

    problems, content = undisturbed
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        fill(table, GMRES_IR, problems, ACTIONS, features=list(rw.features.FEATURES), client=client)
        assert table.content() == content
        large = rw.problems.poisson_2d(46)
        with pytest.raises(ValueError, match="dense, beyond"):  # a worker's error comes back
            fill(table, rw.CgIR(), [large], ["fp64-fp64-fp64-fp64"], client=client)
        with pytest.raises(ValueError, match="both given; choose"):
            fill(table, GMRES_IR, problems, ACTIONS, jobs=2, client=client)


def test_threads_of_one_process_share_the_limits(threads):
    # Workers of Dask may have threads: the limits hold until the last task has ended.
    threads(3)
    first, second = workers.threads_limited(1), workers.threads_limited(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert rw.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert rw.get_num_threads() == 3


def test_readers_and_a_second_writer_at_the_same_time(table, undisturbed):
    problems, content = undisturbed
    features = list(rw.features.FEATURES)
    complete, seen, ended = set(content), [], threading.Event()

    def read():
        while not ended.is_set():
            seen.append(set(table.content()))

    def write():
        fill(OutcomeTable(table.path), GMRES_IR, problems[::-1], ACTIONS, features=features)

    workers = [threading.Thread(target=read), threading.Thread(target=write)]
    for worker in workers:
        worker.start()
    fill(table, GMRES_IR, problems, ACTIONS, features=features)
    workers[1].join()
    ended.set()
    workers[0].join()
    assert all(known <= complete for known in seen)
    assert table.content() == content


# What is your own

OWN = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
import roundwise as rw
from roundwise.problems import Problem

@dataclass(frozen=True, eq=False)
class Trace(Problem):
    A: np.ndarray
    power: int = 1

class Base(rw.Algorithm):
    offset = 0.0

@dataclass(frozen=True)
class Sum(Base):
    stages: ClassVar[tuple[str, ...]] = ("add",)
    factor: float = 1.0

    def execute(self, problem, stages, shared):
        value = self.factor * stages["add"].dot(np.diag(problem.A), np.ones(problem.n))
        return rw.Outcome(rw.OutcomeStatus.CONVERGED, None, ferr=value + self.offset)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Imports a module of that text, as a new Python process would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(text):
        (tmp_path / "own_module.py").write_text(text)
        linecache.clearcache()
        monkeypatch.delitem(sys.modules, "own_module", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("own_module")

    return load


def test_a_problem_and_an_algorithm_of_your_own_fill_a_table(table, own):
    module = own(OWN)
    problems = [module.Trace(np.diag([1.0, 2.0])), module.Trace(np.diag([1.0, 5.0]))]
    names = ["n", "norm_inf", "kappa_est", "density"]
    assert fill(table, module.Sum(), problems, ["fp32", "fp64"], features=names) == 4
    view = table.view(module.Sum(), problems, ["fp32", "fp64"])
    assert view.ferr.tolist() == [[3.0, 3.0], [6.0, 6.0]]
    assert view.features_of(1)["norm_inf"] == 5.0
    facts = view.problems[0]
    assert (facts.n, facts.norm_A, facts.norm_b) == (2, 2.0, 0.0)
    assert math.isnan(facts.norm_x_true)


def test_the_fingerprint_of_a_problem_of_your_own(own):
    module = own(OWN)
    A = np.diag([1.0, 2.0])
    first = module.Trace(A).fingerprint
    assert module.Trace(np.asfortranarray(A)).fingerprint == first
    assert module.Trace(A, power=2).fingerprint != first
    assert module.Trace(sparse.csr_array(A)).fingerprint != first
    assert module.Trace(A.astype(np.float32)).fingerprint != first
    with pytest.raises(TypeError, match="define the problem's fingerprint"):
        _ = module.Trace(A, power=object()).fingerprint
    plain = type("Plain", (rw.problems.Problem,), {})()
    with pytest.raises(TypeError, match="make it a frozen dataclass"):
        _ = plain.fingerprint


@pytest.mark.parametrize(
    ("old", "new"), [("self.factor *", "2 * self.factor *"), ("offset = 0.0", "offset = 1.0")]
)
def test_a_changed_algorithm_of_your_own_gets_new_outcomes(table, own, old, new):
    module = own(OWN)
    problem = module.Trace(np.diag([1.0, 2.0]))
    assert fill(table, module.Sum(), [problem], ["fp64"]) == 1
    assert fill(table, own(OWN).Sum(), [problem], ["fp64"]) == 0  # the same text is no change
    changed = own(OWN.replace(old, new))
    assert fill(table, changed.Sum(), [problem], ["fp64"]) == 1
    assert table.view(changed.Sum(), [problem], ["fp64"]).ferr[0, 0] != 3.0
    assert table.view(module.Sum(), [problem], ["fp64"]).ferr[0, 0] == 3.0


def test_code_without_a_source_text_is_told_by_its_bytecode():
    def made(text):
        names = {"__name__": "typed_in"}
        exec(text, names)
        return names["Sum"]()

    key = algorithm_json(made(OWN))
    assert algorithm_json(made(OWN)) == key
    assert algorithm_json(made(OWN.replace("self.factor *", "2 * self.factor *"))) != key
    assert algorithm_json(made(OWN.replace("offset = 0.0", "offset = 1.0"))) != key


def test_workers_and_this_process_agree_on_the_key(another, own):
    module = own(OWN)
    problems = [module.Trace(np.diag([1.0, k])) for k in (2.0, 3.0)]
    # Classes that were typed in travel without their source text.
    names = {"__name__": "__main__"}
    exec(OWN, names)
    table = another("typed_in")
    assert fill(table, names["Sum"](), problems, ["fp64"], jobs=2) == 2
    assert fill(table, names["Sum"](), problems, ["fp64"]) == 0


def test_keys_of_the_library_stay_as_they_are():
    # Outcome tables of earlier versions hold this text.
    assert algorithm_json(rw.LuIR()) == (
        '{"algorithm":{"class":"LuIR","equilibrate":false,"stop":{"class":"PaperRule",'
        '"max_steps":100,"patience":1,"tau":0.5}},"stages":["factor","update","residual"]}'
    )
    assert "code" not in json.loads(algorithm_json(GMRES_IR))


def test_stored_arithmetic_of_another_machine_can_be_read():
    there = StoredArithmetic.of("native on some-processor-8t-0123, symmetric_mode=False")
    assert (there.model, there.timed) == ("native", True)
    assert there.machine == "some-processor-8t-0123, symmetric_mode=False"
    odd = OperationBackend(pivot_threshold=0.5)
    assert StoredArithmetic.of(odd) == StoredArithmetic.parse(odd.description)
    assert not StoredArithmetic.of(odd).timed
    assert StoredArithmetic.of("storage").machine == ""
    with pytest.raises(rw.UnknownNameError, match="arithmetic model 'exact'"):
        StoredArithmetic.of("exact")


# Shards


def test_shards_merge_to_the_whole(undisturbed, another):
    problems, content = undisturbed
    features = list(rw.features.FEATURES)
    parts = [another(f"part{i}") for i in (1, 2, 3)]
    counts = [
        fill(parts[0], GMRES_IR, problems, ACTIONS, features=features, shard="1/3"),
        fill(parts[1], GMRES_IR, problems[::-1], ACTIONS, features=features, shard=(2, 3)),
        fill(parts[2], GMRES_IR, problems, ACTIONS, features=features, shard="3/3"),
    ]
    assert counts == [12, 12, 12]
    whole = another("whole")
    whole.merge([part.path for part in parts])
    assert whole.content() == content
    whole.merge(str(part.path) for part in parts)  # once more changes nothing
    assert whole.content() == content
    assert fill(whole, GMRES_IR, problems, ACTIONS, features=features) == 0


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", (1,), (0, 0), 5, "-1/2"])
def test_wrong_shards(table, shard):
    with pytest.raises(ValueError, match="pass 'i/n' or") as error:
        fill(table, GMRES_IR, systems(1), ACTIONS, shard=shard)
    one_line(error)


def test_contradicting_facts_name_their_key(table, another):
    problems = systems(2)
    fill(table, GMRES_IR, problems[:1], ACTIONS[:1])
    other = another("other")
    fill(other, GMRES_IR, problems, ACTIONS[:1])
    with sqlite3.connect(other.path) as connection:
        connection.execute("UPDATE outcome SET nbe = NULL")
    connection.close()
    before = table.content()
    with pytest.raises(OutcomeTableError, match=r"nbe is .* in the table, but None") as error:
        table.merge([other.path])
    message = one_line(error)
    for part in (problems[0].fingerprint, ACTIONS[0], "GmresIR", "operation", str(other.path)):
        assert part in message
    assert table.content() == before


def test_merge_refuses_what_is_no_other_table(table, tmp_path):
    with pytest.raises(OutcomeTableError, match="is this table"):
        table.merge([table.path])
    with pytest.raises(OutcomeTableError, match="no such file; check the path"):
        table.merge([tmp_path / "absent.sqlite"])
    assert not (tmp_path / "absent.sqlite").exists()
    with pytest.raises(TypeError, match="pass a list of paths"):
        table.merge("shard.sqlite")


# Interruptions

# Tells what is done and waits for a line, so that nothing happens before the test wants it.
SCRIPT = """
import signal, sys
from test_outcomes import ACTIONS, GMRES_IR, OutcomeTable, fill, rw, systems

def main(path, jobs, count):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run in the background
    print("ready", flush=True)
    fill(OutcomeTable(path), GMRES_IR, systems(count, n=20), ACTIONS,
         features=list(rw.features.FEATURES), jobs=jobs,
         progress=lambda done, total: (print(done, flush=True), sys.stdin.readline()))

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


@pytest.fixture
def start(tmp_path):
    """Starts `fill` in a session of its own; `proceed` lets it go on."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = []

    def begin(path, jobs=1, count=12):
        process = subprocess.Popen(
            [sys.executable, str(script), str(path), str(jobs), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def proceed(process):
    """Let it compute and store one more task."""
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a signal of POSIX")
def test_ten_kills_at_random_moments_change_nothing(table, another, start):
    problems, features = systems(30, n=20), list(rw.features.FEATURES)
    fill(table, GMRES_IR, problems, ACTIONS, features=features)
    killed = another("killed")
    moments = random.Random(4)
    known = []
    for _ in range(10):
        process = start(killed.path, count=30)
        for _ in range(moments.randrange(3)):
            process.stdout.readline()  # a task was stored, or is about to be computed
            proceed(process)
        proceed(process)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        known.append(len(OutcomeTable(killed.path)))
    assert known == sorted(known)  # nothing is lost
    assert 0 < known[-1] < 90
    computed = fill(killed, GMRES_IR, problems, ACTIONS, features=features)
    assert computed == 90 - known[-1]  # nothing is doubled
    assert killed.content() == table.content()


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a signal of POSIX")
def test_kill_in_the_middle_of_a_write_is_rolled_back(table):
    fill(table, GMRES_IR, systems(6), ACTIONS)
    content = table.content()
    code = """
import os, pathlib, signal, sys
from roundwise._sqlite import transaction
from roundwise.outcomes.schema import opened
with opened(pathlib.Path(sys.argv[1])) as connection, transaction(connection):
    connection.execute("PRAGMA cache_size = 1")  # so that pages reach the file before the commit
    connection.execute("UPDATE outcome SET history = history || history, nbe = 0.0")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    before = table.path.read_bytes()
    process = subprocess.run([sys.executable, "-c", code, str(table.path)])
    assert process.returncode == -signal.SIGKILL
    assert table.path.read_bytes() != before  # half of it was written
    assert OutcomeTable(table.path).content() == content


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupt_stops_and_leaves_a_valid_table(tmp_path, undisturbed, start, jobs):
    problems, content = undisturbed
    path = tmp_path / "interrupted.sqlite"
    process = start(path, jobs)
    while int(process.stdout.readline()) < 6:
        proceed(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    table = OutcomeTable(path)
    assert 6 <= len(table) < 36
    assert set(table.content()) < set(content)
    fill(table, GMRES_IR, problems, ACTIONS, features=list(rw.features.FEATURES))
    assert table.content() == content


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_workers_leave_when_their_parent_is_killed(tmp_path, start):
    process = start(tmp_path / "killed.sqlite", jobs=2)
    while int(process.stdout.readline()) < 6:
        proceed(process)
    process.kill()
    process.wait()

    def session_is_alive():
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if int(session) == process.pid and state != "Z":
                return True
        return False

    deadline = time.monotonic() + 60
    while session_is_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not session_is_alive()


def test_an_interrupt_while_writing_loses_nothing(table, monkeypatch):
    write = OutcomeTable.write

    def interrupted(self, results):
        monkeypatch.setattr(OutcomeTable, "write", write)
        raise KeyboardInterrupt

    monkeypatch.setattr(OutcomeTable, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(table, GMRES_IR, systems(3), ACTIONS)
    # The task whose write was broken off: the first problem with its first factor format.
    first = [action for action in ACTIONS if action.split("-")[0] == ACTIONS[0].split("-")[0]]
    assert len(table) == len(first)


def test_backends_and_algorithms_of_your_own_do_not_share_facts(table):
    A = np.random.default_rng(0).standard_normal((30, 30)) * 0.2 + np.eye(30)
    problem = rw.LinearSystem(sparse.csr_array(A), np.ones(30))
    for threshold in (1.0, 0.001):
        backend = OperationBackend(pivot_threshold=threshold)
        assert fill(table, GMRES_IR, [problem], ACTIONS[:1], arithmetic=backend) == 1

    def mine():
        @dataclasses.dataclass(frozen=True)
        class Mine(rw.LuIR):
            pass

        return Mine

    def other():
        @dataclasses.dataclass(frozen=True)
        class Mine(rw.LuIR):
            pass

        return Mine

    for algorithm in (mine()(), other()()):
        assert fill(table, algorithm, [problem], ["fp64-fp64-fp64"]) == 1


def test_what_cannot_be_stored_is_refused_before_it_is_computed(table, monkeypatch):
    problem = rw.LinearSystem(np.eye(2), np.ones(2), meta={"spectrum": np.arange(3.0)})
    monkeypatch.setattr(rw.GmresIR, "execute", lambda *_: pytest.fail("computed"))
    with pytest.raises(TypeError, match="ndarray cannot be stored"):
        fill(table, GMRES_IR, [problem], ACTIONS)


# Files


def test_reading_makes_no_table_of_an_empty_file(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(OutcomeTableError, match="an empty file"):
        OutcomeTable(path, must_exist=True)
    assert path.stat().st_size == 0


def test_files_that_are_no_tables(tmp_path):
    path = tmp_path / "file"
    path.write_text("no database at all\n" * 100)
    with pytest.raises(OutcomeTableError, match=r"file: no outcome table; choose") as error:
        OutcomeTable(path)
    one_line(error)
    assert path.read_text().startswith("no database")

    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE photos (id)")
    connection.close()
    with pytest.raises(OutcomeTableError, match="a database, but no outcome table"):
        OutcomeTable(foreign)

    with pytest.raises(OutcomeTableError, match="cannot be opened; check that its folder"):
        OutcomeTable(tmp_path / "absent" / "table.sqlite")
    with pytest.raises(OutcomeTableError, match="cannot be opened"):
        OutcomeTable(tmp_path)
    with pytest.raises(OutcomeTableError, match="no such file"):
        OutcomeTable(tmp_path / "typo.sqlite", must_exist=True)


def test_damaged_files(table, another):
    fill(table, GMRES_IR, systems(12), ACTIONS)
    whole = table.path.read_bytes()
    damaged = another("damaged")
    for content in (whole[: len(whole) // 2], whole[:5000] + b"\xff" * 20000 + whole[25000:]):
        damaged.path.write_bytes(content)
        with pytest.raises(OutcomeTableError, match=r"damaged .*restore it from a copy") as error:
            OutcomeTable(damaged.path)
        one_line(error)
    damaged.path.write_bytes(b"")  # what kill -9 leaves before the first transaction
    assert len(OutcomeTable(damaged.path)) == 0


def test_newer_and_older_schemas(table, monkeypatch):
    problems = systems(2)
    fill(table, GMRES_IR, problems, ACTIONS)
    content = table.content()
    step = ("ALTER TABLE outcome ADD COLUMN energy TEXT NOT NULL DEFAULT '{}'",)
    with monkeypatch.context() as future:
        future.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
        newer = OutcomeTable(table.path)
        assert newer.content() == content
        fill(newer, GMRES_IR, systems(3), ACTIONS)
        assert len(OutcomeTable(table.path)) == 9
    with pytest.raises(OutcomeTableError, match=r"schema version 3, newer than .*\(2\); upgrade"):
        OutcomeTable(table.path)


# Calls


def test_wrong_calls(table):
    problems = systems(1)
    for jobs in (0, -2, 1.5):
        with pytest.raises(ValueError, match="pass a count of at least 1, or -1"):
            fill(table, GMRES_IR, problems, ACTIONS, jobs=jobs)
    with pytest.raises(rw.UnknownNameError, match="unknown feature 'kapa'"):
        fill(table, GMRES_IR, problems, ACTIONS, features=["kapa"])
    with pytest.raises(TypeError, match=r"pass a list: \['norm_inf'\]"):
        fill(table, GMRES_IR, problems, ACTIONS, features="norm_inf")
    with pytest.raises(ValueError, match="has 2 formats; pass one for each stage"):
        fill(table, GMRES_IR, problems, ["fp64-fp64"])
    with pytest.raises(rw.UnknownNameError, match="unknown arithmetic model"):
        fill(table, GMRES_IR, problems, ACTIONS, arithmetic="abacus")
    assert len(table) == 0


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("threadpoolctl", {}, "tune"),
        ("joblib", {"jobs": 2}, "tune"),
        ("distributed", {"client": object()}, "dask"),
    ],
)
def test_missing_packages_name_the_extra(table, monkeypatch, module, arguments, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module} is needed .*roundwise\[{extra}\]"):
        fill(table, GMRES_IR, systems(1), ACTIONS, **arguments)


def test_progress_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def drawn(stream):
        monkeypatch.setattr(sys, "stderr", stream)
        progress = progress_bar("outcomes")
        for done in (40, 60, 100):
            time.sleep(0.11)  # a bar is not drawn more often than every 0.1 s
            progress(done, 100)
        return stream.getvalue()

    assert drawn(io.StringIO()) == ""  # short runs say nothing
    text = drawn(Terminal())
    assert "outcomes:  40%" in text
    assert "outcomes: 100%" in text
    assert "40/100 [00:00<?" in text  # what was done before says nothing about the speed
    assert re.search(r"60/100 \[\d\d:\d\d<\d\d:\d\d", text)


def test_without_a_terminal_a_line_comes_now_and_then(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    now = 100.0
    progress = progress_bar("outcomes", clock=lambda: now)
    printed = {}
    for second in range(91):
        now = 100.0 + second
        before = stream.tell()
        progress(10 + second, 100)
        if stream.tell() > before:
            printed[second] = stream.getvalue()[before:]
    assert printed == {
        10: "outcomes: 20 of 100 done, about 80 s left\n",
        40: "outcomes: 50 of 100 done, about 50 s left\n",
        70: "outcomes: 80 of 100 done, about 20 s left\n",
        90: "outcomes: 100 of 100 done in 90 s\n",
    }
