"""`solve`, `factor` and `Solver` on a GPU, without one: see `fake_cupy`."""

import json
import os
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace

import fake_cupy as cupy
import hard_systems
import host_device
import numpy as np
import pytest
from command_line import fail, succeed
from exact import backward_error, passes

import roundwise as rw
from roundwise.backends import get_backend
from roundwise.backends.cuda.device import DeviceUnavailable, is_available, why_not
from roundwise.commands import calibrate as calibrating
from roundwise.costs import ProfileWarning
from roundwise.costs.calibration import calibrate_device
from roundwise.costs.prices import (
    DevicePrices,
    FactorPrice,
    device_prices,
    generic_device_prices,
    save_device_prices,
)
from roundwise.costs.sparse_calibration import nonnegative_fit
from roundwise.features import probe
from roundwise.features.probe import device_row_features
from roundwise.methods import METHODS
from roundwise.methods.contract import Shape
from roundwise.policies import TabularQ
from roundwise.policies import device as device_policies
from roundwise.policies.device import (
    HARD_STEPS,
    HARD_UP_TO,
    LEAST_N,
    DeviceLearner,
    DevicePolicy,
    bits_that_may_suffice,
)
from roundwise.rewards import Reward
from roundwise.solver import express_device, front_door, places
from roundwise.solver import system as systems
from roundwise.solver.budgets import gmres_budget
from roundwise.solver.decide import decide
from roundwise.solver.express_device import express_on_device
from roundwise.solver.places import CaptureError, DeviceMemoryError, Place, place_of
from roundwise.solver.policy_argument import DEVICE_CONTEXT
from roundwise.solver.prepare import PLAIN, Options, prepare
from roundwise.tuning import Context, DeployedPolicy, Tuner

rng = np.random.default_rng


@pytest.fixture
def small(monkeypatch):
    """The device as it is: small systems are solved by the kernel of stacks."""
    cupy.cuda.entered.clear()
    return host_device.install(monkeypatch)


@pytest.fixture
def backend(small, monkeypatch):
    """The device for large systems, whatever their n."""
    monkeypatch.setattr(front_door, "ALONE_UP_TO", 0)
    return small


@pytest.fixture(autouse=True)
def no_torch_yet(monkeypatch):
    monkeypatch.setitem(places.sys.modules, "torch", None)


def system(n, columns=None, seed=0):
    A = rng(seed).standard_normal((n, n)) + 3 * np.eye(n)
    b = rng(seed + 1).random(n if columns is None else (n, columns))
    return A, b


@pytest.mark.parametrize("n", [1, 2, 37, 130])
@pytest.mark.parametrize("columns", [None, 0, 1, 5])
@pytest.mark.parametrize("order", "CF")
def test_cupy_in_cupy_out(backend, n, columns, order):
    A, b = system(n, columns)
    given = cupy.asarray(np.asarray(A, order=order))
    x = rw.solve(given, cupy.asarray(b))
    assert isinstance(x, cupy.ndarray)
    assert x.shape == b.shape
    if columns != 0:
        assert passes(A, x.get(), b)
    assert np.array_equal(given.get(), A)


@pytest.mark.parametrize("policy", ["fp16", "bf16", "tf32", "fp16x2", "bf16x3", "fp32", "fp64"])
def test_every_format_leads_through_the_gate(backend, policy):
    A, b = system(60)
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), policy=policy, full_output=True)
    assert solution.attempts[0].action.split(":")[1].startswith(policy)
    assert solution.backward_error <= solution.tolerance
    assert solution.error_kind == "estimate"
    error = np.abs(solution.x.get() - np.linalg.solve(A, b)).max() / np.abs(solution.x.get()).max()
    assert error <= solution.forward_error_bound + 1e-13
    assert policy in solution.explain()


def test_the_same_input_gives_the_same_bits(backend):
    A, b = (cupy.asarray(x) for x in system(80))
    assert np.array_equal(rw.solve(A, b).get(), rw.solve(A, b).get())


def test_float32_in_float32_out(backend):
    A, b = system(50)
    given = cupy.asarray(A.astype(np.float32)), cupy.asarray(b.astype(np.float32))
    x = rw.solve(*given)
    assert x.dtype == np.float32
    assert rw.solve(given[0], cupy.asarray(b)).dtype == np.float64


def test_numpy_goes_there_and_back_if_asked_to(backend):
    A, b = system(30)
    x = rw.solve(A, b, device="cuda")
    assert isinstance(x, np.ndarray)
    assert cupy.cuda.entered
    cupy.cuda.entered.clear()
    rw.solve(A, b)
    assert not cupy.cuda.entered
    assert np.abs(rw.solve(A.tolist(), b.tolist(), device="cuda") - x).max() == 0


def test_mixed_devices_are_refused_with_a_remedy(backend):
    A, b = system(5)
    with pytest.raises(TypeError, match=r"cupy\.asarray\(b\)"):
        rw.solve(cupy.asarray(A), b)
    with pytest.raises(TypeError, match=r"b\.get\(\)"):
        rw.solve(A, cupy.asarray(b))
    with pytest.raises(TypeError, match=r"A\.get\(\)"):
        rw.solve(cupy.asarray(A), cupy.asarray(b), device="cpu")
    with pytest.raises(ValueError, match="choose 'cpu', 'cuda'"):
        rw.solve(A, b, device="gpu")
    with pytest.raises(TypeError, match=r"cupy\.asarray\(b\)"):
        rw.factor(cupy.asarray(A)).solve(b)
    elsewhere = cupy.asarray(b)
    elsewhere.__dlpack_device__ = lambda: (2, 1)
    with pytest.raises(ValueError, match="A is on GPU 0, b is on GPU 1"):
        rw.solve(cupy.asarray(A), elsewhere)
    with pytest.raises(ValueError, match="device = 'cuda:1'"):
        rw.solve(cupy.asarray(A), cupy.asarray(b), device="cuda:1")


class Tensor:
    """A stand-in for a tensor of torch: it lends its memory through DLPack."""

    def __init__(self, values, requires_grad=False):
        self.values, self.requires_grad = values, requires_grad
        self.shape, self.dtype = values.shape, values.dtype

    def __dlpack_device__(self):
        return (2, 0)

    def lent(self):
        return self.values


class Torch:
    Tensor = Tensor

    class cuda:
        @staticmethod
        def current_stream(number):
            return type("Stream", (), {"cuda_stream": 77})

    @staticmethod
    def from_dlpack(x):
        return Tensor(x.get())


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr(Tensor, "__module__", "torch")
    monkeypatch.setitem(places.sys.modules, "torch", Torch)
    nothing_followed = SimpleNamespace(follows=lambda *_: False)
    monkeypatch.setitem(places.sys.modules, "roundwise.integrations.torch", nothing_followed)


def test_tensors_in_tensors_out_on_their_stream(backend, torch):
    A, b = system(20)
    x = rw.solve(Tensor(A), Tensor(b))
    assert isinstance(x, Tensor)
    assert cupy.cuda.entered[:2] == [("device", 0), ("stream", 77)]
    solution = rw.factor(Tensor(A)).solve(Tensor(b), full_output=True)
    assert isinstance(solution.x, Tensor)
    assert solution.digits > 10
    with pytest.raises(TypeError, match=r"A\.detach\(\)"):
        rw.solve(Tensor(A, requires_grad=True), Tensor(b))


def test_factor_solves_again_and_transposed(backend):
    A, b = system(40)
    F = rw.factor(cupy.asarray(A))
    assert backward_error(A, F.solve(cupy.asarray(b)).get(), b) < 1e-15
    assert backward_error(A.T, F.solve(cupy.asarray(b), trans="T").get(), b) < 1e-15
    other, _ = system(40, seed=9)
    x = F.refactor(cupy.asarray(other)).solve(cupy.asarray(b)).get()
    assert backward_error(other, x, b) < 1e-15
    assert F.shape == (40, 40)
    host = rw.factor(A, device="cuda")
    assert isinstance(host.solve(b), np.ndarray)
    assert isinstance(host.solve(cupy.asarray(b)), cupy.ndarray)


def test_a_copy_is_factored(backend):
    A, b = system(10)
    given = cupy.asarray(A)
    F = rw.factor(given)
    given[...] = 0.0
    assert backward_error(A, F.solve(cupy.asarray(b)).get(), b) < 1e-15


def test_stacked_systems(backend):
    A = np.stack([system(6, seed=s)[0] for s in range(3)])
    b = rng(0).random((3, 6, 2))
    X = rw.solve(cupy.asarray(A), cupy.asarray(b)).get()
    np.testing.assert_allclose(X, np.linalg.solve(A, b), rtol=1e-12)
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), full_output=True)
    np.testing.assert_array_equal(solution.x.get(), X)
    assert solution.shape == (3,)
    assert solution[1].status == "accepted"


@pytest.mark.parametrize("n", [6, 40])
def test_a_factored_stack_solves_again(backend, n):
    A = rng(0).standard_normal((2, 3, n, n))
    b = rng(1).random((3, n, 2))
    F = rw.factor(cupy.asarray(A))
    for trans, M in (("N", A), ("T", A.swapaxes(-1, -2))):
        X = F.solve(cupy.asarray(b), trans)
        assert isinstance(X, cupy.ndarray)
        np.testing.assert_allclose(X.get(), np.linalg.solve(M, b), rtol=1e-8)
    solution = F.solve(cupy.asarray(b), full_output=True)
    assert solution[1, 2].digits > 6
    other = A[::-1].copy()
    X = F.refactor(cupy.asarray(other)).solve(cupy.asarray(b)).get()
    np.testing.assert_allclose(X, np.linalg.solve(other, b), rtol=1e-8)


def test_systems_of_a_stack_on_the_device(backend):
    """One call for most of them; those that it refuses, one by one, are named if they fail."""
    A, b = rng(0).standard_normal((2, 3, 7, 7)), rng(1).random(7)
    A[0, 1, 0] *= 1e-14
    X = rw.solve(cupy.asarray(A), cupy.asarray(b)).get()
    assert all(passes(A[place], X[place], b) for place in np.ndindex(2, 3))
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), full_output=True)
    assert np.array_equal(solution.x.get(), X)
    assert solution[0, 0].attempts[0].arithmetic == "cuda"
    there = rw.solve(A, b, device="cuda", full_output=True)
    assert isinstance(there.x, np.ndarray)
    assert isinstance(there[1, 0].x, np.ndarray)
    A[1, 2, 3] = A[1, 2, 0]
    with pytest.raises(rw.SolveFailed, match=r"system \(1, 2\) of the stack: A is singular"):
        rw.solve(cupy.asarray(A), cupy.asarray(b))


def test_what_full_output_tells_of_a_stack_is_refused_once_it_has_changed(backend):
    A, b = cupy.asarray(rng(0).standard_normal((2, 5, 5))), cupy.asarray(rng(1).random(5))
    solution = rw.solve(A, b, full_output=True)
    assert solution[0].digits > 8
    A[1, 0, 0] = 7.0
    with pytest.raises(rw.SystemChanged):
        _ = solution[1].digits


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
@pytest.mark.parametrize("columns", [None, 3])
def test_a_small_system_alone(small, dtype, columns):
    A = rng(0).standard_normal((9, 9)).astype(dtype)
    b = rng(1).random(9 if columns is None else (9, columns)).astype(dtype)
    given = cupy.asarray(A), cupy.asarray(b)
    x = rw.solve(*given)
    assert isinstance(x, cupy.ndarray)
    assert x.shape == b.shape
    assert x.dtype == dtype
    assert residual_size(A, x.get(), b) <= 3 * np.finfo(dtype).eps / 2
    solution, unread = (rw.solve(*given, full_output=True) for _ in range(2))
    assert np.array_equal(solution.x.get(), x.get())
    assert solution.attempts[0].arithmetic == "cuda"
    assert solution.digits > 3
    given[0][0, 0] = 5.0
    with pytest.raises(rw.SystemChanged):
        _ = unread.digits


def test_small_systems_that_are_refused_alone(small):
    A, b = rng(0).standard_normal((7, 7)), rng(1).random(7)
    badly_scaled = A * np.logspace(0, -13, 7)[:, None]
    assert passes(badly_scaled, rw.solve(cupy.asarray(badly_scaled), cupy.asarray(b)).get(), b)
    A[3] = A[4]
    with pytest.raises(rw.SolveFailed, match="A is singular"):
        rw.solve(cupy.asarray(A), cupy.asarray(b))
    for method in ("lu/local:fp64-fp64-fp64-fp64", "qr:fp64-fp64-fp64-fp64"):  # as asked
        x = rw.solve(cupy.eye(7), cupy.asarray(b), policy=method, full_output=True)
        assert x.action == method


@pytest.mark.parametrize("structure", ["symmetric", "upper triangular", "diagonal", "tridiagonal"])
@pytest.mark.parametrize("shape", [(30, 30), (3, 6, 6)])
def test_the_part_that_is_meant(backend, structure, shape):
    A = rng(0).standard_normal(shape) + 9 * np.eye(shape[-1])
    b = rng(1).random((*shape[:-1], 2))
    x = rw.solve(cupy.asarray(A), cupy.asarray(b), assume_a=structure).get()
    np.testing.assert_allclose(x, rw.solve(A, b, assume_a=structure), rtol=1e-10)
    x = rw.solve(cupy.asarray(A), cupy.asarray(b), transposed=True, overwrite_b=True).get()
    np.testing.assert_allclose(x, rw.solve(A, b, transposed=True), rtol=1e-10)


def drawn(shape, seed=0, dtype=complex):
    return (rng(seed).standard_normal(shape) + 1j * rng(seed + 1).standard_normal(shape)).astype(
        dtype
    )


def residual_size(A, x, b):
    """The backward error with moduli in the norms; residuals are off by about n u^2 / 2000."""
    wide = A.astype(np.clongdouble)
    r = b - wide @ x
    size = np.abs(A).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return (np.abs(r).max(axis=0) / size).max()


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
@pytest.mark.parametrize("n", [1, 2, 31, 120])
def test_complex_systems(backend, n, dtype):
    A, b = drawn((n, n), 0, dtype), drawn((n, 3), 5, dtype)
    limit = np.sqrt(n) * np.finfo(dtype).eps / 2 * (1 + 1e-3)
    x = rw.solve(cupy.asarray(A), cupy.asarray(b))
    assert x.dtype == dtype
    assert residual_size(A, x.get(), b) <= limit
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), full_output=True)
    assert np.array_equal(solution.x.get(), x.get())
    assert solution.backward_error <= solution.tolerance
    F = rw.factor(cupy.asarray(A))
    for trans, M in (("N", A), ("T", A.T), ("H", A.conj().T)):
        assert residual_size(M, F.solve(cupy.asarray(b), trans).get(), b) <= limit
    sign, logarithm = F.slogdet()
    expected = np.linalg.slogdet(A.astype(complex))
    np.testing.assert_allclose([sign, logarithm], [*expected], rtol=1e-5, atol=1e-6)
    there = rw.solve(A, b, device="cuda")
    assert isinstance(there, np.ndarray)
    assert np.array_equal(there, x.get())


def test_real_and_complex_operands_mix(backend):
    A, b = drawn((25, 25)), drawn(25, 3)
    for left, right in ((A, b.real.copy()), (A.real.copy(), b)):
        x = rw.solve(cupy.asarray(left), cupy.asarray(right)).get()
        assert residual_size(left, x, right) <= np.sqrt(25) * 2.0**-53
    F = rw.factor(cupy.asarray(A))
    x = F.refactor(cupy.asarray(A.real.copy())).solve(cupy.asarray(b)).get()
    assert residual_size(A.real, x, b) <= np.sqrt(25) * 2.0**-53
    np.testing.assert_allclose(F.inv().get() @ A.real, np.eye(25), atol=1e-11)


def test_badly_scaled_complex_systems(backend):
    scales = np.ldexp(1.0, rng(0).integers(-200, 200, 30))
    A, b = drawn((30, 30)) * scales[:, None], drawn(30, 3) * scales
    x = rw.solve(cupy.asarray(A), cupy.asarray(b)).get()
    np.testing.assert_allclose(x, rw.solve(A, b), rtol=1e-9)
    x = rw.factor(cupy.asarray(A)).solve(cupy.asarray(b / scales), "T").get()
    np.testing.assert_allclose(x, rw.solve(A.T, b / scales), rtol=1e-9)


def test_a_hermitian_matrix_may_be_factorized_by_cholesky(backend):
    M = drawn((40, 40))
    A, b = M @ M.conj().T + 40 * np.eye(40), drawn(40, 3)
    asked = {"assume_a": "pos", "policy": "cholesky:fp64-fp64-fp64-fp64", "full_output": True}
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), **asked)
    assert "cholesky" in solution.action
    assert residual_size(A, solution.x.get(), b) <= np.sqrt(40) * 2.0**-53


def test_input_that_cannot_be_solved_with(backend):
    A, b = system(4)
    with pytest.raises(ValueError, match="b has 3 rows, A has 4"):
        rw.solve(cupy.asarray(A), cupy.asarray(b[:3]))
    with pytest.raises(ValueError, match="NaN or infinite"):
        rw.solve(cupy.asarray(np.where(A[0, 0] == A, np.nan, A)), cupy.asarray(b))
    with pytest.raises(ValueError, match="NaN or infinite"):
        rw.solve(cupy.asarray(A), cupy.asarray(np.full(4, np.inf)))
    badly_scaled = np.ldexp(A, [[200], [-200], [0], [100]])
    with pytest.raises(ValueError, match="NaN or infinite"):
        rw.solve(cupy.asarray(badly_scaled), cupy.asarray([1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(ValueError, match="square"):
        rw.solve(cupy.asarray(A[:3]), cupy.asarray(b))
    with pytest.raises(ValueError, match="empty"):
        rw.solve(cupy.asarray(np.empty((0, 0))), cupy.asarray(np.empty(0)))
    with pytest.raises(KeyError, match="policy on a GPU"):
        rw.solve(cupy.asarray(A), cupy.asarray(b), policy="e4m3")


HARD = [
    *hard_systems.growth_systems(),
    *hard_systems.structured_systems(),
    *hard_systems.scaled_systems(),
    *hard_systems.near_singular_systems(),
    *hard_systems.singular_systems(),
]


@dataclass(frozen=True)
class Fondness(Reward):
    """Of one method in one format: what a policy has learned is seen in what it chooses."""

    name = "fondness"
    needs_kappa = False

    def components(self, outcome, facts, action):
        is_it = action.method == "lu/tournament" and action[0] == rw.formats.FP16X2
        return {"fondness": float(is_it)}


def test_a_policy_trained_on_the_device_is_deployed_there(backend, monkeypatch):
    def found(name):
        return backend if name in ("cuda", backend) else get_backend(name)

    for module in ("outcomes.filling", "outcomes.records", "algorithms.base"):
        monkeypatch.setattr(f"roundwise.{module}.get_backend", found)
    space = rw.VerifiedSolve().starts([False], backend=backend)
    context = Context(("n", "diagonal_share", "coherence"), (1.0, None, 0.01))
    options = {"context": context, "policy": TabularQ(), "reward": Fondness()}
    problems = [rw.LinearSystem(*system(30 + i, seed=i)) for i in range(3)]
    tuner = Tuner(rw.VerifiedSolve(), space=space, arithmetic="cuda", **options).fit(problems)
    A, b = (cupy.asarray(x) for x in system(31, seed=1))  # of states that it has seen
    solution = rw.solve(A, b, policy=tuner, full_output=True)
    assert solution.attempts[0].action.startswith("lu/tournament:fp16x2")
    options["context"] = Context(("n", "kappa_exact"), (1.0, 1.0))
    dear = Tuner(rw.VerifiedSolve(), space=space, arithmetic="cuda", **options).fit(problems)
    with pytest.raises(ValueError, match="kappa_exact, which is not computed on a GPU"):
        rw.solve(A, b, policy=dear)
    host = Tuner(rw.VerifiedSolve(), **options).fit(problems)
    with pytest.raises(TypeError, match="arithmetic='cuda'"):
        rw.solve(A, b, policy=host)


@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
@pytest.mark.parametrize("policy", ["default", "fp16x2"])
def test_hard_systems_end_as_on_the_processor(backend, policy):
    """An answer through the gate, or a named failure: on both, or on none."""
    for name, A, b in HARD:
        ends = []
        for given in ((A, b), (cupy.asarray(A), cupy.asarray(b))):
            try:
                rw.solve(*given, policy="default" if given[0] is A else policy)
                ends.append("")
            except rw.SolveFailed as failure:
                ends.append(str(failure).split(":")[0])
        assert ends[0] == ends[1], name


def test_a_failure_has_the_best_x_in_the_caller_s_kind(backend):
    with pytest.raises(rw.SolveFailed, match="singular") as caught:
        rw.solve(cupy.asarray(np.ones((3, 3))), cupy.asarray(np.array([1.0, 2.0, 3.0])))
    assert caught.value.x is None or isinstance(caught.value.x, cupy.ndarray)


def test_few_digits_are_warned_of(backend):
    A, b = hard_systems.with_random_b(hard_systems.linalg.hilbert(12))
    with pytest.warns(rw.IllConditionedWarning):
        rw.solve(cupy.asarray(A), cupy.asarray(b))


def test_full_accuracy(backend):
    n = 40
    U, V = (np.linalg.qr(rng(s).standard_normal((n, n)))[0] for s in (1, 2))
    A = (U * np.logspace(0, -9, n)) @ V
    b = rng(3).random(n)
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), accuracy="forward", full_output=True)
    assert solution.accuracy == "forward"
    expected = rw.solve(A, b, accuracy="forward")
    np.testing.assert_allclose(solution.x.get(), expected, rtol=1e-14)


# How an action is chosen.


SLOW, FAST = FactorPrice(4e13, 3e-6, 2e-4), FactorPrice(2e14, 1e-6, 2e-4)
PRICES = DevicePrices(
    "a stand-in",
    {
        "lu": {"fp64": SLOW},
        "lu/local": {"fp16": replace(FAST, flops_per_second=6e14), "fp16x2": FAST},
        "cholesky": {"fp64": replace(SLOW, column=1e-6)},
    },
    3e12,
    1e-4,
    5e-8,
)


def large(backend, n, heavy=False, free=2**40, symmetric=False):
    """A system that says it has many rows; nobody reads more than some of them."""
    A = rng(0).standard_normal((300, 300))
    A[np.diag_indices(300)] += 60.0 if heavy else 0.0
    if symmetric:
        A = A @ A.T
    system = prepare(cupy.asarray(A), 1, Place(backend, 0, takes_host=False))
    vars(system).update(n=n, memory_free=free)
    return system


def chosen(backend, n, learner=None, prices=PRICES, **options):
    policy = DevicePolicy(prices, learner)
    space = rw.VerifiedSolve().starts((False,), backend=backend)
    policy.start(np.empty((0, len(DEVICE_CONTEXT.features))), space)
    deployed = DeployedPolicy(policy, DEVICE_CONTEXT)
    asker = SimpleNamespace(express_below=0, on=lambda backend: deployed)
    plan = decide(large(backend, n, **options), asker)
    return plan, f"{plan.ladder[0].method}:{plan.ladder[0][0]}"


def test_small_systems_are_factorized_in_fp64(backend):
    choice, first = chosen(backend, LEAST_N - 1)
    assert first == "lu:fp64"
    assert "no lower format" in choice.reason


def test_large_systems_start_low_and_a_heavy_diagonal_lower(backend):
    choice, first = chosen(backend, 8192)
    assert first == "lu/local:fp16x2"
    assert [f"{a.method}:{a[0]}" for a in choice.ladder][1:3] == ["lu/local:fp64", "lu:fp64"]
    assert chosen(backend, 16384, heavy=True)[1] == "lu/local:fp16"


@pytest.mark.parametrize("order", "CF")
def test_the_look_is_that_of_the_processor(order):
    for n in (10, 64, 200):
        for problem in (
            rw.LinearSystem(system(n)[0], np.ones(n)),
            rw.problems.randsvd(n, 1e6, 3, rng=rng(0)),
            rw.LinearSystem(np.eye(n), np.ones(n)),
        ):
            A = np.asarray(problem.A, order=order)
            expected = probe.row_features(SimpleNamespace(A=A, n=n, is_sparse=False))
            got = device_row_features(cupy.asarray(A))
            # A pivot of almost the same size may lead to another remainder.
            assert got.pop("remainder") == pytest.approx(expected.pop("remainder"), rel=0.1)
            assert got == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("kappa", "mode", "bits"),
    [(1e2, 3, 22), (1e4, 3, 22), (1e6, 3, 53), (1e9, 3, 53), (1e9, 1, 53), (1e9, 2, 11)],
)
def test_the_bits_that_may_suffice(kappa, mode, bits):
    problem = rw.problems.randsvd(400, kappa, mode, rng=rng(1))
    features = device_row_features(cupy.asarray(problem.A))
    assert bits_that_may_suffice(features, 10**6) == (bits, 0)
    gaussian = device_row_features(cupy.asarray(rng(0).standard_normal((400, 400))))
    assert bits_that_may_suffice(gaussian, 10**6) == (22, 0)


def test_22_bits_with_many_corrections_are_taken_where_they_are_priced_less(backend, monkeypatch):
    hard = {"diagonal_share": 0.0, "coherence": 12.3, "remainder": 0.9}  # kappa = 1e6, geometric
    assert bits_that_may_suffice(hard, 16384) == (22, HARD_STEPS)
    assert bits_that_may_suffice(hard, HARD_UP_TO) == (53, 0)
    monkeypatch.setattr(systems, "device_row_features", lambda A: hard)
    for n, fmt in ((16384, "fp16x2"), (7000, "fp64")):
        assert chosen(backend, n, prices=generic_device_prices())[1] == f"lu/local:{fmt}"


def test_a_definite_matrix_may_be_factorized_by_cholesky(backend):
    choice, _ = chosen(backend, 4096, symmetric=True)
    assert choice.ladder[0].method == "cholesky"
    assert any(action.method == "lu" for action in choice.ladder)


def test_gmres_may_take_half_as_long_as_the_next_factors(backend):
    n = 8192
    ladder = chosen(backend, n)[0].ladder
    assert f"{ladder[1].method}:{ladder[1][0]}" == "lu/local:fp64"
    for name in ("lu/local", "lu"):
        later = tuple(one for one in ladder if one == ladder[0] or one.method == name)
        budget = gmres_budget(PRICES, later, 0, Shape(n, n * n))
        if PRICES.prices(name, "fp64"):
            half = PRICES.factor_seconds(name, "fp64", n) / 2
            assert budget * PRICES.step_seconds("fp64", n) == pytest.approx(half, rel=0.1)


def test_what_does_not_fit_is_left_out_or_refused(backend):
    n = 8192
    choice, first = chosen(backend, n, free=9 * n * n)
    assert first == "lu/local:fp16x2"
    assert all(action.method == "lu/local" for action in choice.ladder)
    with pytest.raises(DeviceMemoryError, match="GB are free"):
        chosen(backend, n, free=1000)


def test_memory_that_runs_out_is_a_clear_error(backend, monkeypatch):
    def allocate(*args, **kwargs):
        raise MemoryError("out of memory")

    monkeypatch.setattr(host_device.lu, "factorize", allocate)
    A, b = system(5)
    with pytest.raises(DeviceMemoryError, match="does not suffice"):
        rw.solve(cupy.asarray(A), cupy.asarray(b))


def test_a_slow_action_gives_way(backend):
    learner = DeviceLearner()
    choice, first = chosen(backend, 8192, learner=learner)
    assert first == "lu/local:fp16x2"
    for _ in range(3):
        choice.learn([], 10.0)
    assert chosen(backend, 8192, learner=learner)[1].startswith("lu:")
    assert chosen(backend, 32768, learner=learner)[1] == "lu/local:fp16x2"


def test_a_solver_learns_on_the_device(backend):
    solver = rw.Solver()
    A, b = system(30)
    x = solver.solve(cupy.asarray(A), cupy.asarray(b))
    assert isinstance(x, cupy.ndarray)
    assert solver._device_learner._seen
    F = solver.factor(cupy.asarray(A))
    assert isinstance(F.solve(cupy.asarray(b)), cupy.ndarray)
    assert isinstance(solver.solve(A, b, device="cuda"), np.ndarray)
    assert isinstance(
        rw.Solver(policy="fp32").solve(cupy.asarray(A), cupy.asarray(b)), cupy.ndarray
    )


def test_prices_survive_json():
    prices = generic_device_prices()
    assert DevicePrices.from_dict(asdict(prices)) == prices
    for wrong in (None, {}, asdict(prices) | {"factors": {"lu": {"fp64": {"x": 1}}}}):
        with pytest.raises(ValueError, match="no prices of a GPU"):
            DevicePrices.from_dict(wrong)


def test_arrays_of_the_processor_stay_there():
    A, b = system(3)
    assert place_of(A, b, None) is None
    assert place_of(A.tolist(), b.tolist(), "cpu") is None


# Measuring prices, and the command line.


def test_calibration_prices_every_method_of_the_device(backend):
    seconds = iter(range(10**6))  # each look at the clock is a second later
    prices = calibrate_device(backend, (20, 30, 40), runs=1, clock=lambda: float(next(seconds)))
    assert DevicePrices.from_dict(asdict(prices)) == prices
    for method in ("lu", "lu/local", "lu/tournament", "lu/butterfly", "cholesky"):
        for fmt in METHODS[method].formats:
            if backend.runs(method, fmt):
                assert prices.factor_seconds(method, fmt.name, 30) == pytest.approx(1.0)
    assert prices.bytes_per_second == 2 * 8 * 40 * 40  # a copy of A, too, took a second
    assert 0.5 < prices.step_seconds("fp64", 30) < 1.5
    assert prices.device == backend.machine.key


def test_generic_prices_are_physical():
    prices = generic_device_prices()
    assert 1e11 < prices.bytes_per_second < 1e13  # no memory is faster
    for by_format in prices.factors.values():
        for price in by_format.values():
            assert 1e12 < price.flops_per_second < 1e15


def test_a_fit_finds_the_prices_that_times_were_made_with():
    n = np.array([500.0, 1000.0, 4000.0, 16000.0])
    terms = np.stack([np.ones(4), n, 2 / 3 * n**3])
    true = np.array([3e-4, 2e-6, 1e-14])
    np.testing.assert_allclose(nonnegative_fit(terms.T, true @ terms), true, rtol=1e-6)


def test_prices_measured_here_are_preferred_and_bad_ones_warned_of(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    device_prices.cache_clear()
    assert device_prices(backend.machine) == generic_device_prices()
    measured = replace(generic_device_prices(), step=1.0)
    path = save_device_prices(measured, backend.machine)
    device_prices.cache_clear()
    assert device_prices(backend.machine) == measured
    saved = json.loads(path.read_text())
    earlier = {"schema": "roundwise-device-prices", "version": 1, **asdict(measured)}
    elsewhere = saved | {"machine": saved["machine"] | {"gpu": "another"}}
    for content in ({}, earlier, elsewhere, saved | {"device_prices": {}}):
        path.write_text(json.dumps(content))
        device_prices.cache_clear()
        with pytest.warns(ProfileWarning, match="calibrate --device cuda"):
            assert device_prices(backend.machine) == generic_device_prices()
    device_prices.cache_clear()


@pytest.fixture
def files(tmp_path):
    A, b = system(12)
    paths = tmp_path / "A.mtx", tmp_path / "b.mtx"
    for path, values in zip(paths, (A, b[:, None]), strict=True):
        rw.problems.write_matrix_market(path, values)
    return paths


def test_the_command_solves_on_the_device(backend, files):
    text = succeed("solve", *files, "--device", "cuda", "--explain")
    assert "On the GPU lu in fp64" in text
    assert "--device is for the library's own choice" in fail(
        2,
        "solve",
        *files,
        "--device",
        "cuda",
        "--arithmetic",
        "native",
        "--action",
        "-".join(["fp64"] * 4),
    )


@pytest.mark.skipif(is_available(), reason="there is a GPU")
def test_without_a_gpu_the_remedy_is_named(files):
    places.backend_of.cache_clear()
    for command in (("solve", *files), ("calibrate",)):
        line = fail(1, *command, "--device", "cuda")
        assert "roundwise[cuda12]" in line or "NVIDIA GPU" in line
    with pytest.raises(DeviceUnavailable):
        rw.solve(np.eye(2), np.ones(2), device="cuda")
    with pytest.raises(DeviceUnavailable):
        rw.backends.get_backend("cuda")


def test_a_forked_child_is_told_to_be_spawned(backend, monkeypatch):
    A, b = cupy.asarray(np.eye(3)), cupy.asarray(np.ones(3))
    rw.solve(A, b)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(DeviceUnavailable, match="'spawn' or 'forkserver'"):
        rw.solve(A, b)


def test_info_tells_of_the_device():
    facts = json.loads(succeed("info", "--json"))["device"]
    assert facts["available"] == is_available()
    assert facts.get("reason", "") == why_not()


def test_the_command_calibrates_the_device(backend, monkeypatch, tmp_path):
    monkeypatch.setattr(calibrating, "get_backend", lambda name: backend)
    monkeypatch.setattr(calibrating, "QUICK_DEVICE_SIZES", (16, 24, 32))
    text = succeed("calibrate", "--device", "cuda", "--quick", "--out", tmp_path / "prices.json")
    assert "lu/local fp16x2" in text
    saved = json.loads((tmp_path / "prices.json").read_text())
    assert "measured by" in DevicePrices.from_dict(saved["device_prices"]).source


def test_a_solve_while_the_stream_is_captured_is_refused(backend, monkeypatch):
    captured = SimpleNamespace(ptr=0, is_capturing=lambda: True)
    monkeypatch.setattr(type(cupy.cuda), "get_current_stream", lambda self: captured)
    A, b = cupy.asarray(np.eye(3)), cupy.asarray(np.ones(3))
    with pytest.raises(CaptureError, match="before the capture"):
        rw.solve(A, b)


@pytest.mark.parametrize("columns", [None, 1, 4])
@pytest.mark.parametrize("assume_a", [None, "general", "positive definite"])
@pytest.mark.parametrize("n", [1, 40, 150, 300])
def test_the_express_path_gives_the_bits_and_the_action_of_the_general_one(
    backend, n, assume_a, columns, monkeypatch
):
    A = rng(n).standard_normal((n, n))
    A = A @ A.T + n * np.eye(n) if assume_a == "positive definite" else A
    b = rng(1).standard_normal(n if columns is None else (n, columns))
    A, b = cupy.asarray(A), cupy.asarray(b)
    taken = []
    analyse = type(backend).analyse

    def noted(self, A, method):
        taken.append(method)
        return analyse(self, A, method)

    monkeypatch.setattr(type(backend), "analyse", noted)
    place = Place(backend, 0, takes_host=False)
    options = Options.checked(None, assume_a, "backward")
    x, looked = express_on_device(A, b, options, place)
    assert looked is None  # n < 3000
    solution = rw.solve(A, b, assume_a=assume_a, full_output=True)
    if x is not None:
        assert np.array_equal(x.get(), solution.x.get())
        assert taken == [taken[0]] * 2
        assert solution.action.startswith(f"{taken[0]}:fp64")
    else:
        assert n < 150
        assert assume_a == "positive definite"
    assert np.array_equal(rw.solve(A, b, assume_a=assume_a).get(), solution.x.get())


def test_the_express_path_refuses_what_needs_a_closer_look(backend):
    place, n = Place(backend, 0, takes_host=False), 200
    A, b = rng(0).standard_normal((n, n)), rng(1).standard_normal(n)
    singular = A.copy()
    singular[:, 1] = singular[:, 0]
    with_nan = A.copy()
    with_nan[3, 4] = np.nan
    ill = A.copy()
    ill[:, 1] = ill[:, 0] * (1 + 1e-15)
    for given in (singular, with_nan, ill, 1e200 * A):
        found = express_on_device(cupy.asarray(given), cupy.asarray(b), PLAIN, place)
        assert found == (None, None)
    for wrong in (b[:-1], np.zeros(n), b * 1e100, np.append(b[1:], np.inf), b.astype("f4")):
        assert express_on_device(cupy.asarray(A), cupy.asarray(wrong), PLAIN, place)[0] is None
    forward = Options.checked(None, None, "forward")
    assert express_on_device(cupy.asarray(A), cupy.asarray(b), forward, place)[0] is None
    assert express_on_device(cupy.asarray(A), cupy.asarray(b), PLAIN, place)[0] is not None


@pytest.mark.parametrize("heavy", [False, True])
def test_rows_are_looked_at_once_and_the_choice_is_the_general_one(backend, monkeypatch, heavy):
    monkeypatch.setattr(device_policies, "LEAST_N", 150)
    looks, taken = [], []
    look, analyse = device_row_features, type(backend).analyse

    def noted_look(A):
        looks.append(len(A))
        return look(A)

    def noted(self, A, method):
        taken.append(method)
        return analyse(self, A, method)

    monkeypatch.setattr(express_device, "device_row_features", noted_look)
    monkeypatch.setattr(systems, "device_row_features", noted_look)
    monkeypatch.setattr(type(backend), "analyse", noted)
    n = 200
    A = rng(0).standard_normal((n, n)) + (40.0 if heavy else 0.0) * np.eye(n)
    A, b = cupy.asarray(A), cupy.asarray(rng(1).standard_normal(n))
    x = rw.solve(A, b)
    assert looks == [n]
    solution = rw.solve(A, b, full_output=True)
    assert looks == [n, n]
    assert np.array_equal(x.get(), solution.x.get())
    assert len(set(taken)) == 1
