"""Signals: a handler may raise, or solve, at any moment; what it interrupts goes on working."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")

SECONDS = 60  # a process that hangs is killed after these

INTERRUPTED = """
import random, signal, sys
import numpy as np
import roundwise as rw

class Interrupted(Exception):
    pass

def interrupt(*_):
    raise Interrupted

signal.signal(signal.SIGALRM, interrupt)
rng, draw = np.random.default_rng(0), random.Random(0)
A, b = rng.standard_normal((60, 60)) + 10 * np.eye(60), rng.standard_normal(60)
F, solver = rw.factor(A, policy="fp32"), rw.Solver(memory=sys.argv[1])
interrupts = 0
while interrupts < 1000:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(2e-5, 2e-3))
        for _ in range(50):
            F.solve(b)
            F.refactor(A).solve(b)
            solver.solve(A, b)
    except Interrupted:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
for x in (F.solve(b), solver.solve(A, b)):
    assert np.allclose(A @ x, b)
print("went on")
"""


def test_interrupts_leave_no_lock_held(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, str(tmp_path / "memory.sqlite")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (run.returncode, run.stdout) == (0, "went on\n"), run.stderr


HANDLER_SOLVES = """
import signal
import numpy as np
import roundwise as rw
from roundwise.backends.native import dense

signal.alarm(30)
rng = np.random.default_rng(0)
A, b = rng.standard_normal((300, 300)), rng.standard_normal(300)
F, getrf, answers = rw.factor(A, policy="fp32"), dense.getrf, []

def signalled(*arguments, **options):
    dense.getrf = getrf
    signal.raise_signal(signal.SIGUSR1)
    return getrf(*arguments, **options)

signal.signal(signal.SIGUSR1, lambda *_: answers.append(F.solve(b)))
dense.getrf = signalled
answers.append(F.solve(b))
assert len(answers) == 2 and all(np.allclose(A @ x, b) for x in answers)
print("both solved")
"""


def test_a_handler_solves_with_the_factorization_that_it_interrupts():
    command = [sys.executable, "-c", HANDLER_SOLVES]
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (run.returncode, run.stdout) == (0, "both solved\n"), run.stderr
