"""A forked process works, whatever other threads of its parent were doing at that moment."""

import functools
import os
import signal
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from weakref import ref

import numpy as np
import pytest

import roundwise as rw
from roundwise import _forking
from roundwise._forking import fork_safe_lock
from roundwise.backends.native import dense
from roundwise.outcomes import workers
from roundwise.policies import memory as memories
from roundwise.policies.bandit import Account
from roundwise.policies.memory import Memory, MemoryFileWarning, Observation
from roundwise.policies.neighbours import NeighbourPolicy

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    # Python 3.12 warns of forks in processes with threads, which is what this is about.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

N = 300
RNG = np.random.default_rng(7)
A, B = RNG.standard_normal((N, N)) + 20 * np.eye(N), RNG.standard_normal(N)
SECONDS = 60  # a child that hangs is killed after these


def succeeds_in_child(work):
    """Whether ``work()`` is true in a forked process, and ends."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


class Pause:
    """Stops the other threads of this process, not those of its children, at one place."""

    def __init__(self):
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._here, self._process = threading.get_ident(), os.getpid()

    def __call__(self):
        if threading.get_ident() != self._here and os.getpid() == self._process:
            self.reached.set()
            assert self.go_on.wait(SECONDS)

    def before(self, function):
        def paused(*arguments, **options):
            self()
            return function(*arguments, **options)

        return paused

    @contextmanager
    def at(self, work):
        """Within the block, another thread has stopped in the middle of ``work()``."""
        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert self.reached.wait(SECONDS)
            yield
        finally:
            self.go_on.set()
            thread.join()


def solves(F, b=B):
    x = F.solve(b)
    return np.abs(b - A @ x).max() <= 1e-13 * (np.abs(A).sum(axis=1).max() * np.abs(x).max())


@pytest.mark.parametrize("policy", ["lu:fp32-fp64-fp64-fp64", "lu:fp64-fp64-fp64-fp64"])
def test_a_child_solves_while_another_thread_factorizes(monkeypatch, policy):
    pause, F = Pause(), rw.factor(A, policy=policy)
    monkeypatch.setattr(dense, "getrf", pause.before(dense.getrf))
    with pause.at(lambda: F.solve(B)):
        assert succeeds_in_child(lambda: solves(F))
        assert succeeds_in_child(lambda: solves(F))  # one child is not the last
    assert solves(F)


def test_a_child_solves_while_another_thread_climbs(monkeypatch):
    # FP32's factors are given up, those of FP64 not made yet.
    pause, F = Pause(), rw.factor(A, policy="fp32", tol=1e-15)
    B0 = A @ np.ones(N)
    factored = F._factored
    made = factored._made

    def climbing(level):
        if level > 0:
            pause()
        return made(level)

    factored._made = climbing
    with pause.at(lambda: factored.factors_of(len(factored.ladder) - 1)):
        assert factored._factors is None
        assert succeeds_in_child(lambda: solves(F, B0))


def test_a_child_converts_while_another_thread_does(monkeypatch):
    # The lock of Python 3.11's cached_property is one for all objects of a class.
    pause, native = Pause(), rw.backends.get_backend("native")
    monkeypatch.setattr(dense, "stored", pause.before(dense.stored))
    with pause.at(native.matrix(A, "fp32").prepared):
        assert succeeds_in_child(lambda: native.matrix(A, "fp32").prepared().shape == A.shape)


def test_no_cached_property_has_a_lock():
    classes = {
        cls
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "roundwise"
        for cls in vars(module).values()
        if isinstance(cls, type)
    }
    found = [
        value
        for cls in classes
        for value in vars(cls).values()
        if isinstance(value, functools.cached_property)
    ]
    assert found
    assert all(type(value) is _forking.cached_property for value in found)


# What a Solver remembers


def observation():
    return Observation("cell", "fp32", 1, 1.0, 1.0, 0.9)


def test_a_fork_waits_for_a_statement(monkeypatch, tmp_path):
    memory, pause = Memory(tmp_path / "memory.sqlite"), Pause()
    monkeypatch.setattr(memories, "write", pause.before(memories.write))

    def child():
        memory.add([observation()])
        return memory.cell("cell")["fp32"].count == 2

    with pause.at(lambda: memory.add([observation()])):
        threading.Timer(0.2, pause.go_on.set).start()
        assert succeeds_in_child(child)
    memory.add([observation()])
    assert memory.cell("cell")["fp32"].count == 3
    memory.close()


def test_no_connection_is_open_in_a_child(tmp_path):
    memory = Memory(tmp_path / "memory.sqlite")
    memory.add([observation()])
    assert succeeds_in_child(lambda: memory._connection is None)
    assert memory.cell("cell")["fp32"].count == 1
    memory.close()


def test_what_waits_is_written_by_the_parent_alone(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory = Memory(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(MemoryFileWarning, match="locked"):
            memory.add([observation()])
        assert succeeds_in_child(lambda: memory.cell("cell") == {})
        other.execute("ROLLBACK")
    assert succeeds_in_child(lambda: memory.close() is None)
    memory.close()
    assert Memory(path).cell("cell")["fp32"].count == 1


def test_a_memory_without_a_file_is_copied_by_a_fork():
    memory = Memory()
    memory.add([observation()])

    def child():
        memory.add([observation()])
        return memory.cell("cell")["fp32"].count == 2

    assert succeeds_in_child(child)
    assert memory.cell("cell")["fp32"].count == 1


@pytest.mark.parametrize("in_file", [True, False])
def test_a_child_learns_while_another_thread_solves(monkeypatch, tmp_path, in_file):
    monkeypatch.setattr(NeighbourPolicy, "crossover", lambda self, kind: 150)
    solver, pause = rw.Solver(memory=tmp_path / "memory.sqlite" if in_file else None), Pause()
    solver.solve(A, B)
    monkeypatch.setattr(dense, "getrf", pause.before(dense.getrf))

    def child():
        x = solver.solve(A, B)
        return np.allclose(A @ x, B) and "2 solves" in repr(solver)

    with pause.at(lambda: solver.solve(A, B)):
        assert succeeds_in_child(child)
    assert "2 solves" in repr(solver)
    cells = solver._learner.memory.cells()
    counts = {sum(arm.count for arm in arms.values()) for arms in cells.values()}
    assert counts == {3 if in_file else 2}


def test_what_other_threads_explore_is_not_reserved_in_a_child():
    account = Account(seconds=100.0)
    account.reserved[os.getpid(), 1] = 5.0
    assert not account.affords(1.0, 0.05)
    assert succeeds_in_child(lambda: account.affords(1.0, 0.05))


# Limits of threads, and locks themselves


def test_limits_that_other_threads_hold_end_in_a_child(threads):
    pytest.importorskip("threadpoolctl")
    threads(3)
    pause = Pause()

    def task():
        with workers.threads_limited(1):
            pause()

    with pause.at(task):
        assert rw.get_num_threads() == 1
        assert succeeds_in_child(lambda: rw.get_num_threads() == 3)
        assert rw.get_num_threads() == 1
        with workers.threads_limited(1):  # of this thread, too: it goes on in the child
            assert succeeds_in_child(lambda: rw.get_num_threads() == 1)
    assert rw.get_num_threads() == 3


def used(lock):
    with lock:
        return True


def test_a_lock_that_another_thread_holds_is_free_in_a_child():
    lock, pause = fork_safe_lock(), Pause()

    def hold():
        with lock:
            pause()

    with pause.at(hold):
        assert succeeds_in_child(lambda: used(lock))
    assert used(lock)


def test_a_thread_that_forks_while_it_holds_a_lock_holds_it_in_both_processes():
    lock = fork_safe_lock()

    def is_held_and_can_be_released():
        with ThreadPoolExecutor(1) as other:
            held = not other.submit(lock.acquire, blocking=False).result()
        lock.release()
        return held and used(lock)

    with lock:
        assert succeeds_in_child(is_held_and_can_be_released)
    assert used(lock)


def test_locks_are_forgotten_with_their_owners():
    lock = fork_safe_lock()
    reference = ref(lock)
    assert reference in _forking._locks
    del lock
    assert reference() is None
    assert all(known() is not None for known in _forking._locks.copy())
