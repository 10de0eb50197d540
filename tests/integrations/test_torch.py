"""Solves that torch follows: derivatives against differences, transforms, graphs, changes."""

import gc
import warnings

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    # torch's own machinery, where graphs are made
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

from roundwise.integrations import torch as ours  # noqa: E402

REAL, COMPLEX = torch.float64, torch.complex128


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(35)


def matrix(*shape, dtype=REAL):
    A = torch.randn(*shape, shape[-1], dtype=dtype) + 3 * torch.eye(shape[-1], dtype=dtype)
    return A.requires_grad_()


def columns(*shape, dtype=REAL):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


DENSE = {
    "vector": ((4,), (4,), REAL, REAL),
    "columns": ((4,), (4, 2), REAL, REAL),
    "stack": ((2, 3), (2, 3, 2), REAL, REAL),
    "one A for a stack": ((3,), (2, 3, 2), REAL, REAL),
    "one b for a stack": ((2, 3), (3, 2), REAL, REAL),
    "complex": ((3,), (3, 2), COMPLEX, COMPLEX),
    "complex b": ((3,), (3,), REAL, COMPLEX),
    "complex stack": ((2, 2), (2, 2, 1), COMPLEX, COMPLEX),
}


def checked(f, *operands):
    assert gradcheck(f, operands, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, operands, check_fwd_over_rev=True)


@pytest.mark.parametrize("case", DENSE)
def test_derivatives(case):
    shape_A, shape_b, type_A, type_b = DENSE[case]
    A, b = matrix(*shape_A, dtype=type_A), columns(*shape_b, dtype=type_b)
    torch.testing.assert_close(rw.solve(A, b), torch.linalg.solve(A.to(b.dtype), b))
    checked(rw.solve, A, b)


@pytest.mark.parametrize("trans", ["N", "T", "H"])
def test_derivatives_with_factors(trans):
    A, b = matrix(3, dtype=COMPLEX), columns(3, 2, dtype=COMPLEX)
    checked(lambda A, b: rw.factor(A).solve(b, trans), A, b)
    F = rw.factor(A.detach().numpy())
    checked(lambda b: F.solve(b, trans), b)


def test_stacked_factors_follow_b():
    A, b = matrix(2, 3), columns(2, 3, 2)
    F = rw.factor(A.detach().numpy())
    checked(F.solve, b)


@pytest.mark.parametrize(
    "assume_a",
    ["general", "symmetric", "pos", "upper triangular", "lower triangular", "tridiagonal"],
)
def test_entries_that_are_not_meant_have_no_gradient(assume_a):
    B = torch.randn(4, 4, dtype=REAL)
    A = (B @ B.T + 4 * torch.eye(4, dtype=REAL)).requires_grad_()
    checked(lambda A, b: rw.solve(A, b, assume_a=assume_a), A, columns(4))
    A.grad = None
    rw.solve(A, columns(4), assume_a=assume_a).sum().backward()
    if assume_a in ("symmetric", "pos", "upper triangular"):
        assert not A.grad.tril(-1).any()


def test_transposed():
    checked(lambda A, b: rw.solve(A, b, transposed=True), matrix(3, dtype=COMPLEX), columns(3))


PLACES = torch.tensor([[0, 0, 1, 2, 2], [0, 1, 1, 0, 2]])
CROW = torch.tensor([0, 2, 3, 5])


def made_sparse(layout, values):
    if layout == "coo":
        return torch.sparse_coo_tensor(PLACES, values, (3, 3), check_invariants=True)
    if layout == "csr":
        rows = (CROW, PLACES[1], values, (3, 3))
        return torch.sparse_csr_tensor(*rows, check_invariants=True)
    return torch.sparse_csc_tensor(CROW, PLACES[1], values, (3, 3), check_invariants=True)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse(layout, transposed):
    values = torch.tensor([4.0, 1.0, 2.0, 3.0, 5.0], dtype=REAL, requires_grad=True)

    def solved(values, b):
        return rw.solve(made_sparse(layout, values), b, transposed=transposed)

    b = columns(3, 2)
    A = made_sparse(layout, values.detach()).to_dense()
    torch.testing.assert_close(solved(values, b), torch.linalg.solve(A.T if transposed else A, b))
    assert gradcheck(solved, (values, b))
    assert gradgradcheck(solved, (values, b))


def test_sparse_leaf_has_a_gradient_on_its_entries():
    values = torch.tensor([4.0, 1.0, 2.0, 3.0, 5.0], dtype=COMPLEX)
    A, b = made_sparse("csr", values).requires_grad_(), columns(3)
    rw.solve(A, b).real.sum().backward()
    dense = A.detach().to_dense().requires_grad_()
    torch.linalg.solve(dense, b.detach().to(COMPLEX)).real.sum().backward()
    torch.testing.assert_close(A.grad.values(), dense.grad[tuple(PLACES)])
    checked(lambda b: rw.factor(A.detach()).solve(b), b)


def test_transforms():
    A, B = matrix(5, 3).detach(), torch.randn(5, 3, dtype=REAL)
    each = torch.stack([torch.linalg.solve(one, b) for one, b in zip(A, B, strict=True)])
    vmap, one = torch.func.vmap, A[0]
    torch.testing.assert_close(vmap(rw.solve)(A, B), each)
    torch.testing.assert_close(vmap(rw.solve, (None, 0))(one, B), torch.linalg.solve(one, B.T).T)
    torch.testing.assert_close(
        vmap(rw.solve, (0, None))(A, B[0]), torch.linalg.solve(A, B[:1].mT)[..., 0]
    )
    nested = vmap(vmap(rw.solve, (None, 0)), (0, None))(A, B)
    torch.testing.assert_close(nested, torch.linalg.solve(A, B.T.expand(5, 3, 5)).mT)

    def ours_and_theirs(transform):
        # Not `torch.linalg.solve`, whose forward derivative has a wrong derivative in torch 2.13.
        return (
            transform(lambda A, b: rw.solve(A, b)),
            transform(lambda A, b: torch.linalg.inv(A) @ b),
        )

    for transform in (
        lambda f: torch.func.jacrev(f, (0, 1)),
        lambda f: torch.func.jacfwd(f, (0, 1)),
        lambda f: torch.func.hessian(lambda A, b: f(A, b).sin().sum()),
        lambda f: torch.func.jacrev(torch.func.jacfwd(f)),
        lambda f: torch.func.jacfwd(torch.func.jacfwd(f)),
        lambda f: torch.func.jacfwd(torch.func.jacrev(torch.func.jacfwd(f, 1))),
        lambda f: torch.func.grad(
            lambda A, b: vmap(f, (None, 0))(A, torch.stack([b, 2 * b])).sum()
        ),
    ):
        mine, other = ours_and_theirs(transform)
        torch.testing.assert_close(mine(one, B[0]), other(one, B[0]))
    with pytest.raises(NotImplementedError, match="three levels"):
        torch.func.jacfwd(torch.func.jacfwd(torch.func.jacfwd(rw.solve)))(one, B[0])
    every, other = ours_and_theirs(lambda f: vmap(torch.func.grad(lambda A, b: f(A, b).sum())))
    torch.testing.assert_close(every(A, B), other(A, B))


def test_transforms_of_stored_entries():
    values = torch.rand(4, 5, dtype=REAL) + torch.tensor([4.0, 0, 2, 0, 5], dtype=REAL)
    b = torch.randn(3, dtype=REAL)

    def solved(values, b):
        return ours.solve_op(
            values, b[:, None], None, CROW, PLACES[1], False, None, "default", "backward", None
        )[0][:, 0]

    each = torch.stack(
        [torch.linalg.solve(made_sparse("csr", one).to_dense(), b) for one in values]
    )
    torch.testing.assert_close(torch.func.vmap(solved, (0, None))(values, b), each)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    A, b = matrix(4), columns(4)

    def loss(A, b):
        return rw.solve(2 * A, b).sin().sum()

    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(A, b), loss(A, b))
    mine = torch.autograd.grad(compiled(A, b), (A, b))
    torch.testing.assert_close(mine, torch.autograd.grad(loss(A, b), (A, b)))
    every = torch.compile(torch.func.vmap(loss, (None, 0)), backend=backend, fullgraph=True)
    B = torch.stack([b, 2 * b, -b]).detach()
    torch.testing.assert_close(
        every(A.detach(), B), torch.stack([loss(A, one) for one in B]).detach()
    )


def test_operators_keep_torchs_rules():
    A, b = matrix(3), columns(3, 2)
    rest = (None, None, None, False, None, "default", "backward", None)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(ours.solve_op, (A, b, *rest), test_utils=tests)
    from roundwise.integrations.torch_lstsq import lstsq_op

    torch.library.opcheck(lstsq_op, (columns(4, 2), columns(4, 1), None, None, "default"))


def test_changes_are_noticed():
    A, b = matrix(3), columns(3)
    for changed in (lambda x: A, lambda x: x):
        x = rw.solve(A * 1, b) if changed(0) is not A else rw.solve(A, b)
        with torch.no_grad():
            changed(x).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            x.sum().backward()
    F = rw.factor(A)
    with torch.no_grad():
        A.mul_(2)
    with pytest.raises(RuntimeError, match="call factor"):
        F.solve(b)


def test_factors_are_shared_and_freed(monkeypatch):
    made = []
    true = ours.factor_system
    monkeypatch.setattr(ours, "factor_system", lambda *a, **k: made.append(0) or true(*a, **k))
    gc.collect()
    before = len(ours._KEPT)
    A, b = matrix(40), columns(40)
    x = rw.solve(A, b)
    (of_A, of_b) = torch.autograd.grad(x.sin().sum(), (A, b), create_graph=True)
    torch.autograd.grad(of_A.sum() + of_b.sum(), (A, b))
    assert len(made) == 1
    del x, of_A, of_b
    gc.collect()
    assert len(ours._KEPT) == before


def test_nothing_is_copied():
    A = torch.randn(40, 40, dtype=REAL)
    F = ours._Matrix(A, None, None).factors(ours.Arguments(), 1)
    assert np.shares_memory(F._present.express.A, A.numpy())


def test_adjoint_passes_the_gate():
    """The gradient of b is w with ``A* w = g``, to the tolerance of `solve`."""
    n = 300
    A, b, g = matrix(n), columns(n), torch.randn(n, dtype=REAL)
    (w,) = torch.autograd.grad(rw.solve(A, b), b, g)
    residual = (g - A.T @ w).abs().max()
    norm = A.detach().abs().sum(0).max()
    assert residual <= np.sqrt(n) * 2.0**-53 * (norm * w.abs().max() + g.abs().max())


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 2)])
def test_least_squares(shape):
    A, b = columns(*shape), columns(*shape[:-1], 2)
    torch.testing.assert_close(rw.lstsq(A, b), torch.linalg.pinv(A) @ b)
    assert gradcheck(rw.lstsq, (A, b), check_forward_ad=True)
    assert gradgradcheck(rw.lstsq, (A, b), atol=1e-4)


def test_least_squares_without_full_rank():
    """Along a path of constant rank, derivatives are those of the pseudoinverse."""
    left, right = columns(4, 2), columns(2, 3)
    b = columns(4)
    checked_path = lambda left, right, b: rw.lstsq(left @ right, b)  # noqa: E731
    assert gradcheck(checked_path, (left, right, b), check_forward_ad=True)


def test_least_squares_in_graphs():
    A, B = columns(3, 4, 2), columns(3, 4)
    each = (torch.linalg.pinv(A) @ B[..., None])[..., 0]
    torch.testing.assert_close(torch.func.vmap(rw.lstsq)(A.detach(), B.detach()), each.detach())
    compiled = torch.compile(lambda A, b: rw.lstsq(A, b).sin().sum(), backend="aot_eager")
    one, b = columns(4, 2), columns(4)
    mine = torch.autograd.grad(compiled(one, b), (one, b))
    true = torch.autograd.grad((torch.linalg.pinv(one) @ b).sin().sum(), (one, b))
    torch.testing.assert_close(mine, true)


def test_other_operands():
    """NumPy's and SciPy's beside tensors, single precision, empty ones, lazy conjugates."""
    A, b = matrix(3), columns(3)
    x = rw.solve(A.detach().numpy(), b)
    torch.testing.assert_close(x, torch.linalg.solve(A, b))
    rows = sparse.csr_array(A.detach().numpy())
    torch.testing.assert_close(rw.solve(rows, b), x)
    torch.testing.assert_close(rw.solve(A, b.detach().numpy()), x)
    half = rw.solve(A.float(), b.float())
    assert half.dtype == torch.float32
    half.sum().backward()
    assert A.grad.dtype == torch.float64
    assert rw.solve(matrix(0), columns(0)).shape == (0,)
    assert rw.solve(matrix(3), columns(3, 0)).shape == (3, 0)
    torch.testing.assert_close(rw.solve(matrix(1), columns(1)).shape, torch.Size([1]))
    C = matrix(3, dtype=COMPLEX).detach()
    torch.testing.assert_close(rw.solve(C.mH, C.conj()), torch.linalg.solve(C.mH, C.conj()))
    with torch.no_grad():
        assert not rw.solve(A, b).requires_grad


def test_refusals():
    A, b = matrix(3), columns(3)
    with pytest.raises(TypeError, match="full_output"):
        rw.solve(A, b, full_output=True)
    with pytest.raises(ValueError, match="pass b with 3 rows"):
        rw.solve(A, columns(4))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        rw.solve(columns(3, 2), b)
    with pytest.raises(rw.SolveFailed):
        rw.solve(torch.zeros(3, 3, dtype=REAL, requires_grad=True), b)
    with pytest.raises(ValueError, match="NaN or infinite"):
        rw.solve(A * torch.nan, b)
    with pytest.raises(ValueError, match="trans"):
        rw.factor(A).solve(b, trans="X")


def test_warnings_of_few_digits_come_through():
    at = torch.arange(12, dtype=REAL)
    A = (1 / (at[:, None] + at + 1)).requires_grad_()  # Hilbert's matrix
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        rw.solve(A, torch.randn(12, dtype=REAL))
    assert [one.category for one in seen] == [rw.IllConditionedWarning]
