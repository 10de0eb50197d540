"""Threads of other libraries that spin are moved to one core for a solve, and back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roundwise.machine import blas

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux tells of threads")

START = """
import os, sys, threading, time
from pathlib import Path

import numpy as np

import roundwise as rw
from roundwise import _kernels
from roundwise.machine import threads as spinning

rw.solve  # loads SciPy, whose BLAS starts threads of its own

def of_others(file):
    "What Linux tells of each thread that is neither ours nor the one that calls."
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            ours = (task / "comm").read_text().startswith("roundwise")
            if int(task.name) != threading.get_native_id() and not ours:
                found[int(task.name)] = (task / file).read_text()
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
    return found


def cores():
    return {thread: os.sched_getaffinity(thread) for thread in of_others("comm")}


def until_asleep():
    while any(text.rsplit(")", 1)[1].split()[0] != "S" for text in of_others("stat").values()):
        time.sleep(0.02)


def moved(now, before):
    return {thread for thread in before if now.get(thread) != before[thread]}


def spinning_threads():
    "Makes NumPy's threads spin; returns the cores that each thread may use."
    P @ P
    return cores()


def moves(action):
    "Whether an action, just after a product, finds threads moved; a slow machine needs more tries."
    for _ in range(50):
        before = spinning_threads()
        gone = action(before)
        assert cores() == before
        if 2 * len(gone) >= len(allowed):
            return True
    return False


def move_aside():
    return _kernels.move_others_aside(spinning.WATCHED, spinning.SHARE, [])


def aside():
    for _ in range(50):
        before = spinning_threads()
        if move_aside():
            return before
    raise AssertionError("nothing was moved")


rng = np.random.default_rng(0)
P = rng.standard_normal((500, 500))
A, b = rng.standard_normal((600, 600)), rng.standard_normal(600)
allowed = os.sched_getaffinity(0)
spinning.FEW_CORES = 1  # it is tested on two
spinning.WATCHED, spinning.SHARE = 20_000_000, 0.001  # also where other processes need the cores
product = P @ P
"""


def run(script, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    threads = {"OPENBLAS_NUM_THREADS": str(2 * len(os.sched_getaffinity(0)))}
    threads |= {"OPENBLAS_THREAD_TIMEOUT": "28"}  # they spin for some 2^28 cycles
    command = [sys.executable, "-c", START + script]
    done = subprocess.run(
        command, env=kept | threads | environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")


several_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one core",
)
openblas = pytest.mark.skipif(
    blas.bundled("numpy") is None, reason="NumPy uses another BLAS than OpenBLAS"
)


@linux
@several_cores
@openblas
class TestMoving:
    def test_threads_that_spin_are_moved_to_one_core_and_back(self):
        run("""
before = aside()
now = cores()
gone = moved(now, before)
assert 2 * len(gone) >= len(allowed)
assert len({frozenset(now[thread]) for thread in gone}) == 1
assert all(len(now[thread]) == 1 for thread in gone)
assert os.sched_getaffinity(0) == allowed
assert not move_aside()  # once at a time
_kernels.move_others_back()
assert cores() == before
_kernels.move_others_back()  # nothing to do
assert cores() == before
np.testing.assert_array_equal(P @ P, product)
""")

    def test_threads_that_sleep_stay_where_they_are(self):
        run("""
until_asleep()
before = cores()
assert not move_aside()
assert cores() == before
""")

    def test_nothing_is_moved_where_there_is_one_core(self):
        run("""
os.sched_setaffinity(0, {min(allowed)})
before = spinning_threads()
assert not move_aside()
assert cores() == before
""")

    def test_threads_that_are_to_be_spared_stay(self):
        run("""
before = spinning_threads()
spared = sorted(before)
assert not _kernels.move_others_aside(spinning.WATCHED, spinning.SHARE, spared)
assert cores() == before
""")

    def test_another_thread_does_not_move_them_back(self):
        run("""
before = aside()
other = threading.Thread(target=_kernels.move_others_back)
other.start()
other.join()
assert moved(cores(), before)
_kernels.move_others_back()
assert not moved(cores(), before)
""")

    def test_a_thread_that_has_ended_is_no_obstacle(self):
        run("""
aside()
child = os.fork()  # which ends OpenBLAS's threads
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
_kernels.move_others_back()
np.testing.assert_array_equal(P @ P, product)
""")

    def test_a_thread_whose_cores_were_set_meanwhile_keeps_them(self):
        run("""
before = aside()
gone = moved(cores(), before)
one = min(gone)
chosen = allowed - cores()[one]
os.sched_setaffinity(one, chosen)
_kernels.move_others_back()
assert os.sched_getaffinity(one) == chosen
assert moved(cores(), before) == ({one} if chosen != before[one] else set())
""")

    def test_a_child_forked_by_another_thread_meanwhile_moves_its_own(self):
        run("""
def fork():
    child = os.fork()
    if child == 0:
        try:
            aside()
            _kernels.move_others_back()
            rw.solve(A, b)
        except BaseException:
            os._exit(1)
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


codes = []
aside()
other = threading.Thread(target=fork)
other.start()
other.join()
_kernels.move_others_back()
assert codes == [0]
""")


@linux
@several_cores
@openblas
class TestSolves:
    def test_a_solve_moves_them_and_moves_them_back(self):
        run("""
before, seen = {}, []
solved = rw.solver.express.VerifiedLU


def watched(*arguments):
    seen.append(moved(cores(), before))
    return solved(*arguments)


x = rw.solve(A, b, policy="fp64")
rw.solver.express.VerifiedLU = watched


def solve(now):
    before.update(now)
    y = rw.solve(A, b, policy="fp64")
    np.testing.assert_array_equal(x, y)  # the same bits
    return seen[-1]


assert moves(solve)
before = spinning_threads()
rw.solve(P[:400, :400], b[:400], policy="fp64")  # too small
os.environ["ROUNDWISE_MOVE_SPINNING"] = "0"
before = spinning_threads()
rw.solve(A, b, policy="fp64")
assert seen[-2:] == [set(), set()]
""")

    def test_a_factorization_moves_them_too(self):
        run("""
from roundwise.backends.native import dense

before, seen = {}, []
getrf = dense.getrf


def watched(*arguments):
    seen.append(moved(cores(), before))
    return getrf(*arguments)


dense.getrf = watched


def solve(now):
    # With an action that is named, factors are made at the first solve, by all cores.
    F = rw.factor(A, policy="lu:fp64-fp64-fp64-fp64")
    before.update(now)
    F.solve(b)
    return seen[-1]


assert moves(solve)
""")

    def test_they_are_moved_back_from_solves_that_fail_or_are_interrupted(self):
        run("""
def fail(before):
    try:
        rw.solve(np.ones((600, 600)), b)
    except rw.SolveFailed:
        return set()
    raise AssertionError


def interrupted(before):
    try:
        with spinning.spinning_threads_aside(600):
            gone = moved(cores(), before)
            with spinning.spinning_threads_aside(600):  # within another: nothing to do
                pass
            assert moved(cores(), before) == gone
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return gone


assert not moves(fail)
assert moves(interrupted)
""")

    def test_nothing_is_moved_while_another_thread_of_python_works(self):
        run("""
stop = threading.Event()


def work():
    while not stop.is_set():
        P @ P


worker = threading.Thread(target=work)
worker.start()
before = cores()
for _ in range(5):
    with spinning.spinning_threads_aside(600):
        assert not moved(cores(), before)
stop.set()
worker.join()
""")

    def test_solves_and_products_in_many_threads(self):
        run("""
from concurrent.futures import ThreadPoolExecutor

x = rw.solve(A, b)


def both(_):
    y = rw.solve(A, b)
    return np.array_equal(P @ P, product) and np.array_equal(x, y)


with ThreadPoolExecutor(4) as pool:
    assert all(pool.map(both, range(24)))
assert all(both(i) for i in range(8))
assert all(now == allowed for now in cores().values())
""")


WAITING = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
from selectors import DefaultSelector
from socket import socketpair

from roundwise.machine.threads import _others_wait


def until(known):
    "Ends if this is the answer, soon or late."
    while _others_wait() is not known:
        pass


stop, one = threading.Event(), threading.Thread
"""


@pytest.mark.parametrize(
    "script",
    [
        "until(True)",
        "t = one(target=stop.wait); t.start(); until(True); stop.set()",
        "p = ThreadPoolExecutor(1); p.submit(int).result(); until(True)",
        "a, b = socketpair(); s = DefaultSelector(); s.register(a, 1)\n"
        "t = one(target=s.select); t.start(); until(True); b.send(b'x')",
        "r, w = os.pipe(); t = one(target=os.read, args=(r, 1)); t.start(); until(False)\n"
        "os.write(w, b'x')",
        "t = one(target=lambda: sum(map(bool, iter(stop.is_set, True)))); t.start()\n"
        "until(False); stop.set(); t.join(); until(True)",
    ],
    ids=["alone", "event", "pool", "selector", "reading", "working"],
)
def test_who_is_seen_to_wait(script):
    command = [sys.executable, "-c", WAITING + script]
    subprocess.run(command, check=True, timeout=60)
