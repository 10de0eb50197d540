"""What `solve` and `factor` did before they became a climb of `VerifiedSolve`, and still do."""

from __future__ import annotations

import itertools
import math
import threading

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.algorithms.accuracy import backward_errors, passes


def well_conditioned(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n)) + 2 * np.sqrt(n) * np.eye(n)


@pytest.mark.parametrize("full_output", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_no_columns_give_no_columns(form, full_output):
    answer = rw.factor(form(well_conditioned(5))).solve(np.empty((5, 0)), full_output=full_output)
    assert (answer.x if full_output else answer).shape == (5, 0)


@pytest.mark.parametrize("policy", ["fp16", "fp32"])
def test_an_answer_that_cannot_be_held_is_not_tried_in_more_bits(policy):
    A = 1e-300 * well_conditioned(20)
    with pytest.raises(rw.SolveFailed, match="cannot hold x") as caught:
        rw.solve(A, 1e300 * np.ones(20), policy=policy)
    assert len(caught.value.attempts) == 1


@pytest.mark.parametrize("assume_a", [None, "pos"])
@pytest.mark.parametrize("fmt", ["fp16", "fp32", "fp64"])
def test_the_format_that_was_asked_for_is_the_first(fmt, assume_a):
    A = well_conditioned(30)
    A = A @ A.T / 100 if assume_a else A
    first = rw.solve(A, A[0], policy=fmt, assume_a=assume_a, full_output=True).attempts[0]
    assert first.action.partition(":")[2] == f"{fmt}-fp64-fp64-fp64"


def test_a_format_that_sparse_matrices_lack_is_replaced_and_that_is_told():
    A = sparse.csr_array(well_conditioned(30))
    solution = rw.solve(A, np.ones(30), policy="fp16", full_output=True)
    assert solution.action.partition(":")[2] == "fp32-fp64-fp64-fp64"
    assert "does not run in it here: fp32 instead" in solution.decision


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


def test_one_backward_error_for_numbers_and_for_columns():
    values = (0.0, 5e-324, 1e-300, 1.0, 1e300, math.inf, math.nan)
    for residual, norm, x, b in itertools.product(values, repeat=4):
        with np.errstate(all="ignore"):
            columns = backward_errors(np.array([residual]), norm, np.array([x]), np.array([b]))
            number = backward_errors(residual, norm, x, b)
        assert passes(number, 0.5) == passes(columns, 0.5)
        assert number == columns[0] or (math.isnan(columns[0]) and not math.isfinite(number))
