"""Threads, streams, allocators and graphs of others beside ours: `make test-gpu` runs these."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import roundwise as rw
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends.cuda import plan
from roundwise.backends.cuda.device import get_device, why_not
from roundwise.solver.places import CaptureError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=why_not())]

rng = np.random.default_rng


@pytest.fixture(scope="module")
def cupy():
    return get_device().xp


def residual_of(A, x, b):
    """The backward error in units of the gate, by the processor in extended precision."""
    A, x, b = (np.asarray(M.get(), dtype=np.longdouble) for M in (A, x, b))
    r = np.abs(b - (A @ x)).max()
    size = np.abs(A).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max()
    return float(r / size) / default_tolerance(len(A))


def drawn(cupy, n, seed, columns=None, definite=False):
    A = cupy.random.default_rng(seed).standard_normal((n, n))
    if definite:
        A = A @ A.T + n * cupy.eye(n)
    shape = n if columns is None else (n, columns)
    return A, cupy.random.default_rng(seed + 1).standard_normal(shape)


@pytest.mark.parametrize(("threads", "solves", "most"), [(4, 200, 300), (3, 6, 2500)])
def test_threads_solve_systems_of_new_sizes_on_streams_of_their_own(cupy, threads, solves, most):
    """Every answer is judged by a residual that none of our kernels has computed."""
    errors = []

    def work(thread):
        draw = rng(thread)
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
            for i in range(solves):
                n = int(draw.integers(2, most))
                columns = [None, 1, 3][i % 3]
                definite = i % 4 == 0
                A, b = drawn(cupy, n, 1000 * thread + i, columns, definite)
                x = rw.solve(A, b, assume_a="positive definite" if definite and i % 8 else None)
                errors.append((residual_of(A, x, b), n, columns, definite))
        return thread

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(work, range(threads))) == list(range(threads))
    assert len(errors) == threads * solves
    assert max(errors)[0] <= 1.0, max(errors)


def test_threads_share_factors_on_streams_of_their_own(cupy):
    n = 777
    A, B = drawn(cupy, n, 5, columns=40)
    cupy.cuda.get_current_stream().synchronize()
    F = rw.factor(A)
    F.solve(B[:, 0])

    def work(thread):
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
            return [F.solve(cupy.ascontiguousarray(B[:, j])).get() for j in range(thread, 40, 4)]

    with ThreadPoolExecutor(4) as pool:
        for thread, answers in enumerate(pool.map(work, range(4))):
            for j, x in zip(range(thread, 40, 4), answers, strict=True):
                assert np.array_equal(x, F.solve(cupy.ascontiguousarray(B[:, j])).get())


def test_first_run_later_runs_and_graphs_give_the_same_bits(cupy, monkeypatch):
    monkeypatch.setattr(plan, "_PLANS", {})
    backend = rw.backends.get_backend("cuda")
    for n in (70, 1111):
        A, b = drawn(cupy, n, n)
        factors = backend.analyse(A, "lu/local").factorize(A, "fp64")
        answers = [factors.solve(b).get() for _ in range(plan.DIRECT_RUNS + 3)]
        assert all(np.array_equal(x, answers[0]) for x in answers)
        answers = [rw.solve(A, b).get() for _ in range(plan.DIRECT_RUNS + 8)]
        assert all(np.array_equal(x, answers[0]) for x in answers)
    assert plan.held()[1] >= 2  # of the factors that stayed where they were


def test_plans_stay_within_their_bound(cupy, monkeypatch):
    monkeypatch.setattr(plan, "_PLANS", {})
    monkeypatch.setattr(plan, "MOST_ITEMS", 1000)
    for n in (300, 500, 300, 700, 300, 300, 900, 300):
        A, b = drawn(cupy, n, n)
        assert residual_of(A, rw.solve(A, b), b) <= 1.0
        assert plan.held()[2] <= 1000 or plan.held()[0] == 1


@pytest.mark.parametrize("stream", ["null", "ptds", "blocking", "non-blocking"])
def test_every_kind_of_stream(cupy, stream):
    cuda = cupy.cuda
    made = {
        "null": cuda.Stream.null,
        "ptds": cuda.Stream.ptds,
        "blocking": cuda.Stream(),
        "non-blocking": cuda.Stream(non_blocking=True),
    }[stream]
    with made:
        for n in (50, 600, 600, 600, 600):
            A, b = drawn(cupy, n, n)
            x = rw.solve(A, b)
            made.synchronize()
            assert residual_of(A, x, b) <= 1.0


def test_torch_s_default_stream_while_cupy_s_is_another_one(cupy):
    torch = pytest.importorskip("torch")
    n = 1500
    draw = torch.Generator(device="cuda").manual_seed(1)
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(5):  # nothing waits between what torch computes and what we read
            A = torch.randn(n, n, device="cuda", dtype=torch.float64, generator=draw)
            b = torch.randn(n, device="cuda", dtype=torch.float64, generator=draw)
            x = 1.0 * rw.solve(A, b)
            torch.cuda.synchronize()
            given = (cupy.from_dlpack(M) for M in (A, x, b))
            assert residual_of(*given) <= 1.0


def test_other_allocators(cupy):
    """CuPy's unpooled and stream-ordered memory, and torch's pool."""
    torch = pytest.importorskip("torch")
    cuda = cupy.cuda
    before = cuda.get_allocator()
    tensors = {}

    def allocated(size, number):
        tensor = torch.empty(max(size, 1), dtype=torch.uint8, device=f"cuda:{number}")
        tensors[tensor.data_ptr()] = tensor
        return tensor.data_ptr()

    def freed(place, number):
        tensors.pop(place, None)

    try:
        for allocator in (
            None,
            cuda.MemoryAsyncPool().malloc,
            cuda.PythonFunctionAllocator(allocated, freed).malloc,
        ):
            cuda.set_allocator(allocator)
            for n in (40, 650, 650, 650, 650):
                A, b = drawn(cupy, n, n)
                assert residual_of(A, rw.solve(A, b), b) <= 1.0
            A = b = None
            cuda.runtime.deviceSynchronize()
    finally:
        cuda.set_allocator(before)


def test_a_graph_that_torch_captures_in_another_thread(cupy):
    """Kernels that are loaded for the first time would end any capture: ours are loaded before."""
    torch = pytest.importorskip("torch")
    known, stop, answers = threading.Event(), threading.Event(), []

    def solving():
        try:
            with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
                for n in (100, 137, 500, 700, *range(100, 1000, 37)):
                    if n == 174:
                        known.set()
                    A, b = drawn(cupy, n, n)
                    answers.append(residual_of(A, rw.solve(A, b), b))
        finally:
            known.set()
            stop.set()

    thread = threading.Thread(target=solving)
    thread.start()
    y = torch.ones(1000, device="cuda")
    z = 2 * y
    known.wait()
    captures = 0
    while not stop.is_set():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            z = 2 * y
        graph.replay()
        torch.cuda.synchronize()
        assert bool((z == 2).all())
        captures += 1
    thread.join()
    assert captures > 0
    assert len(answers) == 4 + len(range(100, 1000, 37))
    assert max(answers) <= 1.0


def test_a_solve_within_a_capture_is_refused_and_the_capture_goes_on(cupy):
    torch = pytest.importorskip("torch")
    A, b = (
        torch.eye(10, device="cuda", dtype=torch.float64),
        torch.ones(10, device="cuda", dtype=torch.float64),
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = 3 * b
        with pytest.raises(CaptureError, match="before the capture"):
            rw.solve(A, b)
    graph.replay()
    assert bool((z == 3).all())
    assert bool((rw.solve(A, b) == 1).all())


@pytest.mark.parametrize("columns", [2, 16, 256])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("policy", ["default", "fp16x2", "lu:fp64", "lu/butterfly:fp16x2"])
def test_many_columns(cupy, columns, order, policy):
    n = 1300
    A, B = drawn(cupy, n, 3, columns)
    A = A + 30 * cupy.eye(n)
    X = rw.solve(
        cupy.asarray(A, order=order), cupy.asarray(B, order="CF"[order == "C"]), policy=policy
    )
    for j in range(0, columns, 37):
        assert residual_of(A, X[:, j], B[:, j]) <= 1.0
    F = rw.factor(A, columns=columns)
    for trans, matrix in (("N", A), ("T", A.T)):
        X = F.solve(B, trans=trans)
        assert residual_of(matrix, X[:, 1], B[:, 1]) <= 1.0


@pytest.mark.parametrize("fmt", ["fp64", "fp32", "fp16x2", "fp16"])
@pytest.mark.parametrize("n", [1, 40, 511, 1300])
def test_cholesky_in_every_format(cupy, fmt, n):
    backend = rw.backends.get_backend("cuda")
    A, b = drawn(cupy, n, n, definite=True)
    solution = rw.solve(A, b, policy=f"cholesky:{fmt}-fp64-fp64-fp64", full_output=True)
    assert residual_of(A, solution.x, b) <= 1.0
    assert len(solution.attempts) == 1, solution.explain()
    with pytest.raises(rw.backends.ArithmeticFailure, match="not_positive_definite"):
        backend.analyse(-A, "cholesky").factorize(-A, fmt)
