"""Threads that share a Factorization: LAPACK's interfaces change what they are given meanwhile."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import roundwise as rw
from roundwise.solver import factored

SHARED = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import roundwise as rw

rng, n = np.random.default_rng(0), 300
A = rng.standard_normal((n, n)) + 30 * np.eye(n)
A = {"dense": A, "complex": A + 1j * A.T, "band": np.triu(np.tril(A, 2), -2)}[sys.argv[1]]
B = rng.standard_normal((n, 40))
F = rw.factor(A, policy="fp64")
expected = F.solve(B)

def same(_):
    return all(np.allclose(F.solve(B), expected) for _ in range(150))

with ThreadPoolExecutor(4) as pool:
    assert all(pool.map(same, range(4)))
print("all alike")
"""


@pytest.mark.parametrize("kind", ["dense", "complex", "band"])
def test_threads_share_factors(kind):
    command = [sys.executable, "-c", SHARED, kind]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (0, "all alike\n"), run.stderr


def test_many_solves_pay_for_better_factors():
    """As in ski rental: FP32 factors until their corrections have cost what FP64 ones do."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((700, 700)), rng.standard_normal((700, 400))
    F = rw.factor(A, policy="fp32")
    for _ in range(3):
        F.solve(B)
    assert F.format == "lu fp32"  # the caller has named it
    assert F.history == ()
    F.refactor(A)._factored._fixed = False  # as if a policy had chosen
    first = F.solve(B[:, 0])
    assert F.format == "lu fp32"
    for _ in range(3):
        X = F.solve(B)
    assert F.format == "lu fp64"
    assert len(F.history) == 1
    assert np.allclose(X[:, 0], first)
    assert F.solve(B, full_output=True).x.tobytes() == X.tobytes()
    assert F.refactor(A + 1.0).format == "lu fp32"


def test_better_factors_wait_for_memory(monkeypatch):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((700, 700)), rng.standard_normal((700, 400))
    F = rw.factor(A, policy="fp32")
    F._factored._fixed = False  # as if a policy had chosen
    monkeypatch.setattr(factored, "free_memory", lambda: 8.0 * 700**2)
    for _ in range(4):
        F.solve(B)
    assert F.format == "lu fp32"
    assert F.history == ("FP64 factors would pay, but there is no memory for them.",)
    monkeypatch.setattr(factored, "free_memory", lambda: np.inf)
    for _ in range(4):
        F.solve(B)
    assert F.format == "lu fp64"


def test_threads_may_ask_for_error_bounds_while_others_climb():
    # Well-scaled columns are solved with FP32's factors; the last right-hand side makes each
    # thread climb, which replaces the factors that the others are bounding errors with.
    rng = np.random.default_rng(3)
    U, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    V, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    A = (U * np.logspace(0, -9, 60)) @ V
    errors: list[BaseException] = []
    for _ in range(5):
        factors = rw.factor(A, policy="fp32")

        def work(factors: rw.Factorization = factors) -> None:
            try:
                for _ in range(5):
                    solution = factors.solve(rng.standard_normal(60), full_output=True)
                    assert solution.backward_error <= solution.tolerance
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
