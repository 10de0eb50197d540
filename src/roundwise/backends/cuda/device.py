"""The GPU: its arrays (CuPy), our kernels, and products in the formats of its units.

Kernels are `.cu` files in the folder `kernels`; NVRTC compiles them through CuPy when they are
first used, and CuPy keeps the result in its cache. Products are cuBLAS's.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from contextlib import AbstractContextManager
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from roundwise._forking import cached_property
from roundwise.backends.cuda.plan import Plan, address
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FloatFormat

_REMEDY = (
    'install CuPy for your CUDA version: pip install "roundwise[cuda12]" or "roundwise[cuda13]"'
)
_REAL = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

# cuBLAS's names of types and of arithmetic, as in library_types.h and cublas_api.h.
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_FP32, _COMPUTE_FP64, _COMPUTE_TF32 = 68, 70, 77
_DEFAULT_ALGORITHM = -1

__all__ = ["Device", "DeviceUnavailable", "address", "get_device", "is_available", "why_not"]


class DeviceUnavailable(RoundwiseError, RuntimeError):
    """There is no GPU to compute on; the message says what is missing."""


class Device:
    """The current CUDA device."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        self.driver = importlib.import_module("cupy_backends.cuda.api.driver")
        self._kernels: dict[tuple[str, str, Any, Any], Any] = {}
        self._recording: Plan | None = None
        self._cupyx = importlib.import_module("cupyx")
        self._linalg = importlib.import_module("cupyx.scipy.linalg")
        self._lock = threading.Lock()
        self._scalars = {
            (dtype, value): np.array(value, dtype=dtype)
            for dtype in ("float32", "float64")
            for value in (-1.0, 0.0, 1.0)
        }

    @cached_property
    def name(self) -> str:
        """What the device calls itself."""
        properties = self.xp.cuda.runtime.getDeviceProperties(self.xp.cuda.Device().id)
        return str(properties["name"].decode())

    @property
    def memory_free(self) -> int:
        """Bytes that could still be allocated, those that CuPy keeps for reuse included."""
        free, _ = self.xp.cuda.runtime.memGetInfo()
        pool = self.xp.get_default_memory_pool()
        return int(free) + int(pool.free_bytes())

    @property
    def number(self) -> int:
        """CUDA's number of it."""
        return int(self.xp.cuda.Device().id)

    @cached_property
    def processors(self) -> int:
        """How many streaming multiprocessors it has."""
        return int(self.xp.cuda.Device().attributes["MultiProcessorCount"])

    @cached_property
    def key(self) -> str:
        """The device with the versions that its results depend on."""
        runtime = self.xp.cuda.runtime
        handle = self.xp.cuda.device.get_cublas_handle()
        versions = {
            "driver": runtime.driverGetVersion(),
            "CUDA": runtime.runtimeGetVersion(),
            "CuPy": self.xp.__version__,
            "cuBLAS": self.cublas.getVersion(handle),
        }
        return f"{self.name}; " + ", ".join(f"{name} {of}" for name, of in versions.items())

    def synchronize(self) -> None:
        """Wait for what was launched on the current stream."""
        self.xp.cuda.get_current_stream().synchronize()

    def launch(
        self,
        source: str,
        kernel: str,
        grid: int | tuple[int, ...],
        block: int,
        args: tuple[Any, ...],
        real: Any = np.float64,
        stored: Any = None,
    ) -> None:
        """Run a kernel of a source file, which is compiled for types of numbers.

        `real` is the type that it computes in, `stored` that of the numbers it reads.
        """
        stored = real if stored is None else stored
        key = (source, kernel, real, stored)
        function = self._kernels.get(key)
        if function is None:
            module = self._module(source, np.dtype(real), np.dtype(stored))
            function = self._kernels[key] = module.get_function(kernel)
        grid = (grid,) if isinstance(grid, int) else grid
        if self._recording is None:
            function(grid, (block,), args)
        else:
            self._recording.add_launch(_handle(function), (*grid, 1, 1)[:3], block, args)

    @cache  # noqa: B019  (there is one device object)
    def _module(self, source: str, real: Any, stored: Any) -> Any:
        text = resources.files(__package__).joinpath("kernels", f"{source}.cu").read_text("utf-8")
        options = ("--std=c++17", f"-DREAL={_REAL[real]}", f"-DSTORED={_REAL[stored]}")
        return self.xp.RawModule(code=text, options=options)

    def gemm(
        self,
        shape: tuple[int, int, int],
        A: tuple[int, int],
        B: tuple[int, int],
        C: tuple[int, int],
        alpha: float,
        beta: float,
        kind: str,
        transpose_B: bool = False,
        batch: tuple[int, int, int, int] | None = None,
    ) -> None:
        """``C = alpha A B + beta C`` with matrices by rows, each given by address and row length.

        ``shape`` is (m, n, k). `kind` names the arithmetic: float64, float32, tf32, float16 or
        bfloat16; the result of the last three is in float32. `batch` has a count, and the
        distances of A, B and C of one product to those of the next.
        """
        m, n, k = shape
        if min(shape) == 0:
            return
        result = "float64" if kind == "float64" else "float32"
        operand = "float32" if kind == "tf32" else kind
        compute = {"float64": _COMPUTE_FP64, "tf32": _COMPUTE_TF32}.get(kind, _COMPUTE_FP32)
        one, other = self._scalars[result, alpha], self._scalars[result, beta]
        handle = self.xp.cuda.device.get_cublas_handle()
        ours, theirs = _TYPES[operand], _TYPES[result]
        # cuBLAS has matrices by columns: ours are their transposes, and C' = B' A'.
        head = (handle, int(transpose_B), 0, n, m, k, one.ctypes.data)
        count, *steps = batch or (1, 0, 0, 0)
        args: tuple[int, ...]
        if batch is None:
            args = (*head, B[0], ours, B[1], A[0], ours, A[1], other.ctypes.data)
            args += (C[0], theirs, C[1], compute, _DEFAULT_ALGORITHM)
        else:
            args = (*head, B[0], ours, B[1], steps[1], A[0], ours, A[1], steps[0])
            args += (other.ctypes.data, C[0], theirs, C[1], steps[2], count, compute)
            args += (_DEFAULT_ALGORITHM,)
        product = "gemmEx" if batch is None else "gemmStridedBatchedEx"
        if self._recording is None:
            getattr(self.cublas, product)(*args)
        else:
            self._recording.add_product(product, args[1:])

    def cholesky(self, A: Any) -> Any:
        """L of a symmetric positive definite matrix, by cuSOLVER; NaN if it is not definite."""
        try:
            with self._cupyx.errstate(linalg="raise"):
                return self.xp.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return self.xp.full_like(A, np.nan)

    def lu_factor(self, A: Any) -> tuple[Any, Any]:
        """LU with partial pivoting, by cuSOLVER, as SciPy returns it."""
        with warnings.catch_warnings():  # of a zero pivot, which the caller looks for
            warnings.simplefilter("ignore")
            factors: tuple[Any, Any] = self._linalg.lu_factor(A, check_finite=False)
        return factors

    def lu_solve(self, factors: tuple[Any, Any], B: Any, transpose: bool) -> Any:
        """Substitution with what `lu_factor` returned."""
        return self._linalg.lu_solve(factors, B, trans=int(transpose), check_finite=False)

    def solve_triangular(self, L: Any, B: Any) -> Any:
        """``L X = B`` for a lower triangle, by cuBLAS."""
        return self._linalg.solve_triangular(L, B, lower=True, check_finite=False)

    def planned(self, run: Any, arena: Any) -> Plan:
        """What ``run()`` launches, as a plan that can be run again with another arena.

        The arena is the memory that all of it works in. Nothing is launched.
        """
        with self._lock:
            self._recording = Plan(self, arena)
            try:
                run()
                return self._recording.finished()
            finally:
                self._recording = None

    def aside(self) -> AbstractContextManager[None]:
        """Within it, what is planned runs on a second stream, beside the caller's."""
        return self._plan.aside()

    def signal(self, name: Any) -> None:
        """Note in the plan that all so far on this stream is done."""
        self._plan.add_signal(name)

    def await_signal(self, name: Any) -> None:
        """Let this stream of the plan wait for a signal; for one that never comes, not at all."""
        self._plan.add_wait(name)

    @property
    def _plan(self) -> Plan:
        if self._recording is None:
            raise RuntimeError("only plans have two streams; call this within `planned`")
        return self._recording


def _handle(function: Any) -> int:
    """CUDA's handle of a kernel that CuPy compiled."""
    return int(getattr(function, "kernel", function).ptr)


def why_not() -> str:
    """Why there is no device; "" if there is one."""
    try:
        xp = importlib.import_module("cupy")
    except ImportError as error:
        return f"CuPy cannot be imported ({error}); {_REMEDY}"
    try:
        count = xp.cuda.runtime.getDeviceCount()
    except xp.cuda.runtime.CUDARuntimeError as error:
        return f"no NVIDIA GPU is visible to CUDA ({error}); check the driver with nvidia-smi"
    return "" if count else "no NVIDIA GPU is visible to CUDA; check the driver with nvidia-smi"


def is_available() -> bool:
    """Whether there is a device to compute on."""
    return not why_not()


@cache
def get_device() -> Device:
    """The device; `DeviceUnavailable` if there is none."""
    if reason := why_not():
        raise DeviceUnavailable(reason)
    return Device(importlib.import_module("cupy"))


def storage_type(fmt: FloatFormat) -> Any:
    """The type of factors in a format: those below FP64 are kept in FP32."""
    return np.float64 if fmt.name == "fp64" else np.float32
