"""GMRES competes with the factors of the next rung, whoever has chosen the rung."""

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.actions import Action
from roundwise.algorithms import OutcomeStatus
from roundwise.costs.prices import generic_prices
from roundwise.formats import FP64
from roundwise.methods.contract import Shape, Work
from roundwise.solver import factored
from roundwise.solver.budgets import SHARE, gmres_budget

PRICES = generic_prices()
REST = [FP64] * 3


def lu(*formats, method="lu"):
    return [Action([fmt, *REST], method) for fmt in formats]


def inner(solution):
    return sum(attempt.inner_iterations for attempt in solution.attempts)


@pytest.fixture(autouse=True)
def same_prices_everywhere(monkeypatch):
    monkeypatch.setattr(factored, "current_prices", lambda: PRICES)


@pytest.mark.parametrize("method", ["lu", "cholesky"])
@pytest.mark.parametrize("n", [1, 36, 300, 1250, 4000])
def test_the_budget_is_what_half_of_the_next_factors_take(method, n):
    shape = Shape(n, n * n)
    budget = gmres_budget(PRICES, lu("fp32", "fp64", method=method), 0, shape)
    one = PRICES.seconds(shape, method, "fp32", Work(iterations=1))
    factors, step = (PRICES.seconds(shape, method, "fp64", w) for w in (Work(1), Work(steps=1)))
    factors -= step  # the first substitution is no part of them
    assert budget * one <= SHARE * factors < (budget + 1) * one
    assert n != 36 or budget == 0


def test_it_is_that_of_the_next_rung_and_not_of_the_last():
    shape = Shape(1250, 1250**2)
    ladder = lu("bf16", "fp32", "fp64")
    low, single = (gmres_budget(PRICES, ladder, level, shape) for level in (0, 1))
    assert 0 < low < single
    assert gmres_budget(PRICES, ladder, 2, shape) is None  # nothing comes next
    same = [Action(["fp32", "fp32", "fp32", "fp64"], "lu"), *lu("fp32", "fp64")]
    assert gmres_budget(PRICES, same, 0, shape) == single  # the same factors cost nothing again


def test_what_has_no_price_is_passed_over():
    shape = Shape(1000, 1000**2)
    ladder = lu("fp32") + lu("fp64", method="qr")
    assert gmres_budget(PRICES, ladder, 0, shape) is None
    assert gmres_budget(PRICES, ladder + lu("fp64"), 0, shape) > 0
    assert gmres_budget(PRICES, lu("fp16", "fp32"), 0, shape) > 0


def ill_conditioned(n, rng=0):
    return rw.problems.randsvd(n, kappa=1e10, mode=3, rng=rng).A


@pytest.mark.parametrize("policy", ["fp32", "bf16", "lu:fp32-fp64-fp64-fp64"])
@pytest.mark.parametrize("k", [1, 13])
@pytest.mark.parametrize("n", [5, 36, 120])
def test_small_systems_whose_factors_cost_less_than_iterations_take_none(policy, k, n):
    A, B = ill_conditioned(n), np.random.default_rng(1).standard_normal((n, k))
    solution = rw.solve(A, B, policy=policy, full_output=True)
    assert str(solution.action).startswith("lu:fp64") or n == 5
    assert inner(solution) == 0
    assert solution.backward_error <= solution.tolerance


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_iterations_of_all_columns_together_keep_the_budget(dtype):
    n, k = 400, 7
    A = ill_conditioned(n).astype(dtype)
    if dtype == np.complex128:
        A = A * np.exp(1j * np.random.default_rng(2).random(n))
    B = np.random.default_rng(1).standard_normal((n, k))
    large = 2 * n  # of the real form of a complex system
    most = gmres_budget(PRICES, lu("fp32", "fp64"), 0, Shape(large, large**2))
    for columns in (B, B[:, :1], B[:, 0]):
        F = rw.factor(A, policy="fp32")
        solution = F.solve(columns, full_output=True)
        assert inner(solution) <= most
        assert solution.backward_error <= solution.tolerance


def test_few_iterations_are_taken_where_the_next_factors_cost_more(monkeypatch):
    """One tiny singular value, which FP32's factors miss: GMRES needs few iterations."""
    system = rw.problems.randsvd(300, kappa=1e9, mode=4, rng=0)
    b = np.random.default_rng(0).standard_normal(300)
    monkeypatch.setattr(factored, "gmres_budget", lambda *_: 12)
    solution = rw.solve(system.A, b, policy="lu:fp32-fp64-fp64-fp64", full_output=True)
    assert solution.action.startswith("lu:fp32")
    assert 0 < inner(solution) <= 12
    monkeypatch.setattr(factored, "gmres_budget", lambda *_: 0)
    solution = rw.solve(system.A, b, policy="lu:fp32-fp64-fp64-fp64", full_output=True)
    assert solution.action.startswith("lu:fp64")
    assert inner(solution) == 0
    assert OutcomeStatus.HOPELESS in [attempt.status for attempt in solution.attempts]


def test_a_sparse_rung_is_priced_by_what_its_factors_tell():
    def budget(side):
        L = sparse.diags_array([-1.0, 2.0, -1.0], offsets=(-1, 0, 1), shape=(side, side))
        A = sparse.kronsum(sparse.kronsum(L, L), L, format="csr")
        inside = rw.factor(A, policy="cholesky/amd:fp32-fp64-fp64-fp64")._factored
        return inside.gmres_budget(0, inside.factors_of(0))

    assert 0 <= budget(3) < budget(18)
