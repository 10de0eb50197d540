"""Solves with torch tensors that autograd, `torch.func`, forward mode or `torch.compile` follow.

`roundwise.solve` and `factor` come here by themselves for such tensors. With ``A x = b``, and g the
gradient of x:

    A* w = g,    gradient of b: w,    gradient of A: -w x*    (where a sparse A has entries)
    A dx = db - dA x                                          (forward mode)

Both solve with the factors that x was found with, and pass the same gate. The first is itself the
differentiable solve, so that there are second derivatives, and third ones.

Factors travel through torch's graphs by a *ticket*: an integer tensor whose storage owns an entry
of `_KEPT`. When the graph lets go of the ticket, the factors are freed. A ticket without an entry
(it was copied, say), or whose A has been changed since, costs a factorization, and nothing else.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.autograd import forward_ad

from roundwise.solver.front_door import factor_system
from roundwise.solver.prepare import asked_of, checked_tolerance
from roundwise.solver.structures import SYMMETRIC, checked_name

_functorch = torch._C._functorch


class Arguments(NamedTuple):
    """What a caller asks for besides x; `roundwise.solve` explains each."""

    tol: float | None = None
    policy: Any = "default"
    accuracy: Any = "backward"
    assume_a: str | None = None  # "positive definite" or "general"; other parts are cut out before


class _Kept(NamedTuple):
    """Factors, and which numbers they are of."""

    factors: Any
    memory: tuple[Any, ...] | None
    """A's address, shape and strides, and torch's count of its changes; None if A is no tensor."""


_KEPT: dict[int, _Kept] = {}
_NUMBERS = itertools.count(1)


def follows(*operands: Any) -> bool:
    """Whether torch follows a solve with them: for gradients, by a transform, or by tracing."""
    return any(isinstance(x, Tensor) and _is_followed(x) for x in operands)


def _is_followed(x: Tensor) -> bool:
    return (
        torch.compiler.is_compiling()
        or x.requires_grad
        or _functorch.is_functorch_wrapped_tensor(x)
        or isinstance(x, torch._subclasses.FakeTensor)
        or (x.layout != torch.strided and x.device.type == "cpu")
        or x.is_conj()
        or x.is_neg()
        or (x.layout == torch.strided and forward_ad.unpack_dual(x).tangent is not None)
    )


class _Matrix(NamedTuple):
    """What a solve is with: dense A, also stacked, or the stored entries of a sparse one."""

    A: Tensor
    crow: Tensor | None  # of compressed rows
    col: Tensor | None

    @property
    def is_sparse(self) -> bool:
        return self.crow is not None

    def factors(self, asked: Arguments, columns: int) -> Any:
        """Ours, of A's own memory: autograd refuses to go back once A has been changed."""
        wanted = asked_of(asked.policy, asked.tol, asked.assume_a, asked.accuracy)
        if not self.is_sparse:
            return factor_system(wanted, _ours(self.A), columns, copy=False)
        assert self.crow is not None
        assert self.col is not None
        order = len(self.crow) - 1
        places = _ours(self.col), _ours(self.crow)
        every = _ours(self.A).reshape(-1, len(self.col))
        made = [
            factor_system(wanted, sparse.csr_array((one, *places), (order, order)), columns)
            for one in every
        ]
        return made[0] if self.A.ndim == 1 else made

    def memory(self) -> tuple[Any, ...]:
        """Which numbers it has: where they are, and torch's count of their changes."""
        version = 0 if self.A.is_inference() else self.A._version
        return self.A.data_ptr(), self.A.shape, self.A.stride(), version

    def times(self, x: Tensor, adjoint: bool) -> Tensor:
        """``A x``, or ``A* x``."""
        if not self.is_sparse:
            return (self.A.mH if adjoint else self.A) @ x
        rows = self._rows()
        out_of, into = (rows, self.col) if adjoint else (self.col, rows)
        values = (self.A.conj() if adjoint else self.A).unsqueeze(-1)
        terms = values * x.index_select(-2, out_of)
        return terms.new_zeros(x.shape).index_add(-2, into, terms)

    def outer(self, u: Tensor, v: Tensor) -> Tensor:
        """``u v*`` where A has entries."""
        if not self.is_sparse:
            return u @ v.mH
        return (u.index_select(-2, self._rows()) * v.conj().index_select(-2, self.col)).sum(-1)

    def _rows(self) -> Tensor:
        """The row of each stored entry."""
        assert self.crow is not None
        counts = self.crow.diff()
        where = torch.arange(len(counts), device=counts.device)
        return where.repeat_interleave(counts, output_size=self.A.shape[-1])


def _ours(x: Tensor) -> Any:
    """A tensor's memory as NumPy's array; on a GPU the tensor itself."""
    x = x.detach().resolve_conj().resolve_neg()
    return x.numpy() if x.device.type == "cpu" else x


def _theirs(x: Any) -> Tensor:
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else x


def _solved(
    A: Tensor,
    b: Tensor,
    ticket: Tensor | None,
    crow: Tensor | None,
    col: Tensor | None,
    adjoint: bool,
    asked: Arguments,
) -> tuple[Tensor, Tensor]:
    """``A^-1 b`` for columns b, or that of A*, and a ticket of the factors."""
    matrix = _Matrix(A, crow, col)
    kept = None if ticket is None else _KEPT.get(int(ticket))
    if kept is None or kept.memory not in (None, matrix.memory()):
        if A.numel() == 0:
            return _like_solution(A, b, crow).zero_(), torch.zeros(1, dtype=torch.int64)
        kept = _Kept(matrix.factors(asked, max(1, 2 * b.shape[-1])), matrix.memory())
    F, trans = kept.factors, "H" if adjoint else "N"
    if b.numel() == 0:
        return _like_solution(A, b, crow).zero_(), _ticket(kept)
    if isinstance(F, list):
        blocks = b if b.ndim > 2 else b.expand(len(F), *b.shape)
        x = torch.stack([_with(one, block, trans) for one, block in zip(F, blocks, strict=True)])
    elif A.ndim > 2:
        x = _theirs(F.solve(_ours(b), trans))
    else:
        x = _with(F, b, trans)
    return x, _ticket(kept)


def _with(F: Any, b: Tensor, trans: str) -> Tensor:
    """Stacked columns become columns, so that one solve has all of them."""
    if b.ndim == 2:
        return _theirs(F.solve(_ours(b), trans))
    columns = b.movedim(-2, 0)
    x = _theirs(F.solve(_ours(columns.reshape(len(columns), -1)), trans))
    return x.reshape(columns.shape).movedim(0, -2)


def _ticket(kept: _Kept) -> Tensor:
    number = next(_NUMBERS)
    owner = np.array([number])  # the tensor's storage refers to it, and nobody else does
    _KEPT[number] = kept
    weakref.finalize(owner, _KEPT.pop, number, None).atexit = False
    return torch.from_numpy(owner)


def _like_solution(A: Tensor, b: Tensor, crow: Tensor | None) -> Tensor:
    """An empty tensor that can hold x."""
    stack = A.shape[:-1] if crow is not None else A.shape[:-2]
    shape = (*torch.broadcast_shapes(stack, b.shape[:-2]), *b.shape[-2:])
    single = all(x.dtype in (torch.float32, torch.complex64) for x in (A, b))
    real, unreal = (torch.float32, torch.complex64) if single else (torch.float64, torch.complex128)
    is_complex = A.is_complex() or b.is_complex()
    return torch.empty(shape, dtype=unreal if is_complex else real, device=b.device)


def _as(gradient: Tensor, like: tuple[Any, ...]) -> Tensor:
    """A gradient in the shape and type of what it is of: broadcast parts are summed."""
    shape, dtype = like
    gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not dtype.is_complex:
        gradient = gradient.real
    return gradient.to(dtype)


def _gradients(
    matrix: _Matrix, x: Tensor, g: Tensor, adjoint: bool, of_b: Any, wanted: Any, again: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Those of A and b; `again` is the differentiable solve with A* (or A, if x is of A*)."""
    if not any(wanted):
        return None, None
    w = again(g)
    of_A = None
    if wanted[0]:
        of_A = matrix.outer(-x, w) if adjoint else matrix.outer(-w, x)
        of_A = _as(of_A, (matrix.A.shape, matrix.A.dtype))
    return of_A, _as(w, of_b) if wanted[1] else None


def _tangent(
    matrix: _Matrix,
    x: Tensor,
    dA: Tensor | None,
    db: Tensor | None,
    ticket: Tensor,
    adjoint: bool,
    asked: Arguments,
) -> Tensor:
    """dx, from those of A and b."""
    right = torch.zeros_like(x) if db is None else db
    if dA is not None:
        right = right - matrix._replace(A=dA.to(x.dtype)).times(x, adjoint)
    return _apply(matrix, right, ticket, adjoint, asked)[0]


def in_forward_mode() -> bool:
    """Whether the innermost transform is `torch.func.jvp`.

    Its derivative is then computed where it is asked for: torch lets no further level of forward
    mode follow the `jvp` of a function of autograd.
    """
    level = _functorch.peek_interpreter_stack()
    return level is not None and level.key() == _functorch.TransformType.Jvp


def check_levels() -> None:
    """Refuse what torch would get wrong, as it follows a `jvp` in no other level."""
    levels = _functorch.get_interpreter_stack() or ()
    if sum(one.key() == _functorch.TransformType.Jvp for one in levels) > 1:
        raise NotImplementedError(
            "three levels of forward mode; torch.func.grad and jacrev may be nested further"
        )


class _Solve(torch.autograd.Function):
    """`_solved`, as autograd and `torch.func` follow it."""

    @staticmethod
    def forward(A, b, ticket, crow, col, adjoint, asked):
        return _solved(A, b, ticket, crow, col, adjoint, asked)

    @staticmethod
    def setup_context(ctx, inputs, output):
        A, b, _, crow, col, ctx.adjoint, ctx.asked = inputs
        x, ticket = output
        ctx.mark_non_differentiable(ticket)
        ctx.set_materialize_grads(False)
        ctx.of_b = b.shape, b.dtype
        ctx.save_for_backward(A, x, ticket, crow, col)
        ctx.save_for_forward(A, x, ticket, crow, col)

    @staticmethod
    def backward(ctx, g, _):
        none = (None,) * 5
        if g is None:
            return None, None, *none
        A, x, ticket, crow, col = ctx.saved_tensors

        def again(g: Tensor) -> Tensor:
            return _apply(matrix, g, ticket, not ctx.adjoint, ctx.asked)[0]

        wanted, matrix = ctx.needs_input_grad[:2], _Matrix(A, crow, col)
        return *_gradients(matrix, x, g, ctx.adjoint, ctx.of_b, wanted, again), *none

    @staticmethod
    def jvp(ctx, dA, db, *_):
        check_levels()
        A, x, ticket, crow, col = ctx.saved_tensors
        matrix = _Matrix(A, crow, col)
        return _tangent(matrix, x, dA, db, ticket, ctx.adjoint, ctx.asked), None

    @staticmethod
    def vmap(info, in_dims, A, b, ticket, crow, col, adjoint, asked):
        A, b = _batched(in_dims, A, b, crow is not None)
        return _apply(_Matrix(A, crow, col), b, ticket, adjoint, asked), (0, None)


def _batched(in_dims: Any, A: Tensor, b: Tensor, is_sparse: bool) -> tuple[Tensor, Tensor]:
    """A and b with what is mapped over in front, so that they broadcast; b alone stays so."""
    if any(one is not None for one in in_dims[3:5]):
        raise NotImplementedError("vmap over patterns; map over the stored entries, or over b")
    A_dim, b_dim = in_dims[:2]
    inner = 1 if is_sparse else 2
    if b_dim is not None:
        b = b.movedim(b_dim, 0)
    if A_dim is None:  # A's own stack broadcasts against what is behind the new dimension
        if A.ndim > inner:
            while b.ndim - 1 < A.ndim:
                b = b.unsqueeze(1)
        return A, b
    A = A.movedim(A_dim, 0)
    stack_A, stack_b = A.ndim - inner - 1, b.ndim - 2 - (b_dim is not None)
    for _ in range(stack_b - stack_A):
        A = A.unsqueeze(1)
    if b_dim is None:
        return A, b
    for _ in range(stack_A - stack_b):
        b = b.unsqueeze(1)
    return A, b


@torch.library.custom_op("roundwise::solve", mutates_args=())
def solve_op(
    A: Tensor,
    b: Tensor,
    ticket: Tensor | None,
    crow: Tensor | None,
    col: Tensor | None,
    adjoint: bool,
    tol: float | None,
    policy: str,
    accuracy: str,
    assume_a: str | None,
) -> tuple[Tensor, Tensor]:
    """`_solved` as torch's graphs have it: for `torch.compile` and `torch.export`."""
    x, new = _solved(A, b, ticket, crow, col, adjoint, Arguments(tol, policy, accuracy, assume_a))
    return x.contiguous(), new


@solve_op.register_fake
def _(A, b, ticket, crow, col, *_):
    return _like_solution(A, b, crow), torch.empty(1, dtype=torch.int64)


def _keep(ctx, inputs, output):
    A, b, _, crow, col, *ctx.rest = inputs
    ctx.set_materialize_grads(False)
    ctx.of_b = b.shape, b.dtype
    ctx.save_for_backward(A, output[0], output[1], crow, col)


def _back(ctx, g, _):
    none = (None,) * 8
    if g is None:
        return None, None, *none
    A, x, ticket, crow, col = ctx.saved_tensors
    adjoint, *asked = ctx.rest

    def again(g: Tensor) -> Tensor:
        return solve_op(A, g, ticket, crow, col, not adjoint, *asked)[0]

    wanted = ctx.needs_input_grad[:2]
    return *_gradients(_Matrix(A, crow, col), x, g, adjoint, ctx.of_b, wanted, again), *none


solve_op.register_autograd(_back, setup_context=_keep)


@solve_op.register_vmap
def _(info, in_dims, A, b, ticket, crow, col, *rest):
    A, b = _batched(in_dims, A, b, crow is not None)
    return solve_op(A, b, ticket, crow, col, *rest), (0, None)


def _is_legacy(x: Tensor) -> bool:
    return _functorch.is_legacy_batchedtensor(x)


def _apply(
    matrix: _Matrix, b: Tensor, ticket: Tensor | None, adjoint: bool, asked: Arguments
) -> tuple[Tensor, Tensor]:
    """The solve that torch follows; as an operator where a function of autograd is not taken.

    That is while a graph is traced, and for `is_grads_batched`, which maps by an older vmap.
    """
    operands = (matrix.A, b)
    if torch.compiler.is_compiling() or any(map(_is_legacy, operands)):
        return solve_op(matrix.A, b, ticket, matrix.crow, matrix.col, adjoint, *asked)
    if in_forward_mode():
        (A, dA), (b, db) = forward_ad.unpack_dual(matrix.A), forward_ad.unpack_dual(b)
        if dA is not None or db is not None:
            matrix = matrix._replace(A=A)
            x, new = _apply(matrix, b, ticket, adjoint, asked)
            dx = _tangent(matrix, x, dA, db, new, adjoint, asked)
            return forward_ad.make_dual(x, dx), new
    return _Solve.apply(matrix.A, b, ticket, matrix.crow, matrix.col, adjoint, asked)


def _tensor(x: Any, like: Any) -> Tensor:
    """An operand as a tensor, on the device of the other one if it was none."""
    if isinstance(x, Tensor):
        return x
    if sparse.issparse(x):
        rows = x.tocsr()
        parts = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
        return torch.sparse_csr_tensor(*parts, size=rows.shape)
    return torch.as_tensor(x, device=like.device if isinstance(like, Tensor) else None)


def _taken_apart(A: Tensor, transposed: bool) -> _Matrix:
    """Dense A, or stored entries with their places; all of them differentiable."""
    if A.layout == torch.strided:
        return _Matrix(A.mT if transposed else A, None, None)
    if A.ndim != 2:
        raise TypeError("A is a stack of sparse matrices; solve with each of them")
    if A.layout == torch.sparse_csr and not transposed:
        return _Matrix(A.values(), A.crow_indices(), A.col_indices())
    if A.layout == torch.sparse_csc and transposed:
        return _Matrix(A.values(), A.ccol_indices(), A.row_indices())
    if A.layout in (torch.sparse_csr, torch.sparse_csc):
        is_rows = A.layout == torch.sparse_csr
        pointers = A.crow_indices() if is_rows else A.ccol_indices()
        minor = A.col_indices() if is_rows else A.row_indices()
        counts = pointers.diff()
        major = torch.arange(len(counts)).repeat_interleave(counts)
        rows, columns = (major, minor) if is_rows != transposed else (minor, major)
        values = A.values()
    elif A.layout == torch.sparse_coo:
        A = A.coalesce()
        rows, columns = A.indices().flip(0) if transposed else A.indices()
        values = A.values()
    else:
        raise TypeError(f"A is of {A.layout}; pass A.to_sparse_csr()")
    order = torch.argsort(rows * A.shape[0] + columns)
    counts = torch.bincount(rows, minlength=A.shape[0])
    crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return _Matrix(values[order], crow, columns[order])


def _meant(A: Tensor, name: str | None, lower: bool) -> Tensor:
    """The entries that `assume_a` says are there; others have no part in gradients."""
    if name in SYMMETRIC:
        one = A.tril(-1) if lower else A.triu(1)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        if name != "symmetric" and A.is_complex():
            diagonal = diagonal.real.to(A.dtype)
        other = one.mT if name == "symmetric" else one.mH
        return one + other + torch.diag_embed(diagonal)
    if name in ("upper triangular", "diagonal", "tridiagonal"):
        A = A.triu(-1 if name == "tridiagonal" else 0)
    if name in ("lower triangular", "diagonal", "tridiagonal"):
        A = A.tril(1 if name == "tridiagonal" else 0)
    return A


def _prepared(
    A: Any,
    b: Any,
    tol: Any,
    policy: Any,
    assume_a: Any,
    accuracy: Any,
    lower: bool,
    transposed: bool = False,
) -> tuple[_Matrix, Arguments]:
    name = None if assume_a is None else checked_name(assume_a)
    A = _tensor(A, b)
    if A.layout == torch.strided:
        A = _meant(A, name, lower)
    said = name if name in ("positive definite", "general") else None
    asked = Arguments(checked_tolerance(tol), policy, accuracy, said)
    return _taken_apart(A, transposed), asked


def _checked(matrix: _Matrix, b: Tensor) -> None:
    """Shapes, before torch's own errors, which would not name the fix."""
    n = len(matrix.crow) - 1 if matrix.crow is not None else matrix.A.shape[-1]
    if not matrix.is_sparse and (matrix.A.ndim < 2 or matrix.A.shape[-2] != n):
        raise np.linalg.LinAlgError(f"A has shape {tuple(matrix.A.shape)}; pass square matrices")
    rows = b.shape[0] if b.ndim == 1 else b.shape[-2] if b.ndim else 0
    if rows != n:
        raise ValueError(f"b has {rows} rows, A has {n}; pass b with {n} rows")


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
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """`roundwise.solve` where torch follows; the same arguments."""
    if full_output or device is not None:
        raise TypeError(
            "torch follows this solve, which gives a tensor and nothing else, where A and b are; "
            "leave out full_output= and device=, or pass A.detach() and b.detach()"
        )
    b = _tensor(b, A)
    matrix, asked = _prepared(A, b, tol, policy, assume_a, accuracy, lower, transposed)
    _checked(matrix, b)
    columns = b.unsqueeze(-1) if b.ndim == 1 else b
    x = _apply(matrix, columns, None, False, asked)[0]
    return x.squeeze(-1) if b.ndim == 1 else x


class FollowedFactorization:
    """Factors of a tensor A: solves with them have gradients for A and b.

    `roundwise.factor` makes it. Nothing is copied: as with torch's own operators, A may not be
    changed until the last gradient is computed.

    Parameters
    ----------
    A, asked
        What `roundwise.factor` passes; call that.

    Examples
    --------
    >>> import torch
    >>> A = torch.tensor([[4.0, 1.0], [2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    >>> F = rw.factor(A)
    >>> F.solve(torch.tensor([1.0, 2.0], dtype=torch.float64)).sum().backward()
    >>> A.grad
    tensor([[-0.0200, -0.1200],
            [-0.0200, -0.1200]], dtype=torch.float64)
    """

    def __init__(self, matrix: _Matrix, asked: Arguments, columns: int) -> None:
        self._matrix, self._asked = matrix, asked
        order = len(matrix.crow) - 1 if matrix.crow is not None else matrix.A.shape[-1]
        none = matrix.A.new_zeros((*matrix.A.shape[:-2], order, 0))
        self._ticket = _apply(matrix, none, None, False, asked)[1]
        self._order, self._seen = order, matrix.memory()

    @property
    def shape(self) -> tuple[int, ...]:
        stack = () if self._matrix.is_sparse else self._matrix.A.shape[:-2]
        return (*stack, self._order, self._order)

    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Tensor:
        """``A^-1 b`` as `Factorization.solve`: a tensor with gradients."""
        if full_output:
            raise TypeError(
                "F.solve of a tensor with gradients gives x alone; leave out full_output"
            )
        if self._matrix.memory() != self._seen:
            raise RuntimeError("A was changed in place after factor(A); call factor(A) again")
        b = _tensor(b, self._matrix.A)
        _checked(self._matrix, b)
        return _solved_again(self._matrix, b, self._ticket, trans, self._asked)


def factor_followed(
    A: Any,
    *,
    tol: float | None = None,
    policy: Any = "default",
    assume_a: Any = None,
    columns: int = 1,
    accuracy: Any = "backward",
    device: Any = None,
    lower: bool = False,
) -> FollowedFactorization:
    """`roundwise.factor` where torch follows; the same arguments."""
    if device is not None:
        raise TypeError("torch follows A, which is factorized where it is; leave out device=")
    matrix, asked = _prepared(A, None, tol, policy, assume_a, accuracy, lower)
    return FollowedFactorization(matrix, asked, columns)


def solve_with(F: Any, b: Tensor, trans: Any) -> Tensor:
    """``F.solve(b)`` for factors of a matrix that is no tensor: b alone has a gradient."""
    stack = F.shape[:-2]
    A = torch.empty((*stack, 0, 0), dtype=torch.float64)  # stands for the matrix, which F has
    ticket = _ticket(_Kept(F, None))
    return _solved_again(_Matrix(A, None, None), b, ticket, trans, Arguments())


def _solved_again(
    matrix: _Matrix, b: Tensor, ticket: Tensor, trans: Any, asked: Arguments
) -> Tensor:
    """x by kept factors, for what `Factorization.solve` takes as `trans`."""
    if trans not in ("N", "T", "H", 0, 1, 2):
        raise ValueError(f"trans = {trans!r}; choose 'N' or 0 for A, 'T' or 1, 'H' or 2")
    columns = b.unsqueeze(-1) if b.ndim == 1 else b
    adjoint = trans not in ("N", 0)
    plain = trans in ("T", 1)  # A' x = b says that A* conj(x) = conj(b)
    columns = columns.conj() if plain else columns
    x = _apply(matrix, columns, ticket, adjoint, asked)[0]
    x = x.conj() if plain else x
    return x.squeeze(-1) if b.ndim == 1 else x


def lstsq_followed(A: Any, b: Any, rcond: Any = None, **asked: Any) -> Any:
    """`roundwise.lstsq` where torch follows."""
    from roundwise.integrations import torch_lstsq  # which needs this module

    return torch_lstsq.lstsq_followed(A, b, rcond, **asked)
