"""Solves that JAX follows: under `jit`, `vmap`, `grad`, `jvp` and their nestings.

`roundwise.solve` and `factor` come here by themselves for tracers and for BCOO and BCSR matrices.
All rests on one primitive, ``solve_p``: columns b to ``A^-1 b``, or to that of A', by a call from
compiled code to Python, in which Roundwise solves. It is linear in b, so that JAX makes all
derivatives from two rules:

    A dx = db - dA x            (jvp)
    the transpose of A^-1 is that of A', with the same factors

Where a derivative will need them, factors are kept under a number, the *ticket*, that travels with
A through JAX's programs. XLA frees nothing of ours, so that only the latest are kept (`MEMORY`); a
ticket whose factors have gone costs a factorization, and nothing else.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jax_sparse
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from scipy import sparse

from roundwise.solver.front_door import factor_system, solve
from roundwise.solver.prepare import asked_of, checked_tolerance
from roundwise.solver.structures import SYMMETRIC, checked_name

MEMORY = 2**29
"""Bytes of matrices and factors that are kept for derivatives; the latest are, however large. A
taste: a chain of 50 solves with n = 800 fits."""


class Wanted(NamedTuple):
    """What a caller asks for besides x; `roundwise.solve` explains each."""

    tol: float | None = None
    policy: str = "default"
    accuracy: str = "backward"
    assume_a: str | None = None
    factors: Any = None  # those of a matrix that is no array of JAX, which A then only stands for


class _Store:
    """The latest factors, by ticket."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._numbers, self._lock, self._bytes = itertools.count(1), threading.Lock(), 0

    def keep(self, factors: Any, size: int) -> int:
        with self._lock:
            number = next(self._numbers) % 2**31
            self._kept[number] = factors, size
            self._bytes += size
            while self._bytes > MEMORY and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
            return number

    def find(self, number: int) -> Any:
        with self._lock:
            return self._kept.get(number, (None, 0))[0]


STORE = _Store()


def follows(*operands: Any) -> bool:
    """Whether JAX follows a solve with them: a tracer, or one of its sparse matrices."""
    return any(isinstance(x, jax.core.Tracer | jax_sparse.JAXSparse) for x in operands)


def _called(
    A: Any, b: Any, ticket: Any, *places: Any, trans: str, keeps: bool, wanted: Wanted
) -> tuple[Any, Any]:
    """What compiled code calls: x, and the ticket of the factors, 0 if they were not kept."""
    A, b, number = np.asarray(A), np.asarray(b), int(ticket)
    F = wanted.factors or (STORE.find(number) if number else None)
    if A.size == 0 and F is None:
        return np.zeros(b.shape, b.dtype), np.int32(0)
    if (
        F is None
        and not keeps
        and not places
        and wanted.assume_a is None
        and wanted.factors is None
    ):
        given: Any = {"tol": wanted.tol, "policy": wanted.policy, "accuracy": wanted.accuracy}
        if b.size:
            return _as(b, solve(A, b, transposed=trans == "T", **given)), np.int32(0)
    if F is None:
        asked = asked_of(wanted.policy, wanted.tol, wanted.assume_a, wanted.accuracy, False, False)
        columns = max(1, 2 * b.shape[-1])
        if places:
            rows, cols = (np.asarray(one) for one in places)
            shape = (b.shape[-2], b.shape[-2])
            every = A.reshape(-1, A.shape[-1])
            made = [sparse.csr_array((one, (rows, cols)), shape) for one in every]
            F = [factor_system(asked, one, columns) for one in made]
            F = F[0] if A.ndim == 1 else F
        else:
            F = factor_system(asked, A, columns)  # of a copy: XLA uses A's memory again
        number = STORE.keep(F, 2 * A.nbytes) if keeps else 0
    if b.size == 0:
        return np.zeros(b.shape, b.dtype), np.int32(number)
    if isinstance(F, list):
        x = np.stack([one.solve(block, trans) for one, block in zip(F, b, strict=True)])
    else:
        x = F.solve(b, trans)
    return _as(b, x), np.int32(number)


def _as(b: Any, x: Any) -> Any:
    return np.ascontiguousarray(x, dtype=b.dtype)


solve_p = Primitive("roundwise_solve")
solve_p.multiple_results = True


@lru_cache(maxsize=256)
def _compiled(rest: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(partial(solve_p.bind, **dict(rest)))


@solve_p.def_impl
def _(*operands, **rest):
    return _compiled(tuple(sorted(rest.items())))(*operands)


@solve_p.def_abstract_eval
def _(A, b, ticket, *places, **rest):
    return b, ticket


def _lowered(ctx, *operands, **rest):
    results, _, _ = mlir.emit_python_callback(
        ctx,
        partial(_called, **rest),
        None,
        operands,
        ctx.avals_in,
        ctx.avals_out,
        has_side_effect=False,
        returns_token=False,
    )
    return results


mlir.register_lowering(solve_p, _lowered)


def _times(A: Any, x: Any, places: Any, trans: str) -> Any:
    """``A x``, or ``A' x``; A may have only stored entries."""
    if not places:
        return (A.mT if trans == "T" else A) @ x
    into, out_of = places if trans == "N" else places[::-1]
    terms = A[..., :, None] * x[..., out_of, :]
    return jnp.zeros_like(terms, shape=x.shape).at[..., into, :].add(terms)


def _jvp(primals, tangents, *, trans, keeps, wanted):
    A, b, ticket, *places = primals
    dA, db = tangents[:2]
    rest = {"trans": trans, "keeps": True, "wanted": wanted}
    x, kept = solve_p.bind(A, b, ticket, *places, **rest)
    right = None if type(db) is ad.Zero else db
    if type(dA) is not ad.Zero:
        moved = _times(dA, x, places, trans)
        right = -moved if right is None else right - moved
    no_tangent = ad.Zero(jax.typeof(kept).to_tangent_aval())
    if right is None:
        return [x, kept], [ad.Zero(jax.typeof(x).to_tangent_aval()), no_tangent]
    dx, _ = solve_p.bind(A, right, kept, *places, **rest)
    return [x, kept], [dx, no_tangent]


ad.primitive_jvps[solve_p] = _jvp


def _transposed(cotangents, A, b, ticket, *places, trans, keeps, wanted):
    g = cotangents[0]
    none = [None] * (1 + len(places))
    if type(g) is ad.Zero:
        return [None, ad.Zero(b.aval), *none]
    other = "N" if trans == "T" else "T"
    w, _ = solve_p.bind(A, g, ticket, *places, trans=other, keeps=keeps, wanted=wanted)
    return [None, w, *none]


ad.primitive_transposes[solve_p] = _transposed


def _batched(operands, dims, *, trans, keeps, wanted):
    A, b, ticket, *places = operands
    A_dim, b_dim = dims[:2]
    mapped = None  # JAX's sign of an operand that is not mapped over
    if any(one is not mapped for one in dims[3:]):
        raise NotImplementedError("vmap over patterns; map over the stored entries, or over b")
    rest = {"trans": trans, "keeps": keeps, "wanted": wanted}
    if A_dim is mapped and A.ndim == (1 if places else 2):
        if b_dim is mapped:  # the ticket alone: A's factors, each time
            x, kept = solve_p.bind(A, b, ticket[0], *places, **rest)
            return [x, kept], [mapped, mapped]
        columns = jnp.moveaxis(b, b_dim, -1)  # (n, k, m): one solve with all of them
        flat = columns.reshape(*columns.shape[:-2], -1)
        x, kept = solve_p.bind(A, flat, _one(ticket, dims[2]), *places, **rest)
        return [x.reshape(columns.shape), kept], [x.ndim, mapped]
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not mapped)
    A = jnp.broadcast_to(A, (size, *A.shape)) if A_dim is mapped else jnp.moveaxis(A, A_dim, 0)
    b = jnp.broadcast_to(b, (size, *b.shape)) if b_dim is mapped else jnp.moveaxis(b, b_dim, 0)
    if A.ndim > (2 if places else 3):  # one stack of all
        inner = 1 if places else 2
        flat_A = A.reshape(-1, *A.shape[A.ndim - inner :])
        x, kept = solve_p.bind(flat_A, b.reshape(-1, *b.shape[-2:]), ticket, *places, **rest)
        return [x.reshape(b.shape), kept], [0, mapped]
    x, kept = solve_p.bind(A, b, _one(ticket, dims[2]), *places, **rest)
    return [x, kept], [0, mapped]


def _one(ticket: Any, dim: Any) -> Any:
    """A ticket that is mapped over is the same for all."""
    return ticket if dim is None else jnp.take(ticket, 0, axis=dim)


batching.primitive_batchers[solve_p] = _batched


class _Matrix(NamedTuple):
    """Dense A, or stored entries with their rows and columns."""

    A: Any
    places: tuple[Any, ...]
    order: int


def _taken_apart(A: Any, transposed: bool) -> _Matrix:
    if isinstance(A, jax_sparse.BCSR):
        A = A.to_bcoo()
    if isinstance(A, jax_sparse.BCOO):
        if A.n_batch or A.n_dense or A.ndim != 2 or A.shape[0] != A.shape[1]:
            raise ValueError(
                f"A is a {type(A).__name__} of shape {A.shape}; pass one square matrix"
            )
        rows, columns = A.indices[:, 0], A.indices[:, 1]
        return _Matrix(A.data, (columns, rows) if transposed else (rows, columns), A.shape[0])
    if isinstance(A, jax_sparse.JAXSparse):
        raise TypeError(f"A is of {type(A).__name__}; pass a BCOO or BCSR")
    A = jnp.asarray(A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise np.linalg.LinAlgError(f"A has shape {A.shape}; pass square matrices")
    return _Matrix(A.mT if transposed else A, (), A.shape[-1])


def _meant(A: Any, name: str | None, lower: bool) -> Any:
    """The entries that `assume_a` says are there; others have no part in gradients."""
    if name in SYMMETRIC:
        one = jnp.tril(A, -1) if lower else jnp.triu(A, 1)
        diagonal = jnp.diagonal(A, axis1=-2, axis2=-1)
        diagonal = diagonal if name == "symmetric" else diagonal.real.astype(A.dtype)
        other = one.mT if name == "symmetric" else one.mT.conj()
        return one + other + diagonal[..., None] * jnp.eye(A.shape[-1], dtype=A.dtype)
    if name in ("upper triangular", "diagonal", "tridiagonal"):
        A = jnp.triu(A, -1 if name == "tridiagonal" else 0)
    if name in ("lower triangular", "diagonal", "tridiagonal"):
        A = jnp.tril(A, 1 if name == "tridiagonal" else 0)
    return A


def _prepared(
    A: Any,
    tol: Any,
    policy: Any,
    assume_a: Any,
    accuracy: Any,
    lower: bool,
    transposed: bool = False,
) -> tuple[_Matrix, Wanted]:
    if not isinstance(policy, str):
        raise TypeError("JAX follows this solve: pass policy as text")
    name = None if assume_a is None else checked_name(assume_a)
    if not isinstance(A, jax_sparse.JAXSparse):
        A = _meant(jnp.asarray(A), name, lower)
    said = name if name in ("positive definite", "general") else None
    wanted = Wanted(checked_tolerance(tol), policy, accuracy, said)
    return _taken_apart(A, transposed), wanted


def _bound(matrix: _Matrix, b: Any, ticket: Any, trans: str, keeps: bool, wanted: Wanted) -> Any:
    """x for a vector or columns b, whose stack is broadcast against A's."""
    b = jnp.asarray(b)
    rows = b.shape[0] if b.ndim == 1 else b.shape[-2] if b.ndim else 0
    if rows != matrix.order:
        raise ValueError(
            f"b has {rows} rows, A has {matrix.order}; pass b with {matrix.order} rows"
        )
    columns = b[:, None] if b.ndim == 1 else b
    A = matrix.A
    dtype = jnp.result_type(A, columns, jnp.float32)
    dtype = jnp.promote_types(dtype, jnp.float32)
    A, columns = A.astype(dtype), columns.astype(dtype)
    inner = 1 if matrix.places else 2
    own = A.shape[: A.ndim - inner]
    stack = np.broadcast_shapes(own, columns.shape[:-2])
    given = {"trans": trans, "keeps": keeps, "wanted": wanted}
    if not own and stack:  # one A: a stack of b are more columns
        moved = jnp.moveaxis(columns, -2, 0)
        x = solve_p.bind(A, moved.reshape(len(moved), -1), ticket, *matrix.places, **given)[0]
        x = jnp.moveaxis(x.reshape(moved.shape), 0, -2)
    elif stack:
        every = jnp.broadcast_to(A, (*stack, *A.shape[A.ndim - inner :]))
        flat = every.reshape(-1, *A.shape[A.ndim - inner :])
        blocks = jnp.broadcast_to(columns, (*stack, *columns.shape[-2:]))
        x = solve_p.bind(flat, blocks.reshape(-1, *columns.shape[-2:]), ticket, **given)[0]
        x = x.reshape(blocks.shape)
    else:
        x = solve_p.bind(A, columns, ticket, *matrix.places, **given)[0]
    return x[..., 0] if b.ndim == 1 else x


NO_TICKET = np.int32(0)


def solve_followed(
    A: Any,
    b: Any,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: bool = False,
    assume_a: Any = None,
    accuracy: Any = "backward",
    device: Any = None,
    lower: bool = False,
    transposed: bool = False,
) -> Any:
    """`roundwise.solve` where JAX follows; the same arguments."""
    if full_output or device is not None:
        raise TypeError(
            "JAX follows this solve, which gives an array and nothing else; leave out full_output= "
            "and device=, or call it outside of jax.jit, grad and vmap"
        )
    matrix, wanted = _prepared(A, tol, policy, assume_a, accuracy, lower, transposed)
    return _bound(matrix, b, NO_TICKET, "N", False, wanted)


@jax.tree_util.register_pytree_node_class
class FollowedFactorization:
    """Factors of an array of JAX: a pytree, which passes through `jit`, `vmap` and `grad`.

    `roundwise.integrations.jax.factor` makes it, and so does `roundwise.factor` of a tracer.

    Parameters
    ----------
    matrix, ticket, wanted
        What `factor` passes; call that.
    """

    def __init__(self, matrix: _Matrix, ticket: Any, wanted: Wanted) -> None:
        self._matrix, self._ticket, self._wanted = matrix, ticket, wanted

    def tree_flatten(self) -> Any:
        children = (self._matrix.A, self._matrix.places, self._ticket)
        return children, (self._matrix.order, self._wanted)

    @classmethod
    def tree_unflatten(cls, rest: Any, children: Any) -> FollowedFactorization:
        A, places, ticket = children
        return cls(_Matrix(A, places, rest[0]), ticket, rest[1])

    @property
    def shape(self) -> tuple[int, ...]:
        stack = () if self._matrix.places else self._matrix.A.shape[:-2]
        return (*stack, self._matrix.order, self._matrix.order)

    def solve(self, b: Any, trans: Any = "N") -> Any:
        """``A^-1 b`` as `Factorization.solve`."""
        if trans not in ("N", "T", "H", 0, 1, 2):
            raise ValueError(f"trans = {trans!r}; choose 'N' or 0 for A, 'T' or 1, 'H' or 2")
        if trans in ("H", 2):
            return jnp.conj(self.solve(jnp.conj(jnp.asarray(b)), "T"))
        name = "N" if trans in ("N", 0) else "T"
        return _bound(self._matrix, b, self._ticket, name, True, self._wanted)


def factor(
    A: Any,
    *,
    tol: float | None = None,
    policy: str = "default",
    assume_a: Any = None,
    columns: int = 1,
    accuracy: str = "backward",
    device: Any = None,
    lower: bool = False,
) -> FollowedFactorization:
    """`roundwise.factor` where JAX follows; the same arguments, for one matrix.

    Parameters
    ----------
    A, tol, policy, assume_a, columns, accuracy, lower
        As for `roundwise.factor`; A may be a BCOO or BCSR matrix.
    device
        Not taken: A is factorized where it is.

    Returns
    -------
    FollowedFactorization

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from roundwise.integrations.jax import factor
    >>> F = factor(jnp.array([[4.0, 1.0], [2.0, 3.0]]))
    >>> jax.jit(lambda F, b: F.solve(b))(F, jnp.array([1.0, 2.0])).round(3)
    Array([0.1, 0.6], dtype=float32)
    """
    if device is not None:
        raise TypeError("JAX follows A, which is factorized where it is; leave out device=")
    matrix, wanted = _prepared(A, tol, policy, assume_a, accuracy, lower)
    dtype = jnp.promote_types(matrix.A.dtype, jnp.float32)
    matrix = matrix._replace(A=matrix.A.astype(dtype))
    own = matrix.A.shape[:-1] if matrix.places else matrix.A.shape[:-2]
    if own:
        raise ValueError(
            f"A is a stack of shape {own}; pass one matrix, under jax.vmap for several"
        )
    none = jnp.zeros((matrix.order, 1), dtype)
    _, ticket = solve_p.bind(
        jax.lax.stop_gradient(matrix.A),
        none,
        NO_TICKET,
        *matrix.places,
        trans="N",
        keeps=True,
        wanted=wanted,
    )
    return FollowedFactorization(matrix, ticket, wanted)


factor_followed = factor


def solve_with(F: Any, b: Any, trans: Any) -> Any:
    """``F.solve(b)`` for factors of a matrix that is no array of JAX; b alone has a gradient."""
    if len(F.shape) > 2:
        raise NotImplementedError(
            "stacked factors under jax.jit; factor each, or pass A as an array"
        )
    stands_for = jnp.zeros((0, 0), F.dtype)
    made = FollowedFactorization(_Matrix(stands_for, (), F.shape[0]), NO_TICKET, Wanted(factors=F))
    return made.solve(b, trans)


def lstsq_followed(*operands: Any, **others: Any) -> Any:
    """`roundwise.lstsq` where JAX follows."""
    raise TypeError(
        "least squares are not for jax.jit, grad or vmap: call it outside of them, or through "
        "jax.pure_callback"
    )
