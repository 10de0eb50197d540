"""The learning Solver: in a simulated world with known costs, and in the real one."""

import copy
import json
import multiprocessing
import os
import pickle
import signal
import sqlite3
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import roundwise as rw
from roundwise.costs import Work
from roundwise.costs.prices import generic_prices
from roundwise.exceptions import RoundwiseError
from roundwise.machine import Machine
from roundwise.policies import (
    Facts,
    Memory,
    MemoryFileError,
    MemoryFileWarning,
    NeighbourPolicy,
    OnlinePolicy,
)
from roundwise.policies.bandit import FIRST_PATIENCE, climb_of
from roundwise.policies.facts import Tried
from roundwise.policies.memory import Arm, Observation
from roundwise.policies.memory_file import APPLICATION_ID
from roundwise.policies.profile import Profile
from roundwise.problems import randsvd
from roundwise.tuning import PROBE_CONTEXT

N = 1000
SEEN = Profile("dense", N, N * N, 0.02, 1.0)
AT_ONCE = Tried(True, 0, 0)
PROMISING = Facts.gathered(
    [(SEEN, 1.0, {"fp32": Tried(True, 2 + i % 2, 0), "fp64": AT_ONCE}) for i in range(10)]
)
SUCCEEDS, FAILS = Work(1, 2, 0), Work(1, 3, 40)


def attempt(action, work, converged, seconds):
    status = rw.OutcomeStatus.CONVERGED if converged else rw.OutcomeStatus.STAGNATED
    counts = {"outer_iterations": work.steps, "inner_iterations": work.iterations}
    return rw.Outcome(status, None, action=str(action), seconds=seconds, **counts)


class World:
    """Solves whose time is their price, times how slow the machine is."""

    def __init__(self, learner, slowness=1.0):
        self.learner, self.slowness = learner, slowness

    def attempts(self, seen, first, suffices):
        learner = self.learner
        found = []
        for action in rw.VerifiedSolve().climb(
            learner.space[first], rw.backends.get_backend("native")
        ):
            fmt = action[0].name
            converged = fmt == "fp64" or fmt in suffices
            work = Work(1, 0, 0) if fmt == "fp64" else SUCCEEDS if converged else FAILS
            seconds = self.slowness * learner.prior.priced(seen, {fmt: work})
            found.append(attempt(action, work, converged, seconds))
            if converged:
                return found
        raise AssertionError("FP64 suffices")

    def solve(self, suffices, n=N, coherence=1.0):
        """One solve in a world where these formats suffice; the decision and its seconds."""
        seen = Profile("dense", n, n * n, 0.02, coherence)
        decision = self.learner.decide(seen)
        attempts = self.attempts(seen, decision.first, suffices)
        seconds = sum(attempt.seconds for attempt in attempts)
        self.learner.learn(decision, attempts, seconds)
        return decision, seconds

    def first(self, suffices, **options):
        """The format of a solve's first factors."""
        return self.learner.space[self.solve(suffices, **options)[0].first][0].name

    def starts(self, count, suffices, **options):
        return [self.first(suffices, **options) for _ in range(count)]


def learner(facts=PROMISING, explore=0.02, memory=None):
    prior = NeighbourPolicy(facts, generic_prices())
    policy = OnlinePolicy(prior, memory, explore)
    space = rw.VerifiedSolve().starts((False, True))
    prior.start(np.empty((0, len(PROBE_CONTEXT.features))), space)
    policy.space, policy.feature_count = prior.space, prior.feature_count
    return policy


def lu(fmt):
    return f"lu:{fmt}-fp64-fp64-fp64"


# The simulated world


def test_it_begins_with_the_default_policy():
    world = World(learner())
    decision, _ = world.solve({"fp32"})
    prior = world.learner.prior.rank(decision.profile)
    assert decision.ranking.actions == prior.actions
    assert decision.ranking.reason == prior.reason
    np.testing.assert_allclose(decision.ranking.costs, prior.costs)
    assert not decision.explores
    assert world.learner.space.names[decision.first] == lu("fp32")


def test_it_stays_with_what_works():
    assert set(World(learner()).starts(50, {"fp32"})) == {"fp32"}


@pytest.mark.parametrize("sizes", [(N,), tuple(range(N, N + 400))])
def test_it_adapts_to_a_change_within_eight_solves(sizes):
    """Of one shape, and of ever new shapes, where only the bin tells."""
    world = World(learner(explore=0.0))
    for i in range(100):
        assert world.first({"fp32"}, n=sizes[i % len(sizes)]) == "fp32"
    starts = [world.first(set(), n=sizes[(100 + i) % len(sizes)]) for i in range(60)]
    assert "fp64" in starts[:8]
    assert set(starts[starts.index("fp64") :]) == {"fp64"}


def test_a_sequence_of_one_shape_starts_higher_after_a_few_climbs():
    world = World(learner(explore=0.0))
    starts = world.starts(10, set())
    assert starts.index("fp64") <= 3


def test_it_returns_when_low_precision_works_again():
    """Within the exploration budget: 2 % of the time pay for a try in a hundred solves or so."""
    world = World(learner())
    world.starts(30, {"fp32"})
    world.starts(100, set())
    starts = world.starts(500, {"fp32"})
    back = starts.index("fp32")
    assert back < 400
    assert set(starts[back + 10 :]) == {"fp32"}


def test_what_never_pays_is_tried_ever_less_often():
    world = World(learner(explore=0.5))
    starts = world.starts(600, set())
    tries = [i for i, first in enumerate(starts) if first == "fp32" and i > 10]
    gaps = np.diff(tries)
    assert len(tries) >= 3
    assert (gaps[1:] >= 1.5 * gaps[:-1]).all()
    assert gaps[0] >= FIRST_PATIENCE


@pytest.mark.parametrize("explore", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_exploring_never_exceeds_its_share_of_the_time(explore, seed):
    """Whatever happens, after every single solve."""
    rng = np.random.default_rng(seed)
    world = World(learner(explore=explore))
    spent = total = 0.0
    explored = 0
    for i in range(800):
        hard = rng.random() < (0.9 if (i // 100) % 2 else 0.2)
        decision, seconds = world.solve(
            set() if hard else {"fp32", "bf16"}, n=int(rng.integers(N, N + 5))
        )
        total += seconds
        if decision.explores:
            explored += 1
            spent += max(0.0, seconds - decision.best_seconds)
        assert spent <= explore * total
    account = world.learner.account
    assert account.exploring == pytest.approx(spent)
    assert account.seconds == pytest.approx(total)
    assert (explored == 0) == (explore == 0)


def test_an_exploration_under_way_is_paid_for_in_advance():
    """Many threads that decide at once do not overspend together."""
    world = World(learner(explore=0.1))
    world.starts(200, set())
    for curiosity in world.learner._curiosity.values():
        curiosity.idle = 10**6
    decisions = [world.learner.decide(SEEN) for _ in range(200)]
    account = world.learner.account
    assert any(decision.explores for decision in decisions)
    reserved = sum(decision.reserved for decision in decisions)
    assert account.exploring + reserved <= 0.1 * account.seconds
    for decision in decisions:
        world.learner.release(decision)
    assert not account.reserved


def test_a_climb_teaches_about_every_format_it_tried():
    world = World(learner())
    decision, _ = world.solve(set())
    cell = world.learner.memory.cell(decision.profile.bin)
    fp32, fp64 = cell[lu("fp32")], cell[lu("fp64")]
    assert (fp32.count, fp64.count) == (1, 0)  # one start,
    assert fp32.weight == fp64.weight == 1  # two lessons
    assert fp32.cost > fp64.cost == pytest.approx(1.0)


def test_a_change_is_noticed_for_shapes_that_were_easy_before():
    """Every shape has good memories of FP32; those of the bin are newer."""
    world = World(learner(explore=0.0))
    sizes = range(N, N + 40)
    for _ in range(3):
        for n in sizes:
            world.solve({"fp32"}, n)
    starts = [world.first(set(), n=n) for n in sizes]
    assert starts.count("fp32") <= 4
    assert set(starts[10:]) == {"fp64"}


def test_where_a_format_fails_a_lower_one_is_not_tried_next():
    fp32 = Tried(True, 2, 0)
    cases = [{"bf16": Tried(i < 6, 8, 0), "fp32": fp32, "fp64": AT_ONCE} for i in range(10)]
    both = Facts.gathered([(SEEN, 1.0, tried) for tried in cases])
    world = World(learner(both, explore=0.0))
    if "bf16" not in world.learner.prior.formats(SEEN.method, world.learner.prior.prices):
        pytest.skip("this processor has no BF16 instructions")
    starts = world.starts(30, set())
    assert "bf16" not in starts[starts.index("fp64") :]


def test_a_slow_machine_is_not_mistaken_for_a_bad_format():
    """All takes ten times as long as priced: formats that were not tried look no better for it."""
    world = World(learner(), slowness=10.0)
    assert set(world.starts(60, {"fp32"})) == {"fp32"}


def test_an_outlier_counts_little():
    world = World(learner(explore=0.0))
    world.starts(20, {"fp32"})
    world.slowness = 50.0
    world.solve({"fp32"})
    world.slowness = 1.0
    assert world.starts(5, {"fp32"}).count("fp32") >= 4


def test_unknown_systems_are_learned_from_scratch():
    world = World(learner(Facts({}), explore=0.1))
    starts = world.starts(800, {"fp32"})
    assert starts[0] == "fp64"
    assert starts[-1] == "fp32"


def test_reasons():
    world = World(learner(explore=0.5))
    world.solve(set())
    assert "from 1 solve of similar systems" in world.solve(set())[0].ranking.reason
    reasons = [world.solve(set())[0].ranking.reason for _ in range(100)]
    assert any("to learn" in reason and "%" in reason for reason in reasons)


def test_the_summary_is_a_table():
    world = World(learner())
    world.starts(7, {"fp32"})
    text = world.learner.summary()
    assert "n = 1000" in text
    assert "(7)" in text
    assert "7 solves here, " in text


def test_the_work_of_a_climb_counts_attempts():
    attempts = [
        attempt("lu:bf16-fp64-fp64-fp64", Work(1, 4, 40), False, 0.1),
        attempt("lu:fp64-fp64-fp64-fp64", Work(1, 0, 0), False, 0.1),
        attempt("qr:fp64-fp64-fp64-fp64", Work(1, 1, 0), True, 0.1),
    ]
    assert climb_of(attempts) == {"bf16": Work(1, 4, 40), "fp64": Work(2, 1, 0)}


# Memory


def observation(cell="cell", fmt="fp32", cost=1.0):
    return Observation(cell, fmt, 1, cost, 1.0, 0.5)


def test_older_observations_are_discounted():
    memory = Memory()
    for cost in (1.0, 2.0, 4.0):
        memory.add([observation(cost=cost)])
    arm = memory.cell("cell")["fp32"]
    assert (arm.count, arm.weight, arm.cost) == (3, 1.75, 4 + 2 / 2 + 1 / 4)


def test_memory_lasts_and_tells_machines_apart(tmp_path, monkeypatch):
    path = tmp_path / "memory.sqlite"
    first = Memory(path)
    first.add([observation()])
    first.close()
    assert Memory(path).cell("cell")["fp32"].count == 1
    monkeypatch.setattr(Memory, "machine", "there")
    assert Memory(path).cells() == {}


def test_what_was_learned_is_used_again(tmp_path):
    path = tmp_path / "memory.sqlite"
    World(learner(memory=Memory(path))).starts(10, set())
    assert World(learner(memory=Memory(path))).first(set()) == "fp64"


def test_memory_follows_the_number_of_threads(threads):
    """What was measured with one thread says nothing of two, and comes back with one."""
    memory = Memory()
    threads(1)
    memory.add([observation()])
    threads(2)
    assert memory.cells() == {}
    memory.add([observation(cost=9.0)])
    threads(1)
    assert memory.cell("cell")["fp32"].cost == 1.0


def test_a_file_of_version_1_is_taken_over(tmp_path):
    """Its cells were sentences, which nobody looks up now: they stay in a table of their own."""
    path = tmp_path / "memory.sqlite"
    row = ("here", "dense, coherence below 2", "fp32", 7, 3.0, 2.0, 1.0)
    with sqlite3.connect(path) as old:
        old.execute(
            "CREATE TABLE arm (machine TEXT NOT NULL, cell TEXT NOT NULL, format TEXT NOT NULL,"
            " count INTEGER NOT NULL, weight REAL NOT NULL, cost REAL NOT NULL,"
            " priced REAL NOT NULL, PRIMARY KEY (machine, cell, format)) WITHOUT ROWID"
        )
        old.execute("INSERT INTO arm VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
    old.close()
    for _ in range(2):  # the second time it is a file of version 2
        memory = Memory(path)
        memory.add([observation(SEEN.bin, lu("fp32"))])
        memory.close()
    assert Memory(path).cell(SEEN.bin)[lu("fp32")].count == 2
    with sqlite3.connect(path) as new:
        assert new.execute("SELECT * FROM arm_1").fetchall() == [row]
        assert new.execute("PRAGMA user_version").fetchone() == (2,)
    new.close()


def test_words_are_no_keys(tmp_path, monkeypatch):
    """Another wording of the bins finds the same memories."""
    path = tmp_path / "memory.sqlite"
    World(learner(memory=Memory(path))).starts(10, set())
    monkeypatch.setattr("roundwise.policies.online.bin_in_words", lambda key: "other words")
    monkeypatch.setattr("roundwise.policies.profile.bin_in_words", lambda key: "other words")
    again = learner(memory=Memory(path))
    assert World(again).first(set()) == "fp64"
    assert "other words" in again.summary()


def test_arms_and_copies():
    memory = Memory()
    memory.put("cell", lu("fp32"), Arm(3, 2.0, 1.5, 1.0))
    assert memory.cell("cell") == {lu("fp32"): Arm(3, 2.0, 1.5, 1.0)}
    assert Arm(3, 2.0, 1.5, 1.0).faded(0.5) == Arm(1, 1.0, 0.75, 0.5)
    twin = copy.deepcopy(memory)
    twin.clear()
    assert twin.cells() == {}
    assert memory.cells() != {}
    assert pickle.loads(pickle.dumps(memory)).cells() == memory.cells()


def test_a_memory_in_a_file_can_be_pickled(tmp_path):
    memory = Memory(tmp_path / "memory.sqlite")
    memory.add([observation()])
    assert pickle.loads(pickle.dumps(memory)).cells() == memory.cells()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"no database at all, but long enough to be taken for one " * 40, "choose another path"),
        (None, "choose another path"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content, complaint):
    path = tmp_path / "file"
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE precious (x)")
        other.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(MemoryFileError, match=complaint) as caught:
        rw.Solver(memory=path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert issubclass(MemoryFileError, RoundwiseError)


def test_a_damaged_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory = Memory(path)
    memory.add([observation(f"cell {i}") for i in range(500)])
    memory.close()
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 3] = os.urandom(4096 * 2)
    path.write_bytes(content)
    with pytest.raises(MemoryFileError, match="damaged"):
        Memory(path)
    assert path.read_bytes() == content


def test_a_newer_file_and_a_missing_folder_are_refused(tmp_path):
    path = tmp_path / "memory.sqlite"
    Memory(path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 9")
    later.close()
    with pytest.raises(MemoryFileError, match="upgrade"):
        Memory(path)
    with pytest.raises(MemoryFileError, match="folder"):
        Memory(tmp_path / "nowhere" / "memory.sqlite")


def add_many(path, times, here):
    """In another process, with the threads of this one: with others it would be another machine."""
    rw.set_num_threads(here.threads)
    with threadpool_limits(here.blas_threads):
        memory = Memory(path)
        for _ in range(times):
            memory.add([observation("shared"), observation("also")])


def test_processes_that_share_a_file_lose_nothing(tmp_path):
    path = tmp_path / "memory.sqlite"
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=add_many, args=(path, 200, Machine.this())) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    memory = Memory(path)
    assert memory.cell("shared")["fp32"].count == memory.cell("also")["fp32"].count == 400


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_a_killed_process_leaves_a_valid_file(tmp_path):
    path = tmp_path / "memory.sqlite"
    context = multiprocessing.get_context("spawn")
    for _ in range(3):
        process = context.Process(target=add_many, args=(path, 10**9, Machine.this()))
        process.start()
        while not path.exists():
            time.sleep(0.01)
        time.sleep(1.0)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        memory = Memory(path)  # checks the file
        counts = [memory.cell(cell).get("fp32") for cell in ("shared", "also")]
        assert counts[0] == counts[1]  # both or none
        memory.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_its_own_connection(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory = Memory(path)
    memory.add([observation()])
    child = os.fork()
    if child == 0:
        memory.add([observation()])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    memory.add([observation()])
    assert memory.cell("cell")["fp32"].count == 3


# The Solver


def systems(n=450, count=3):
    rng = np.random.default_rng(1)
    return [(randsvd(n, 10.0, 3, rng=rng).A, rng.standard_normal(n)) for _ in range(count)]


def test_it_solves_as_solve_does(small_crossover):
    solver = rw.Solver()
    for A, b in systems(200):
        x = solver.solve(A, b)
        assert np.abs(b - A @ x).max() <= 1e-13 * np.abs(A).sum(axis=1).max() * np.abs(x).max()
    solution = solver.solve(A, b, full_output=True)
    assert isinstance(solution, rw.Solution)
    assert "of similar systems" in solution.decision
    assert solver._learner.account.solves == 4
    assert repr(solver).startswith("Solver(4 solves, ")


def test_what_a_solver_learned_holds_for_its_number_of_threads(small_crossover, threads):
    solver, (A, b) = rw.Solver(), systems(200)[0]
    threads(1)
    solver.solve(A, b)
    assert len(solver._learner.memory.cells()) == 2  # a bin and a shape
    threads(2)
    assert solver._learner.memory.cells() == {}
    assert "solve of similar" not in solver.solve(A, b, full_output=True).decision
    threads(1)
    assert "from 1 solve of similar" in solver.solve(A, b, full_output=True).decision


def test_small_systems_teach_nothing():
    solver = rw.Solver()
    A, b = np.eye(50) + 0.01, np.ones(50)
    solver.solve(A, b)
    solver.solve(A, b, full_output=True)
    assert solver._learner.account.solves == 0
    assert solver._learner.memory.cells() == {}


def test_a_factorization_teaches_once(small_crossover):
    solver = rw.Solver()
    A, b = systems(200)[0]
    factorization = solver.factor(A)
    for _ in range(3):
        factorization.solve(b)
    assert solver._learner.account.solves == 1


def test_learning_can_be_switched_off(tmp_path, small_crossover):
    solver = rw.Solver(learn=False)
    A, b = systems(200)[0]
    x = solver.solve(A, b)
    assert np.abs(b - A @ x).max() < 1e-12 * np.abs(x).max()
    assert solver.solve(A, b, full_output=True).decision == (
        rw.solve(A, b, full_output=True).decision
    )
    assert "does not learn" in solver.summary()
    assert "learn=False" in repr(solver)
    with pytest.raises(ValueError, match="leave one of them out"):
        rw.Solver(learn=False, memory=tmp_path / "memory.sqlite")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"policy": "fp32", "learn": True}, "learn=False"),
        ({"explore": 1.0}, "0 <= explore < 1"),
        ({"explore": -0.1}, "0 <= explore < 1"),
    ],
)
def test_bad_arguments(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        rw.Solver(**options)


def test_a_policy_that_decides_as_trained_needs_no_word_about_learning():
    solver = rw.Solver("fp32")
    A, b = systems(60)[0]
    solution = solver.solve(A, b, full_output=True)
    assert solution.attempts[0].action == lu("fp32")
    assert "does not learn" in solver.summary()
    assert solver.factor(A).format == "lu fp32"


def test_failures_are_raised_and_counted(small_crossover):
    solver = rw.Solver()
    with pytest.raises(rw.SolveFailed):
        solver.solve(np.ones((200, 200)), np.arange(200.0))
    assert solver._learner.account.solves == 1
    assert solver._learner.memory.cells() == {}
    with pytest.raises(ValueError, match="rows"):
        solver.solve(*systems(200)[0][:1], np.ones(3))
    assert not solver._learner.account.reserved


def test_an_answer_is_not_lost_if_memory_fails(tmp_path, small_crossover):
    path = tmp_path / "memory.sqlite"
    solver = rw.Solver(memory=path)
    with sqlite3.connect(path) as other:
        other.execute("DROP TABLE arm")
    other.close()
    A, b = systems(200)[0]
    with pytest.warns(MemoryFileWarning, match="no such table"):
        x = solver.solve(A, b)
    assert np.abs(b - A @ x).max() < 1e-12 * np.abs(x).max()
    with pytest.warns(MemoryFileWarning, match="lost"):
        solver._learner.memory.close()


def test_eight_threads_share_a_solver(tmp_path, small_crossover):
    """Set ROUNDWISE_HAMMER_SECONDS=60 for the long version."""
    duration = float(os.environ.get("ROUNDWISE_HAMMER_SECONDS", "3"))
    path = tmp_path / "memory.sqlite"
    solver = rw.Solver(memory=path, explore=0.1)
    problems = systems(160, 4)
    counts, errors = [0] * 8, []
    end = time.perf_counter() + duration

    def hammer(k):
        try:
            while counts[k] < 2 or time.perf_counter() < end:
                A, b = problems[(k + counts[k]) % len(problems)]
                x = solver.solve(A, b)
                assert np.abs(b - A @ x).max() < 1e-12 * np.abs(x).max()
                counts[k] += 1
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=hammer, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    account = solver._learner.account
    assert account.solves == sum(counts) > 8
    assert not account.reserved
    cells = Memory(path).cells()
    for level in ([name for name in cells if "=" in name], [n for n in cells if "=" not in n]):
        assert sum(arm.count for name in level for arm in cells[name].values()) == sum(counts)


# As a policy like others


def test_it_is_saved_with_what_it_learned(tmp_path):
    world = World(learner())
    world.starts(12, set())
    policy = world.learner
    saved, arrays = json.loads(json.dumps(policy.to_dict())), policy.arrays()
    np.savez(tmp_path / "policy.npz", **arrays)
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as loaded:
        again = rw.policies.load_policy(saved, dict(loaded))
    assert again.memory.cells() == policy.memory.cells()
    assert again.explore_share == policy.explore_share
    seen = Profile("dense", N + 7, (N + 7) ** 2, 0.02, 1.0)  # a shape that neither has met
    again.prior._prices = policy.prior._prices
    np.testing.assert_allclose(again.expected(seen), policy.expected(seen))
    assert again.rank(seen).actions == policy.rank(seen).actions
    with pytest.raises(ValueError, match="corrupt"):
        rw.policies.load_policy(saved, arrays | {"arm numbers": arrays["arm numbers"][1:]})
    with pytest.raises(ValueError, match="not a saved online policy"):
        rw.policies.load_policy(saved, {k: v for k, v in arrays.items() if "arm" not in k})


def test_rewards_teach_it_too():
    """log2 of the speedup over FP64: a start that takes twice as long is left soon."""
    policy = learner(explore=0.0)
    policy.memory.clear()
    names = policy.space.names
    fp32, fp64 = names.index(lu("fp32")), names.index(lu("fp64"))
    assert policy.choose(SEEN) == fp32
    first = policy.update(SEEN, fp32, -1.0)
    assert first < 0  # worse than expected
    for _ in range(8):
        policy.update(SEEN, fp32, -1.0)
        policy.update(SEEN, fp64, 0.0)
    assert policy.choose(SEEN) == policy.rank(SEEN).first == fp64
    assert policy.update(None, fp32, 5.0) == 0.0  # nothing is learned of the unknown
    assert policy.rank(None).first == policy.space.safe


def test_start_forgets():
    world = World(learner())
    world.starts(5, set())
    policy = world.learner
    policy.start(np.ones((1, len(PROBE_CONTEXT.features))), policy.space)
    assert policy.memory.cells() == {}
    assert policy.account.solves == 0


def test_it_can_be_pickled_with_its_file(tmp_path):
    policy = learner(memory=Memory(tmp_path / "memory.sqlite"))
    World(policy).starts(3, {"fp32"})
    again = pickle.loads(pickle.dumps(policy))
    assert again.memory.cells() == policy.memory.cells()
    assert World(again).first({"fp32"}) == "fp32"
