"""Roundwise as a solver of lineax: what lineax's own tests ask of a solver."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")
lx = pytest.importorskip("lineax", reason="lineax is not installed: pip install lineax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from roundwise.integrations.lineax import Roundwise  # noqa: E402

RNG = np.random.default_rng(35)
TAGS = {
    "general": None,
    "symmetric": lx.symmetric_tag,
    "positive": lx.positive_semidefinite_tag,
    "negative": lx.negative_semidefinite_tag,
    "upper": lx.upper_triangular_tag,
    "tridiagonal": lx.tridiagonal_tag,
}


@pytest.fixture(autouse=True)
def _in_double():
    with jax.enable_x64(True):
        yield


def drawn(tag, dtype=np.float64):
    A = RNG.standard_normal((3, 3)).astype(dtype)
    if dtype == np.complex128:
        A = A + 1j * RNG.standard_normal((3, 3))
    A = A + 4 * np.eye(3)
    if tag in ("positive", "negative"):
        A = A @ A.conj().T * (1 if tag == "positive" else -1)
    if tag == "symmetric":
        A = A + A.T
    return jnp.asarray(
        np.triu(A) if tag == "upper" else np.triu(np.tril(A, 1), -1) if tag == "tridiagonal" else A
    )


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("tag", TAGS)
def test_solves(tag, dtype):
    A, b = drawn(tag, dtype), jnp.asarray(RNG.standard_normal(3).astype(dtype))
    operator = lx.MatrixLinearOperator(A, TAGS[tag] or ())
    solve = jax.jit(lambda b: lx.linear_solve(operator, b, Roundwise()).value)
    np.testing.assert_allclose(solve(b), jnp.linalg.solve(A, b), rtol=1e-10)
    solver, x = Roundwise(), jnp.linalg.solve(A, b)
    state = solver.init(operator, {})
    for change, matrix in ((solver.transpose, A.T), (solver.conj, A.conj())):
        other, options = change(state, {})
        found = solver.compute(other, matrix @ x, options)[0]
        np.testing.assert_allclose(found, x, rtol=1e-10)


def test_derivatives_and_maps():
    A, b = drawn("general"), jnp.asarray(RNG.standard_normal(3))

    def solved(A, b):
        return lx.linear_solve(lx.MatrixLinearOperator(A), b, Roundwise()).value

    check_grads(jax.jit(solved), (A, b), order=2)
    many, B = jnp.stack([A, A.T]), jnp.stack([b, 2 * b])
    each = jnp.stack([jnp.linalg.solve(*one) for one in zip(many, B, strict=True)])
    np.testing.assert_allclose(jax.vmap(solved)(many, B), each, rtol=1e-10)
    np.testing.assert_allclose(
        jax.vmap(solved, (None, 0))(A, B), jnp.linalg.solve(A, B.T).T, rtol=1e-10
    )


def test_pytrees():
    """Structured operators, whose vectors are pytrees."""
    parts = {"u": jnp.ones(2), "v": jnp.ones(1)}

    def product(tree):
        return {"u": 2 * tree["u"] + tree["v"], "v": 3 * tree["v"] + tree["u"].sum()}

    operator = lx.FunctionLinearOperator(product, jax.eval_shape(lambda: parts))
    x = lx.linear_solve(operator, product(parts), Roundwise()).value
    for name, part in parts.items():
        np.testing.assert_allclose(x[name], part, rtol=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match="square"):
        lx.linear_solve(lx.MatrixLinearOperator(jnp.ones((3, 2))), jnp.ones(3), Roundwise())
