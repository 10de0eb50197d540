"""Nothing but the command writes to its standard output: neither BLAS nor SuperLU."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import roundwise as rw
from roundwise.backends.emulated.ordering import has_regular_pattern
from roundwise.problems import poisson_2d

SINGULAR_SEEDS = (22, 207, 314, 462)
"""Given these matrices, SuperLU calls BLAS with negative sizes, and BLAS writes a line."""


def zeros_and_ones(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 40))
    return sp.csc_array((rng.random((n, n)) < rng.uniform(0.03, 0.15)).astype(float))


@pytest.mark.parametrize("seed", SINGULAR_SEEDS)
def test_singular_patterns_give_an_error_and_no_other_word(seed, capfd):
    A = zeros_and_ones(seed)
    b = np.ones(A.shape[0])
    for policy, assumed in itertools.product(("default", "fp32", "fp64"), (None, "pos")):
        with pytest.raises(rw.SolveFailed, match="A is singular"):
            rw.solve(A, b, policy=policy, assume_a=assumed)
    for arithmetic in ("operation", "storage", "native"):
        for lu in ("fp32-fp32-fp64-fp64", "fp64-fp64-fp64-fp64"):
            outcome = rw.GmresIR.paper().run(rw.LinearSystem(A, b), lu, arithmetic)
            assert outcome.status is rw.OutcomeStatus.ZERO_PIVOT
    assert capfd.readouterr() == ("", "")


def test_json_of_a_singular_system_is_json(tmp_path):
    scipy.io.mmwrite(tmp_path / "A.mtx", zeros_and_ones(SINGULAR_SEEDS[0]))
    command = [sys.executable, "-m", "roundwise.cli", "solve", str(tmp_path / "A.mtx"), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["accepted"] is False
    assert ended.stderr.count("\n") == 1


def by_definition(pattern):
    """Whether n places lie in n different rows and columns: all permutations are tried."""
    n = len(pattern)
    return any(
        pattern[range(n), order].all() for order in map(list, itertools.permutations(range(n)))
    )


def test_regular_patterns_are_told_from_singular_ones():
    rng = np.random.default_rng(0)
    found = []
    for n in (1, 2, 3, 4, 5) * 60:
        pattern = rng.random((n, n)) < rng.uniform(0.2, 0.8)
        A = sp.csc_array(pattern.astype(float))
        found.append(has_regular_pattern(A))
        assert found[-1] == by_definition(pattern)
        A.data[rng.random(A.nnz) < 0.5] = 0.0  # they are stored, and so part of the pattern
        assert has_regular_pattern(A) == found[-1]
    assert 50 < sum(found) < 250


def test_large_patterns_in_any_order():
    """SciPy's structural_rank takes minutes for a grid whose rows are in a random order."""
    P = sp.csr_array(poisson_2d(60).A)
    n = P.shape[0]
    for seed in range(3):
        shuffled = P[np.random.default_rng(seed).permutation(n)]
        assert has_regular_pattern(shuffled.tocsc())
        assert has_regular_pattern(shuffled.T.tocsc())
        # Three rows that have entries in the same two columns only.
        lacking = shuffled.tolil()
        lacking[[5, 50, 500]] = 0.0
        lacking[[5, 50, 500], 7] = lacking[[5, 50, 500], 70] = 1.0
        assert not has_regular_pattern(lacking.tocsc())
    assert has_regular_pattern(sp.eye_array(n, format="csr")[::-1].tocsc())
    assert not has_regular_pattern(sp.csc_array((n, n)))
