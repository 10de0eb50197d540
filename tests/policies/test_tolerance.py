"""What the default policy expects of formats, by the tolerance that is asked for."""

import math
from dataclasses import replace

import numpy as np
import pytest

import roundwise as rw
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.policies import shipped_facts
from roundwise.policies.facts import Facts, Tried, columns_of, eased
from roundwise.policies.profile import Profile

N = 2000
EASY = Profile("dense", n=N, entries=N * N, diagonal_share=0.02, coherence=0.4, remainder=1.0)


def facts(**tried):
    """Ten systems on which formats have done that."""
    runs = {name: Tried(*counts) for name, counts in tried.items()}
    return Facts.gathered([(EASY, 1.0, runs)] * 10)


KNOWN = facts(bf16=(True, 20, 0), fp32=(True, 2, 0), fp64=(True, 0, 0))


def column(rows, fmt, count):
    return rows[:, columns_of("dense").index(f"{fmt} {count}")]


def test_the_usual_tolerance_changes_nothing():
    rows = KNOWN.tables["dense"]
    assert np.array_equal(eased("dense", rows, N, default_tolerance(N)), rows, equal_nan=True)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
def test_corrections_are_needed_for_the_digits_that_are_asked_for(tol):
    rows = eased("dense", KNOWN.tables["dense"], N, tol)
    u, usual = 2.0**-8, default_tolerance(N)
    share = math.log(u / tol) / math.log(u / usual)
    assert (column(rows, "bf16", "steps") == math.ceil(20 * share)).all()
    assert (column(rows, "bf16", "met") == 1).all()


def test_backward_stable_factors_meet_what_is_above_their_own_error():
    failing = facts(fp32=(False, 10, 40), fp64=(True, 1, 0)).tables["dense"]
    for tol, met in ((math.sqrt(N) * 2.0**-24, 1), (math.sqrt(N) * 2.0**-25, 0)):
        rows = eased("dense", failing, N, tol)
        assert (column(rows, "fp32", "met") == met).all()
        assert (column(rows, "fp32", "steps") == (0 if met else 10)).all()
    assert np.isnan(column(rows, "bf16", "met")).all()  # nobody has tried it


def test_experience_is_that_of_the_tolerance():
    near = KNOWN.near(EASY)
    assert len(near) == 10
    usual = KNOWN.of_rows(EASY, near)
    loose = KNOWN.of_rows(replace(EASY, tol=1e-3), near)
    assert usual.climbs["bf16"]["bf16"].steps == 200
    assert loose.climbs["bf16"]["bf16"].steps == 10 * math.ceil(
        20 * math.log(2.0**-8 / 1e-3) / math.log(2.0**-8 / default_tolerance(N))
    )
    assert replace(EASY, tol=1e-3).sizes != EASY.sizes
    assert shipped_facts().of_rows(EASY, ()) is None


def test_looser_tolerances_take_fewer_corrections_and_pass_their_gate():
    rng = np.random.default_rng(0)
    n = 1200
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    A = Q * np.geomspace(1, 1e-2, n)
    b = rng.standard_normal(n)
    taken = []
    for tol in (None, 1e-8, 1e-4, 1e-2):
        solution = rw.solve(A, b, tol=tol, full_output=True)
        assert solution.backward_error <= (tol or default_tolerance(n))
        taken.append(solution.iterations)
        assert np.array_equal(rw.solve(A, b, tol=tol), solution.x)
    assert taken[-1] == 0
