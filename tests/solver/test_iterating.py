"""`solve` with operators, preconditioners, starts, callbacks, and SciPy's words."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import roundwise as rw

A = rw.problems.poisson_2d(16).A.tocsr()
N = A.shape[0]
SHIFTED = (A - 0.5 * sparse.eye_array(N)).tocsr()
SKEWED = (A + 0.3 * sparse.triu(A, 1)).tocsr()


def right(*shape, rng=0):
    return np.random.default_rng(rng).standard_normal((N, *shape))


@pytest.mark.parametrize("matrix", [A, SHIFTED, SKEWED, A.toarray()], ids="psud")
@pytest.mark.parametrize("columns", [(), (3,)])
def test_an_operator_is_solved_as_its_matrix_is(matrix, columns):
    b, wanted = right(*columns), None
    wanted = rw.solve(matrix, b)
    for given in (aslinearoperator(matrix), lambda v: matrix @ v):
        solution = rw.solve(given, b, full_output=True)
        assert solution.norm_is_lower_bound
        assert solution.norm <= abs(matrix).sum(axis=1).max()
        assert solution.backward_error <= solution.tolerance
        assert np.allclose(solution.x, wanted, rtol=1e-10, atol=1e-10)
        assert solution.history.shape == (solution.iterations + 1, b.size // N)


def test_complex_operators():
    H = A + sparse.diags_array([0.1j, -0.1j], offsets=[1, -1], shape=(N, N))
    H += 0.1 * sparse.eye_array(N)
    b = right() + 1j * right(rng=1)
    for matrix in (H.tocsr(), (H + 0.2j * sparse.eye_array(N)).tocsr()):
        solution = rw.solve(aslinearoperator(matrix), b, full_output=True)
        assert np.allclose(matrix @ solution.x, b)
    assert rw.solve(aslinearoperator(H.tocsr()), b, full_output=True).method == "cg"
    assert np.allclose(A @ rw.solve(lambda v: A @ v, b), b)


def test_the_method_follows_from_symmetry():
    b, positive = right(), aslinearoperator(A)
    assert rw.solve(positive, b, full_output=True).method == "cg"
    said = rw.solve(positive, b, assume_a="positive definite", full_output=True)
    assert "said to be positive definite" in said.explain()
    shifted = rw.solve(aslinearoperator(SHIFTED), b, full_output=True)
    assert shifted.method == "minres"
    assert [one.status.name for one in shifted.attempts] == ["INDEFINITE", "CONVERGED"]
    assert rw.solve(aslinearoperator(SKEWED), b, full_output=True).method in ("gmres", "bicgstab")
    lame = sparse.csr_array(np.tril(np.ones((N, N))))
    assert rw.solve(positive, b, M=lame @ lame.T, full_output=True).method == "cg"
    with pytest.raises(rw.SolveFailed, match="gmres"):  # a preconditioner that is none
        rw.solve(positive, b, M=lambda r: np.roll(r, 1) * 0.0)


@pytest.mark.parametrize("of", ["factorization", "matrix", "sparse", "operator", "function"])
def test_preconditioners_of_every_kind(of):
    b = right(2)
    inverse = np.linalg.inv((A + 0.01 * sparse.eye_array(N)).toarray())
    M = {
        "factorization": rw.factor(A + 0.01 * sparse.eye_array(N)),
        "matrix": inverse,
        "sparse": sparse.csr_array(inverse),
        "operator": aslinearoperator(inverse),
        "function": lambda r: inverse @ r,
    }[of]
    solution = rw.solve(A, b, M=M, full_output=True)
    assert solution.iterations < 12
    assert np.allclose(A @ solution.x, b)
    assert np.array_equal(rw.solve(A, b, M=M), solution.x)


def test_a_start_saves_iterations():
    b = right()
    x = rw.solve(A, b)
    assert rw.solve(A, b, x0=x, full_output=True).iterations == 0
    near = rw.solve(A, b, x0=x * (1 + 1e-9), full_output=True)
    far = rw.solve(A, b, x0=np.zeros(N), full_output=True)
    assert 0 < near.iterations < far.iterations
    with pytest.raises(ValueError, match="shaped as b"):
        rw.solve(A, b, x0=x[1:])
    with pytest.raises(TypeError, match="complex"):
        rw.solve(A, b, x0=x * 1j)


def test_callbacks_see_every_iteration_and_may_end_it():
    b, steps = right(), []
    solution = rw.solve(A, b, callback=steps.append, full_output=True)
    assert [step.iteration for step in steps] == list(range(1, solution.iterations + 1))
    norms = np.concatenate([step.residual_norms for step in steps])
    assert np.allclose(norms[:-1], solution.history[1:-1, 0])
    with pytest.raises(rw.SolveFailed, match="the caller's callback ended it") as failure:
        rw.solve(A, b, callback=lambda step: step.iteration == 3)
    assert failure.value.x.shape == b.shape
    assert failure.value.backward_error < 1

    def interrupted(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rw.solve(A, b, callback=interrupted)


def test_a_bar_is_shown_only_where_it_is_asked_for(capsys):
    rw.solve(A, right(), x0=np.zeros(N))
    assert capsys.readouterr() == ("", "")
    rw.solve(A, right(), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "cg [" in err
    assert err.endswith("\n")


@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
@pytest.mark.parametrize("given", ["matrix", "dense", "operator"])
def test_rtol_and_atol_are_scipys(rtol, given):
    b = right(2)
    matrix = {"matrix": A, "dense": A.toarray(), "operator": aslinearoperator(A)}[given]
    x = rw.solve(matrix, b, rtol=rtol)
    assert (np.linalg.norm(b - A @ x, axis=0) <= rtol * np.linalg.norm(b, axis=0)).all()
    x = rw.solve(matrix, b, atol=1e-3)
    assert (np.linalg.norm(b - A @ x, axis=0) <= 1e-3).all()
    with pytest.raises(ValueError, match="rtol = -1"):
        rw.solve(matrix, b, rtol=-1)


def test_rtol_that_float64_cannot_reach_is_named():
    hilbert = 1.0 / (np.arange(12)[:, None] + np.arange(12) + 1.0)
    b = np.linalg.svd(hilbert)[0][:, -1]  # x is 1e16 times as long as b
    with (
        pytest.raises(rw.SolveFailed, match="raise rtol or atol"),
        pytest.warns(rw.IllConditionedWarning),
    ):
        rw.solve(hilbert, b, rtol=1e-12)


def test_a_loose_rtol_takes_fewer_iterations():
    b = right()
    loose = rw.solve(aslinearoperator(A), b, rtol=1e-3, full_output=True)
    assert loose.iterations < rw.solve(aslinearoperator(A), b, full_output=True).iterations / 2
    assert rw.solve(aslinearoperator(A), b, tol=1e-3, full_output=True).iterations < 40


def test_matrices_that_no_krylov_method_solves_are_solved_all_the_same():
    rng = np.random.default_rng(3)
    hard = rng.standard_normal((150, 150)) * np.geomspace(1, 1e-9, 150)
    b = rng.standard_normal(150)
    solution = rw.solve(hard, b, x0=np.zeros(150), full_output=True)
    assert solution.backward_error <= solution.tolerance


def test_single_precision():
    b = right().astype(np.float32)
    x = rw.solve(A.astype(np.float32), b, x0=np.zeros(N))
    assert x.dtype == np.float32
    assert np.allclose(A @ x, b, atol=1e-4)


def test_bad_operators_are_refused():
    b = right()
    with pytest.raises(ValueError, match="not finite"):
        rw.solve(lambda v: v * np.nan, b)
    with pytest.raises(ValueError, match=f"return a vector of {N} numbers"):
        rw.solve(lambda v: v[1:], b)
    with pytest.raises(TypeError, match="pass a complex b"):
        rw.solve(lambda v: v * 1j, b)
    with pytest.raises(ValueError, match="pass b with 4 rows"):
        rw.solve(LinearOperator((4, 4), matvec=lambda v: v), b)
    with pytest.raises(ValueError, match=f"pass {N} x {N}"):
        rw.solve(A, b, M=np.eye(3))
    with pytest.raises(TypeError, match="is an operator"):
        rw.solve(aslinearoperator(A), b, nullspace="constants")
    with pytest.raises(rw.SolveFailed, match="pass a better preconditioner"):
        rw.solve(lambda v: v * 0.0, b)
    assert not rw.solve(aslinearoperator(A), np.zeros(N)).any()


def test_histories_are_told_and_drawn():
    pytest.importorskip("matplotlib")
    solution = rw.solve(aslinearoperator(A), right(), full_output=True)
    assert "IterativeSolution(accepted, cg:fp64" in repr(solution)
    assert "lower bound" in solution.explain()
    assert "cg" in solution._repr_html_()
    axes = solution.plot()
    assert axes.get_xlabel() == "iteration"
    assert len(axes.lines[0].get_xdata()) == solution.iterations + 1
    plain = rw.solve(A.toarray(), right(), full_output=True)
    assert plain.history[-1] == plain.backward_error


@pytest.mark.parametrize("scale", [1e-150, 1e150, 1e-300])
def test_huge_and_tiny_numbers_are_solved_or_named(scale):
    rng = np.random.default_rng(4)
    small = rng.standard_normal((6, 6)) + 6 * np.eye(6)
    for b in (np.ones(6), small @ np.ones(6) * scale):
        solution = rw.solve(small * scale, b, x0=np.zeros(6), full_output=True)  # or directly
        assert solution.backward_error <= solution.tolerance
        try:
            found = rw.solve(aslinearoperator(small * scale), b, full_output=True)
        except rw.SolveFailed as failure:
            assert "no answer reached" in failure.reason  # noqa: PT017
        else:
            assert found.backward_error <= found.tolerance
