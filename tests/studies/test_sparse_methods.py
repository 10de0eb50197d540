"""Prices of sparse work: how they are fitted to measured times, and how choices compare."""

import math
from dataclasses import replace

import numpy as np
import pytest

from roundwise.costs.rates import generic_sparse_prices
from roundwise.methods import AMOUNTS, FLOPS, SAFE
from roundwise_studies.default_policy import sparse_methods
from roundwise_studies.default_policy.sparse_times import Attempt, Timed

EXACT = {"superlu/colamd:fp32": (2e-8, 3e-10), "superlu/colamd:fp64": (4e-8, 1e-9)}
"""Seconds per entry of L and per flop."""


def measured(i, attempts=EXACT, symmetric=0.0, **features):
    """A system whose methods take exactly what `attempts` says."""
    n, filled = 1000 * (i + 2), 4000.0 * (i + 2) ** 1.5
    known = {
        **{"n": n, "entries": 5 * n, "sparse": 1, "symmetric_pattern": 1, "columns": 1},
        **{"looks_positive_definite": symmetric, "symmetric": symmetric, "strong_diagonal": 1},
        **{"diagonal_share": 0.9, "coherence": 0.0, "remainder": 1.0, "static_pivots": 1},
        **{"factor_entries": filled, "factor_flops": filled * (10 + 40 * (i % 3)), "nd_flops": 0},
        "row_squares": 25 * n,
    } | features
    tried = {
        name: Attempt(entry * filled + flop * known["factor_flops"], 1e-9 * filled, True, 1, 0, 0.0)
        for name, (entry, flop) in attempts.items()
    }
    tried = {name: replace(a, alone=a.factor) for name, a in tried.items()}
    before = 1e-4, 1e-4, 1e-5, False, 1e-4  # looking, counting, and an attempt at once that failed
    return Timed(f"system-{i}", f"family-{i % 4}", known, *before, 1e-9 * 5 * n, tried)


def test_exact_times_give_their_prices_back():
    prices = sparse_methods.fitted([measured(i) for i in range(12)])
    for name, (entry, flop) in EXACT.items():
        method, fmt = name.split(":")
        found = prices.factor[method][fmt]
        assert found[AMOUNTS.index("entries of L")] == pytest.approx(entry, rel=1e-6)
        assert found[FLOPS] == pytest.approx(flop, rel=1e-6)
        assert sum(found) == pytest.approx(entry + flop, rel=1e-6)
        assert prices.solve[method][fmt] == pytest.approx(1e-9)
    assert prices.spread[SAFE] == pytest.approx(1.0)


def test_methods_that_were_not_measured_keep_their_prices():
    fitted = sparse_methods.fitted([measured(i) for i in range(12)])
    whole, generic = sparse_methods.completed(fitted), generic_sparse_prices()
    assert set(whole.factor) == set(generic.factor)
    assert whole.factor[SAFE] == fitted.factor[SAFE]
    assert whole.factor["cholesky/amd"] == generic.factor["cholesky/amd"]
    assert "as before: " in whole.source


def test_the_rule_of_linearsolve_by_hand():
    """KLU up to n = 10 000 if less than 0.02 % of the entries are there, else UMFPACK."""
    both = {"klu/amd:fp64": (1, 1), "umfpack/amd:fp64": (1, 1), **EXACT}
    sparse = measured(8, both, n=10_000, entries=19_999)
    assert sparse_methods.linearsolve_rule(sparse) == "klu/amd:fp64"
    for row in (measured(8, both, n=10_000, entries=20_000), measured(8, both, n=10_001)):
        assert sparse_methods.linearsolve_rule(row) == "umfpack/amd:fp64"
    assert sparse_methods.linearsolve_rule(measured(8)) == f"{SAFE}:fp64"  # neither was measured
    grid = measured(8, EXACT | {"superlu/mmd:fp64": (1, 1)})
    assert sparse_methods.linearsolve_rule(grid) == "superlu/mmd:fp64"


def test_who_knows_the_best_method_takes_the_least_time():
    """Our engine takes half of SuperLU's time; its order was found by the look, which costs."""
    half = {name.replace(SAFE, "lu/amd"): (e / 2, f / 2) for name, (e, f) in EXACT.items()}
    rows = [measured(i, EXACT | half) for i in range(12)]
    table = sparse_methods.comparison(rows)
    shown = {
        row[1]: float(row[3].split()[0]) for row in table.rows if row[0] == "default engines, all"
    }
    assert shown["oracle"] == shown[sparse_methods.ORACLE_AT_ONCE] == 1.0
    assert shown[sparse_methods.UNPAID] <= shown[sparse_methods.ASKED]
    assert shown[sparse_methods.ASKED] <= shown[sparse_methods.POLICY]
    always = [
        sparse_methods.alone(row, f"{SAFE}:fp64")
        / min(sparse_methods.alone(row, name) for name in row.attempts)
        for row in rows
    ]
    mean = math.exp(np.mean(np.log(always)))
    assert shown["always SuperLU (COLAMD, FP64)"] == pytest.approx(mean, abs=0.01)
    assert shown["LinearSolve.jl's rule"] == pytest.approx(mean, abs=0.01)  # SuperLU stands for it


def test_a_plain_solve_chooses_only_if_it_is_not_done_at_once():
    row = measured(3)
    (name, attempt), *_ = row.attempts.items()
    climb = attempt.seconds(row.matvec)
    assert sparse_methods.climb_seconds(row, name) == climb
    paid = row.at_once + row.look + row.counting_then
    assert sparse_methods.plain_seconds(row, name) == pytest.approx(paid + climb)
    quick = replace(row, met_at_once=True)
    assert sparse_methods.plain_seconds(quick, name) == row.at_once
    assert sparse_methods.best_seconds(quick) == row.at_once
    fastest = min(sparse_methods.alone(row, name) for name in row.attempts)
    assert sparse_methods.best_seconds(row) == fastest


def test_systems_of_applications_are_compared_by_themselves():
    """Of twelve systems two are files, on which our engine is slow, as nowhere else."""
    half = {name.replace(SAFE, "lu/amd"): (e / 2, f / 2) for name, (e, f) in EXACT.items()}
    twice = {name.replace(SAFE, "lu/amd"): (2 * e, 2 * f) for name, (e, f) in EXACT.items()}
    rows = [measured(i, EXACT | (twice if i < 2 else half)) for i in range(12)]
    table = sparse_methods.comparison(rows, {"system-0", "system-1"})
    always = {
        row[0].removeprefix("default engines, "): (row[2], float(row[3].split()[0]))
        for row in table.rows
        if row[1] == "always SuperLU (COLAMD, FP64)"
    }
    groups = {"applications, n >= 2000": rows[:2], "n >= 2000": rows}
    for group, members in groups.items():
        best = [min(sparse_methods.alone(row, name) for name in row.attempts) for row in members]
        safe = [sparse_methods.alone(row, f"{SAFE}:fp64") for row in members]
        mean = math.exp(np.mean(np.log(np.array(safe) / best)))
        assert always[group] == (str(len(members)), pytest.approx(mean, abs=0.01))
    assert always["n >= 2000"][1] > always["applications, n >= 2000"][1]
