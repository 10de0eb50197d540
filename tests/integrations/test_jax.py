"""Solves that JAX follows: derivatives, transforms, sparse matrices, factors, lineax."""

from functools import partial

import numpy as np
import pytest

import roundwise as rw

jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import sparse  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from roundwise.integrations import jax as ours  # noqa: E402

RNG = np.random.default_rng(35)


@pytest.fixture(autouse=True)
def _in_double():
    with jax.enable_x64(True):
        yield


def drawn(*shape, dtype=np.float64, shift=0.0):
    x = RNG.standard_normal(shape)
    if dtype == np.complex128:
        x = x + 1j * RNG.standard_normal(shape)
    return jnp.asarray(x + (shift * np.eye(shape[-1]) if shift else 0))


def true(A, b):
    return jnp.linalg.solve(A, b[..., None])[..., 0] if b.ndim == 1 else jnp.linalg.solve(A, b)


DENSE = {
    "vector": ((4, 4), (4,), np.float64),
    "columns": ((4, 4), (4, 2), np.float64),
    "stack": ((2, 3, 3), (2, 3, 2), np.float64),
    "one A for a stack": ((3, 3), (2, 3, 2), np.float64),
    "complex": ((3, 3), (3, 2), np.complex128),
}
followed = jax.jit(lambda A, b: rw.solve(A, b))


@pytest.mark.parametrize("case", DENSE)
def test_derivatives(case):
    shape_A, shape_b, dtype = DENSE[case]
    A, b = drawn(*shape_A, dtype=dtype, shift=3.0), drawn(*shape_b, dtype=dtype)
    np.testing.assert_allclose(followed(A, b), true(A, b), rtol=1e-12)
    check_grads(followed, (A, b), order=2, modes=("fwd", "rev"))


@pytest.mark.parametrize("trans", ["N", "T", "H"])
def test_derivatives_with_factors(trans):
    A, b = drawn(3, 3, dtype=np.complex128, shift=3.0), drawn(3, 2, dtype=np.complex128)
    check_grads(lambda A, b: ours.factor(A).solve(b, trans), (A, b), order=2)
    F = rw.factor(np.asarray(A))
    check_grads(jax.jit(lambda b: F.solve(b, trans)), (b,), order=1)


def stepped(solve, x, A):
    return solve(A, x), x


def test_transforms():
    A, B = drawn(5, 3, 3, shift=3.0), drawn(5, 3)
    each = jax.vmap(true)(A, B)
    np.testing.assert_allclose(jax.vmap(followed)(A, B), each, rtol=1e-12)
    one = jax.vmap(followed, (None, 0))(A[0], B)
    np.testing.assert_allclose(one, jax.vmap(true, (None, 0))(A[0], B), rtol=1e-12)
    nested = jax.vmap(jax.vmap(followed, (None, 0)), (0, None))
    np.testing.assert_allclose(
        nested(A, B), jax.vmap(jax.vmap(true, (None, 0)), (0, None))(A, B), rtol=1e-12
    )
    both = jax.vmap(jax.vmap(followed, (0, None)), (None, 0))
    np.testing.assert_allclose(
        both(A, B), jax.vmap(jax.vmap(true, (0, None)), (None, 0))(A, B), rtol=1e-12
    )

    def loss(solve):
        return lambda A, b: jnp.sin(solve(A, b)).sum()

    for transform in (
        lambda f: jax.vmap(jax.grad(loss(f), (0, 1))),
        lambda f: lambda A, B: jax.hessian(loss(f))(A[0], B[0]),
        lambda f: lambda A, B: jax.jacfwd(jax.jacfwd(f))(A[0], B[0]),
        lambda f: lambda A, B: jax.grad(lambda A: jax.vmap(f, (None, 0))(A, B).sum())(A[0]),
        lambda f: lambda A, B: jax.lax.scan(partial(stepped, f), B[0], A),
    ):
        mine, other = jax.jit(transform(followed))(A, B), transform(true)(A, B)
        for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


PLACES = jnp.array([[0, 0], [0, 1], [1, 1], [2, 0], [2, 2]])


@pytest.mark.parametrize("form", [sparse.BCOO, sparse.BCSR])
def test_sparse(form):
    data, b = jnp.array([4.0, 1.0, 2.0, 3.0, 5.0]), drawn(3, 2)

    def made(data):
        A = sparse.BCOO((data, PLACES), shape=(3, 3))
        return A if form is sparse.BCOO else sparse.BCSR.from_bcoo(A)

    def solved(data, b):
        return rw.solve(made(data), b)

    np.testing.assert_allclose(solved(data, b), true(made(data).todense(), b), rtol=1e-12)
    check_grads(jax.jit(solved), (data, b), order=2)
    check_grads(lambda data, b: rw.factor(made(data)).solve(b, "T"), (data, b), order=1)
    many = jnp.stack([data, 2 * data])
    np.testing.assert_allclose(
        jax.vmap(solved, (0, None))(many, b), jnp.stack([solved(one, b) for one in many])
    )


def test_factors_are_kept_between_primal_and_adjoint(monkeypatch):
    made, real = [], ours.factor_system
    monkeypatch.setattr(ours, "factor_system", lambda *a, **k: made.append(0) or real(*a, **k))
    A, b = drawn(40, 40, shift=9.0), drawn(40)
    jax.jit(jax.grad(lambda A, b: jnp.sin(rw.solve(A, b)).sum(), (0, 1)))(A, b)[
        0
    ].block_until_ready()
    assert len(made) == 1
    F = ours.factor(A)
    jax.jit(lambda F, b: F.solve(b) + F.solve(b, "T"))(F, b).block_until_ready()
    assert len(made) == 2


def test_factors_that_have_gone_are_made_again(monkeypatch):
    monkeypatch.setattr(ours, "MEMORY", 0)
    A, b = drawn(3, 3, shift=3.0), drawn(3)
    F, _ = ours.factor(A), ours.factor(2 * A)
    np.testing.assert_allclose(F.solve(b), true(A, b), rtol=1e-12)


def test_assume_a():
    B = drawn(4, 4)
    A, b = B @ B.T + 4 * jnp.eye(4), drawn(4)
    for name in ("pos", "symmetric", "upper triangular", "tridiagonal"):
        check_grads(
            lambda A, b, n=name: jax.jit(rw.solve, static_argnames="assume_a")(A, b, assume_a=n),
            (A, b),
            order=1,
        )
    gradient = jax.grad(lambda A: rw.solve(A, b, assume_a="pos").sum())(A)
    assert not jnp.tril(gradient, -1).any()


def test_other_operands():
    A, b = drawn(3, 3, shift=3.0), drawn(3)
    assert followed(A.astype(jnp.float32), b.astype(jnp.float32)).dtype == jnp.float32
    np.testing.assert_allclose(jax.jit(lambda b: rw.solve(np.asarray(A), b))(b), true(A, b))
    ints = jax.jit(rw.solve)(jnp.array([[2, 1], [1, 3]]), jnp.array([1, 2]))
    np.testing.assert_allclose(ints, [0.2, 0.6], rtol=1e-6)
    assert followed(jnp.zeros((0, 0)), jnp.zeros(0)).shape == (0,)
    with pytest.raises(ValueError, match="pass b with 3 rows"):
        followed(A, drawn(4))
    with pytest.raises(TypeError, match="full_output"):
        jax.jit(lambda A: rw.solve(A, b, full_output=True))(A)
    with pytest.raises(Exception, match="singular"):
        followed(jnp.zeros((3, 3)), b).block_until_ready()
    with pytest.raises(TypeError, match="outside"):
        jax.jit(rw.lstsq)(A, b)
