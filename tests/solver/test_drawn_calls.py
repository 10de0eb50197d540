"""Calls drawn over all kinds of input: every answer is judged, and looks as NumPy's does."""

import importlib.util
import math
import sys
import warnings
from pathlib import Path

import exact
import numpy as np
import pytest
from scipy import sparse

import roundwise as rw

FILE = Path(__file__).parents[2] / "benchmarks" / "drawn_calls.py"
spec = importlib.util.spec_from_file_location("drawn_calls", FILE)
drawn_calls = sys.modules["drawn_calls"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(drawn_calls)

DRAWS, LARGEST = 240, 60
CALLS = [drawn_calls.draw(1, number, LARGEST) for number in range(DRAWS)]
each_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.number} {call}")


def answer(call, full_output):
    """What the call returns; None where A is singular and the call says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rw.IllConditionedWarning)
        try:
            return drawn_calls.prepare(call)(call.A, full_output)
        except rw.SolveFailed:
            assert is_singular(call)
            return None


def is_singular(call):
    """To rounding errors; integers can become singular when they are rounded."""
    A = call.A.toarray() if sparse.issparse(call.A) else call.A
    n, rank = call.n, np.linalg.matrix_rank(A.astype(complex))
    return call.kind != "tall" and (call.family == "singular" or bool(np.any(rank < n)))


def like_numpy(call):
    """An answer of NumPy for operands of these types and shapes."""
    if call.kind == "tall":
        return np.linalg.lstsq(call.A, call.b)[0]
    identity = np.eye(call.n, dtype=call.A.dtype)
    return np.linalg.solve(np.broadcast_to(identity, call.shape), call.b)


def exact_error(A, x, b):
    """`exact.backward_error` of at most three columns; complex systems in their real form.

    The largest part of a number is at least its modulus over sqrt(2).
    """
    A, x, b = (v.reshape(A.shape[0], -1)[:, :3] if v is not A else v for v in (A, x, b))
    if "c" not in (A.dtype.kind, b.dtype.kind):
        return exact.backward_error(A, x, b)
    A = A.toarray() if sparse.issparse(A) else A
    real = np.block([[A.real, -A.imag], [A.imag, A.real]])
    x, b = (np.vstack([v.real, v.imag]) for v in (x, b))
    return exact.backward_error(real, x, b) / math.sqrt(2)


def gate(call, x):
    u = 2.0**-24 if x.dtype in (np.float32, np.complex64) else 2.0**-53
    if call.kind != "tall":
        return call.options.get("tol", math.sqrt(call.n) * u)
    m, n = call.shape
    usual = max(6, math.sqrt(m + n)) * u
    # Singular values below rcond count as zero, and A'r is at most some perturbations of A and b.
    rcond = max(m, n) * 2 * u
    return 4 * (call.options.get("tol", usual) + math.sqrt(min(m, n)) * rcond)


@each_call
def test_answers_pass_an_exact_gate_and_look_as_those_of_numpy(call):
    given = answer(call, call.full_output)
    if given is None:
        return
    x = given.x if call.full_output else given
    expected = like_numpy(call)
    assert (type(x), x.dtype, x.shape) == (np.ndarray, expected.dtype, expected.shape)
    A, b = call.meant(call.A), call.b
    if call.kind == "tall":
        assert drawn_calls.backward_error(call, x) <= gate(call, x)
    elif call.kind == "stack":
        B = np.broadcast_to(b[:, None] if b.ndim == 1 else b, (len(A), call.n, call.k))
        for i in range(min(3, len(A))):
            assert exact_error(A[i], x[i], B[i]) <= gate(call, x)
    else:
        assert exact_error(A, x, b) <= gate(call, x)


def test_every_kind_of_call_is_drawn():
    drawn = [drawn_calls.draw(1, number, LARGEST) for number in range(2000)]
    for name in ("kind", "dtype", "entry", "family"):
        seen = {getattr(call, name) for call in CALLS}
        assert seen == {getattr(call, name) for call in drawn}
    assert {option for call in CALLS for option in call.options} == {
        option for call in drawn for option in call.options
    }


def test_a_call_is_drawn_again_bit_for_bit():
    for call in CALLS[:40]:
        again = eval(call.line, {"draw": drawn_calls.draw})
        pairs = [(call.b, again.b), *zip(call.sequence, again.sequence, strict=True)]
        for one, other in pairs:
            parts = (one.toarray(), other.toarray()) if sparse.issparse(one) else (one, other)
            assert parts[0].tobytes() == parts[1].tobytes()


@each_call
def test_plain_and_full_output_agree(call):
    """What is asked about an answer does not change it: the same bits, by the same action."""
    plain, full, again = answer(call, False), answer(call, True), answer(call, True)
    if plain is None or full is None:
        assert plain is full is again is None
        return
    assert plain.tobytes() == full.x.tobytes() == again.x.tobytes()
    assert actions(full) == actions(again)


def actions(solution):
    """One, or those of the systems of a stack."""
    parts = (
        solution.parts.ravel() if isinstance(solution, rw.solver.StackedSolution) else [solution]
    )
    return [one.action for one in parts]
