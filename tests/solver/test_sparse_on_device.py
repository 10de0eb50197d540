"""Sparse systems with engines that run on a GPU, without one: SuperLU stands in for cuDSS."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import fake_cupy as cupy
import numpy as np
import pytest
from exact import passes
from scipy import sparse

import roundwise as rw
from roundwise.backends import ENGINES, NativeBackend
from roundwise.backends.engines.superlu import SuperLUEngine
from roundwise.problems import convection_diffusion_2d, poisson_2d
from roundwise.solver import places

rng = np.random.default_rng


class StandIn(SuperLUEngine):
    """An engine that counts what it is asked to analyse."""

    name, orderings, runs_on = "cudss", ("nd",), "cuda"
    analysed = 0

    def analyse(self, pattern, ordering):
        type(self).analysed += 1
        return super().analyse(pattern, "colamd")


@contextmanager
def _device(number):
    assert isinstance(number, int)
    yield


@pytest.fixture
def gpu(monkeypatch):
    """A machine with one GPU and one engine for it."""
    for name in [name for name, engine in ENGINES.items() if engine.runs_on == "cuda"]:
        monkeypatch.delitem(ENGINES, name)
    monkeypatch.setitem(ENGINES, "cudss", StandIn())
    there = SimpleNamespace(xp=SimpleNamespace(cuda=SimpleNamespace(Device=_device)))
    monkeypatch.setattr(places, "get_device", lambda: there)
    monkeypatch.setattr(StandIn, "analysed", 0)


class SparseOnGpu:
    """What the front door asks of CuPy's sparse matrices."""

    def __init__(self, A):
        self._A = A
        self.data = SimpleNamespace(device=SimpleNamespace(id=0))

    def get(self):
        return self._A


SparseOnGpu.__module__ = "cupyx.scipy.sparse"

CASES = {
    "definite": poisson_2d(12).A,
    "general": convection_diffusion_2d(9, 0.1, (3.0, -2.0)).A,
    "complex": sparse.csr_array(poisson_2d(9).A + 2j * sparse.eye_array(81)),
    "tiny": sparse.csr_array([[2.0, 1.0], [0.0, 4.0]]),
}


@pytest.mark.parametrize("name", [name for name in CASES if name != "complex"])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_the_engine_of_the_gpu_solves(gpu, name, columns):
    A = CASES[name]
    b = rng(0).standard_normal((A.shape[0], *columns))
    solution = rw.solve(A, b, device="cuda", full_output=True)
    assert solution.action.startswith("cudss/nd:")
    assert StandIn.analysed == 1
    assert passes(A, solution.x, b)
    np.testing.assert_array_equal(rw.solve(A, b, device="cuda"), solution.x)
    # Without the word, the processor solves.
    assert not rw.solve(A, b, full_output=True).action.startswith("cudss")


def test_factors_serve_other_values_and_other_columns(gpu):
    A = CASES["general"]
    F = rw.factor(A, device="cuda")
    for scale in (1.0, 3.0):
        F = F.refactor(A * scale)
        b = rng(1).standard_normal(A.shape[0])
        assert passes(A * scale, F.solve(b), b)
        assert passes((A * scale).T, F.solve(b, "T"), b)
    assert F.format.startswith("cudss/nd")
    assert StandIn.analysed == 1


def test_sparse_arrays_of_the_gpu_come_in_and_their_kind_goes_out(gpu, monkeypatch):
    monkeypatch.setitem(
        sys.modules,
        "cupy",
        SimpleNamespace(cuda=SimpleNamespace(Device=_device), asarray=cupy.asarray),
    )
    A = CASES["definite"]
    b = np.ones(A.shape[0])
    x = rw.solve(SparseOnGpu(A), b)
    assert type(x) is np.ndarray  # as b
    assert passes(A, x, b)
    assert StandIn.analysed == 1
    with pytest.raises(TypeError, match=r"pass A.get\(\)"):
        rw.solve(SparseOnGpu(A), b, device="cpu")
    with pytest.raises(ValueError, match="A is on GPU 0"):
        rw.solve(SparseOnGpu(A), b, device="cuda:1")


def test_auto_ranks_the_engines_of_both(gpu):
    A = CASES["definite"]
    methods = NativeBackend(sparse_on="auto").methods(sparse=True)
    assert {"cudss/nd", "superlu/colamd", "cholesky/amd"} <= set(methods)
    b = np.ones(A.shape[0])
    assert passes(A, rw.solve(A, b, device="auto"), b)
    dense = A.toarray()
    assert passes(dense, rw.solve(dense, b, device="auto"), b)


def test_only_the_engines_of_the_place_are_methods(gpu):
    here, there = NativeBackend(), NativeBackend(sparse_on="cuda")
    assert "cudss/nd" not in here.methods(sparse=True)
    assert set(there.methods(sparse=True)) == {"cudss/nd", "superlu/colamd"}
    assert here.description != there.description
    with pytest.raises(ValueError, match="method 'cudss/nd' is not for this A"):
        rw.solve(CASES["tiny"], [1.0, 2.0], policy="cudss/nd:fp64-fp64-fp64-fp64")
    x = rw.solve(CASES["tiny"], [1.0, 2.0], policy="cudss/nd:fp64-fp64-fp64-fp64", device="cuda")
    np.testing.assert_array_equal(x, [0.25, 0.5])


def test_without_an_engine_for_gpus_the_remedy_is_named(gpu, monkeypatch):
    monkeypatch.delitem(ENGINES, "cudss")
    for call in (
        lambda: rw.solve(CASES["tiny"], np.ones(2), device="cuda"),
        lambda: rw.factor(CASES["tiny"], device="cuda:0"),
    ):
        with pytest.raises(rw.DeviceUnavailable, match="roundwise\\[cudss13\\]"):
            call()


def test_memory_that_the_gpu_lacks_is_named_with_a_remedy(gpu, monkeypatch):
    def analyse(self, pattern, ordering):
        raise MemoryError("cuDSS found not enough memory")

    monkeypatch.setattr(StandIn, "analyse", analyse)
    with pytest.raises(rw.DeviceMemoryError, match="policy='fp32'"):
        rw.solve(CASES["tiny"], np.ones(2), device="cuda")


def test_a_singular_matrix_is_named(gpu):
    A = sparse.csr_array([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(rw.SolveFailed, match="A is singular"):
        rw.solve(A, np.ones(2), device="cuda")


def test_torch_tensors_of_a_layout_become_scipys():
    def tensor(layout, A, **parts):
        def cpu():
            return made

        values = {
            name: (lambda part=part: SimpleNamespace(numpy=lambda: part))
            for name, part in parts.items()
        }
        made = SimpleNamespace(layout=layout, requires_grad=False, shape=A.shape, cpu=cpu, **values)
        made.coalesce = lambda: made
        return made

    A = CASES["general"]
    C, R = A.tocsc(), A.tocoo()
    given = {
        "csr": tensor(
            "torch.sparse_csr", A, values=A.data, crow_indices=A.indptr, col_indices=A.indices
        ),
        "csc": tensor(
            "torch.sparse_csc", A, values=C.data, ccol_indices=C.indptr, row_indices=C.indices
        ),
        "coo": tensor("torch.sparse_coo", A, values=R.data, indices=np.stack(R.coords)),
    }
    for one in given.values():
        assert abs(places.on_host(one) - A).max() == 0
    given["csr"].requires_grad = True
    with pytest.raises(TypeError, match="detach"):
        places.on_host(given["csr"])
    with pytest.raises(TypeError, match="to_sparse_csr"):
        places.on_host(tensor("torch.sparse_bsr", A))
