"""Least squares with tensors that torch follows.

With x = A^+ b (A^+ the pseudoinverse), r = b - A x, and g the gradient of x (Golub and Pereyra,
SIAM J. Numer. Anal. 10, 1973):

    w = (A^+)' g,   z = A^+ w,   y = (A^+)' x
    gradient of b:  w
    gradient of A:  r z' - w x' + y (g - A' w)'

and in forward mode

    dx = A^+ (db - dA x + (A^+)' dA' r) + (I - A^+ A) dA' y

as long as the rank of A does not change. The terms with y vanish where the columns of A are
independent. Each application of A^+ is a least squares solve that passes the gate of `lstsq`; it is
itself differentiable, so that there are second derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from roundwise.integrations.torch import _as, _ours, _tensor, _theirs, check_levels, in_forward_mode
from roundwise.solver.least_squares import lstsq


def _solved(A: Tensor, b: Tensor, rcond: Any, tol: Any, policy: Any) -> tuple[Tensor, Tensor]:
    """x for columns b, and the smallest rank in a stack."""
    stack = torch.broadcast_shapes(A.shape[:-2], b.shape[:-2])
    every_A = A.expand(*stack, *A.shape[-2:]).reshape(-1, *A.shape[-2:])
    every_b = b.expand(*stack, *b.shape[-2:]).reshape(-1, *b.shape[-2:])
    found = [
        lstsq(_ours(one), _ours(block), rcond, tol=tol, policy=policy, full_output=True)
        for one, block in zip(every_A, every_b, strict=True)
    ]
    if not found:
        return _like_solution(A, b), torch.tensor(min(A.shape[-2:]))
    x = torch.stack([_theirs(one.x) for one in found]).reshape(*stack, A.shape[-1], b.shape[-1])
    return x, torch.tensor(min(one.rank for one in found))


def _like_solution(A: Tensor, b: Tensor) -> Tensor:
    stack = torch.broadcast_shapes(A.shape[:-2], b.shape[:-2])
    single = A.dtype == b.dtype == torch.float32
    dtype = torch.float32 if single else torch.float64
    return torch.empty((*stack, A.shape[-1], b.shape[-1]), dtype=dtype, device=b.device)


def _gradients(
    A: Tensor, b: Tensor, x: Tensor, g: Tensor, independent: bool, wanted: Any, again: Any
) -> tuple[Tensor | None, Tensor | None]:
    w = again(A.mT, g)
    of_A = None
    if wanted[0]:
        of_A = (b - A @ x) @ again(A, w).mT - w @ x.mT
        if not independent:
            of_A = of_A + again(A.mT, x) @ (g - A.mT @ w).mT
        of_A = _as(of_A, (A.shape, A.dtype))
    return of_A, _as(w, (b.shape, b.dtype)) if wanted[1] else None


def _tangent(A: Tensor, b: Tensor, x: Tensor, rank: Tensor, dA: Any, db: Any, asked: Any) -> Tensor:
    right = torch.zeros_like(b) if db is None else db
    if dA is None:
        return _apply(A, right, asked)[0]
    s, _ = _apply(A.mT, dA.mT @ (b - A @ x), asked)
    dx, _ = _apply(A, right - dA @ x + s, asked)
    if int(rank) < A.shape[-1]:
        q = dA.mT @ _apply(A.mT, x, asked)[0]
        dx = dx + q - _apply(A, A @ q, asked)[0]
    return dx


def _apply(A: Tensor, b: Tensor, asked: Any) -> tuple[Tensor, Tensor]:
    """The solve that autograd and `torch.func` follow, and the rank."""
    if in_forward_mode():
        (A, dA), (b, db) = forward_ad.unpack_dual(A), forward_ad.unpack_dual(b)
        if dA is not None or db is not None:
            x, rank = _apply(A, b, asked)
            return forward_ad.make_dual(x, _tangent(A, b, x, rank, dA, db, asked)), rank
    return _Lstsq.apply(A, b, *asked)


class _Lstsq(torch.autograd.Function):
    """`_solved`, as autograd and `torch.func` follow it."""

    @staticmethod
    def forward(A, b, *asked):
        return _solved(A, b, *asked)

    @staticmethod
    def setup_context(ctx, inputs, output):
        A, b, *ctx.asked = inputs
        x, rank = output
        ctx.mark_non_differentiable(rank)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(A, b, x, rank)
        ctx.save_for_forward(A, b, x, rank)

    @staticmethod
    def backward(ctx, g, _):
        if g is None or not any(ctx.needs_input_grad[:2]):
            return (None,) * 5
        A, b, x, rank = ctx.saved_tensors

        def again(A: Tensor, b: Tensor) -> Tensor:
            return _apply(A, b, ctx.asked)[0]

        full = int(rank) == A.shape[-1]
        return *_gradients(A, b, x, g, full, ctx.needs_input_grad[:2], again), None, None, None

    @staticmethod
    def jvp(ctx, dA, db, *_):
        check_levels()
        A, b, x, rank = ctx.saved_tensors
        return _tangent(A, b, x, rank, dA, db, ctx.asked), None

    @staticmethod
    def vmap(info, in_dims, A, b, *asked):
        A, b = _batched(in_dims, A, b)
        return _apply(A, b, asked), (0, None)


def _batched(in_dims: Any, A: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A and b with what is mapped over in front, and as many dimensions."""
    A_dim, b_dim = in_dims[:2]
    A = A.unsqueeze(0) if A_dim is None else A.movedim(A_dim, 0)
    b = b.unsqueeze(0) if b_dim is None else b.movedim(b_dim, 0)
    while A.ndim < b.ndim:
        A = A.unsqueeze(1)
    while b.ndim < A.ndim:
        b = b.unsqueeze(1)
    return A, b


@torch.library.custom_op("roundwise::lstsq", mutates_args=())
def lstsq_op(A: Tensor, b: Tensor, rcond: float | None, tol: float | None, policy: str) -> Tensor:
    """`_solved` as torch's graphs have it."""
    return _solved(A, b, rcond, tol, policy)[0].contiguous()


@lstsq_op.register_fake
def _(A, b, *_):
    return _like_solution(A, b)


def _keep(ctx, inputs, output):
    A, b, *ctx.asked = inputs
    ctx.save_for_backward(A, b, output)


def _back(ctx, g):
    A, b, x = ctx.saved_tensors

    def again(A: Tensor, b: Tensor) -> Tensor:
        return lstsq_op(A, b, *ctx.asked)

    # A graph does not branch on the rank.
    return *_gradients(A, b, x, g, False, ctx.needs_input_grad[:2], again), None, None, None


lstsq_op.register_autograd(_back, setup_context=_keep)


@lstsq_op.register_vmap
def _(info, in_dims, A, b, *asked):
    A, b = _batched(in_dims, A, b)
    return lstsq_op(A, b, *asked), 0


def lstsq_followed(
    A: Any,
    b: Any,
    rcond: float | None = None,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: bool = False,
    device: Any = None,
) -> Any:
    """`roundwise.lstsq` where torch follows; the same arguments."""
    if full_output or device is not None:
        raise TypeError(
            "torch follows this solve, which gives a tensor and nothing else, where A and b are; "
            "leave out full_output= and device=, or pass A.detach() and b.detach()"
        )
    A, b = _tensor(A, b), _tensor(b, A)
    if A.layout != torch.strided:
        raise TypeError("least squares of a sparse tensor have no gradient; pass A.to_dense()")
    if A.ndim < 2 or b.ndim == 0 or b.shape[-2 if b.ndim > 1 else -1] != A.shape[-2]:
        raise np.linalg.LinAlgError(
            f"A has shape {tuple(A.shape)}, b {tuple(b.shape)}; pass as many rows"
        )
    columns = b.unsqueeze(-1) if b.ndim == 1 else b
    if torch.compiler.is_compiling():
        x = lstsq_op(A, columns, rcond, tol, policy)
    else:
        x, _ = _apply(A, columns, (rcond, tol, policy))
    return x.squeeze(-1) if b.ndim == 1 else x
