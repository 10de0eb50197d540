"""The GPU: its arrays (CuPy), our kernels, and products in the formats of its units.

Kernels are `.cu` files in the folder `kernels`; NVRTC compiles them through CuPy when they are
first used, and CuPy keeps the result in its cache. Products are cuBLAS's.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from functools import cache
from importlib import resources
from time import perf_counter
from typing import Any

import numpy as np

from roundwise._forking import cached_property
from roundwise.backends.cuda import cublas
from roundwise.backends.cuda.plan import address
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

_log = logging.getLogger(__name__)

__all__ = ["Device", "DeviceUnavailable", "address", "get_device", "is_available", "why_not"]


Constants = tuple[tuple[str, int], ...]
"""Names and values that a source is compiled with."""


class DeviceUnavailable(RoundwiseError, RuntimeError):
    """There is no GPU to compute on; the message says what is missing."""


class Device:
    """The current CUDA device."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        self.driver = importlib.import_module("cupy_backends.cuda.api.driver")
        self._kernels: dict[tuple[str, str, Any, Any, Constants], Any] = {}
        self._cusolver = importlib.import_module("cupy_backends.cuda.libs.cusolver")
        self._linalg = importlib.import_module("cupyx.scipy.linalg")
        self._scalars = scalars()

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
    def records_products(self) -> bool:
        """Whether there is a cuBLAS whose products graphs can record."""
        return cublas.library() is not None

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
        constants: Constants = (),
    ) -> None:
        """Run a kernel of a source file, which is compiled for types of numbers.

        `real` is the type that it computes in, `stored` that of the numbers it reads. `constants`
        are names and values that the source is compiled with. "one+two" are two files, one after
        the other.
        """
        grid = (grid,) if isinstance(grid, int) else grid
        self.kernel(source, kernel, real, stored, constants)(grid, (block,), args)

    def kernel(
        self, source: str, kernel: str, real: Any, stored: Any = None, constants: Constants = ()
    ) -> Any:
        """A kernel of a source file, compiled for types of numbers; see `launch`."""
        stored = real if stored is None else stored
        key = (source, kernel, real, stored, constants)
        function = self._kernels.get(key)
        if function is None:
            module = self._module(source, np.dtype(real), np.dtype(stored), constants)
            function = self._kernels[key] = module.get_function(kernel)
        return function

    @cache  # noqa: B019  (there is one device object)
    def _module(self, source: str, real: Any, stored: Any, constants: Constants) -> Any:
        types = (("REAL", _REAL[real]), ("STORED", _REAL[stored]))
        options = ("--std=c++17", *(f"-D{name}={of}" for name, of in (*types, *constants)))
        module, start = self.xp.RawModule(code=source_text(source), options=options), perf_counter()
        module.compile()
        _log.info(
            "kernels %s for %s: %.1f s (compiled once on a machine, then in CuPy's cache)",
            *(source, " ".join(options[1:]), perf_counter() - start),
        )
        return module

    def gemm(self, *args: Any, **kwargs: Any) -> None:
        """A product by cuBLAS on the current stream; see `product` for the arguments."""
        name, rest = self.product(*args, **kwargs)
        if name:
            getattr(self.cublas, name)(self.xp.cuda.device.get_cublas_handle(), *rest)

    def product(
        self,
        shape: tuple[int, int, int],
        A: tuple[int, int],
        B: tuple[int, int],
        C: tuple[int, int],
        alpha: float,
        beta: float,
        kind: str,
        transpose_B: bool = False,
        transpose_A: bool = False,
        batch: tuple[int, int, int, int] | None = None,
    ) -> tuple[str, tuple[int, ...]]:
        """cuBLAS's function for ``C = alpha A B + beta C``, and its arguments after the handle.

        The matrices are by rows, each given by address and row length; `transpose_A` says that A'
        is what lies there. ``shape`` is (m, n, k); if one of them is 0, the name is "". `kind`
        names the arithmetic: float64, float32, tf32, float16 or bfloat16; the result of the last
        three is in float32. `batch` has a count, and the distances of A, B and C of one product to
        those of the next.
        """
        m, n, k = shape
        if min(shape) == 0:
            return "", ()
        result = "float64" if kind == "float64" else "float32"
        operand = "float32" if kind == "tf32" else kind
        compute = {"float64": _COMPUTE_FP64, "tf32": _COMPUTE_TF32}.get(kind, _COMPUTE_FP32)
        one, other = (self._scalars[result, value].ctypes.data for value in (alpha, beta))
        ours, theirs = _TYPES[operand], _TYPES[result]
        # cuBLAS has matrices by columns: ours are their transposes, and C' = B' A'.
        head = (int(transpose_B), int(transpose_A), n, m, k, one)
        tail = (compute, _DEFAULT_ALGORITHM)
        if batch is None:
            operands = (B[0], ours, B[1], A[0], ours, A[1], other, C[0], theirs, C[1])
            return "gemmEx", (*head, *operands, *tail)
        count, step_A, step_B, step_C = batch
        right, left = (B[0], ours, B[1], step_B), (A[0], ours, A[1], step_A)
        into = (other, C[0], theirs, C[1], step_C, count)
        return "gemmStridedBatchedEx", (*head, *right, *left, *into, *tail)

    def cholesky(self, A: tuple[int, int], n: int, real: Any, info: int, *, upper: bool) -> None:
        """Factorize a matrix by rows in place, by cuSOLVER: ``U' U`` or ``L L'``.

        A is given by address and row length; the other triangle is not read. What cuSOLVER says,
        0 if A is positive definite, is written to the address `info`.
        """
        cusolver, letter = self._cusolver, "d" if real == np.float64 else "s"
        handle = self.xp.cuda.device.get_cusolver_handle()
        args = handle, int(not upper), n, *A  # by columns, the upper triangle is the lower one
        size = getattr(cusolver, f"{letter}potrf_bufferSize")(*args)
        space = self.xp.empty(size, dtype=real)
        getattr(cusolver, f"{letter}potrf")(*args, address(space), size, info)

    def divide_by_triangle(
        self, L: tuple[int, int], k: int, B: tuple[int, int], rows: int, real: Any
    ) -> None:
        """``B = B L'^-1`` in place, by cuBLAS, for a lower triangle L of k columns."""
        trsm = self.cublas.dtrsm if real == np.float64 else self.cublas.strsm
        handle, one = (
            self.xp.cuda.device.get_cublas_handle(),
            self._scalars[np.dtype(real).name, 1.0],
        )
        # By columns: ``B' = L^-1 B'`` from the left, L being the transpose of an upper triangle.
        trsm(handle, 0, 1, 1, 0, k, rows, one.ctypes.data, *L, *B)

    def lu_factor(self, A: Any) -> tuple[Any, Any]:
        """LU with partial pivoting, by cuSOLVER, as SciPy returns it."""
        with warnings.catch_warnings():  # of a zero pivot, which the caller looks for
            warnings.simplefilter("ignore")
            factors: tuple[Any, Any] = self._linalg.lu_factor(A, check_finite=False)
        return factors

    def lu_solve(self, factors: tuple[Any, Any], B: Any, transpose: bool) -> Any:
        """Substitution with what `lu_factor` returned."""
        return self._linalg.lu_solve(factors, B, trans=int(transpose), check_finite=False)

    def solve_triangular(self, L: Any, B: Any, lower: bool = True, transposed: bool = False) -> Any:
        """``L X = B``, or ``L' X = B``, for a triangle, by cuBLAS."""
        solve = self._linalg.solve_triangular
        return solve(L, B, trans=int(transposed), lower=lower, check_finite=False)


def source_text(source: str) -> str:
    """The text of a source file of kernels; of "one+two" that of both."""
    folder = resources.files(__package__).joinpath("kernels")
    return "".join(folder.joinpath(f"{name}.cu").read_text("utf-8") for name in source.split("+"))


def scalars() -> dict[tuple[str, float], Any]:
    """Factors of products, by type and value; cuBLAS reads them from the host's memory."""
    return {
        (dtype, value): np.array(value, dtype=dtype)
        for dtype in ("float32", "float64")
        for value in (-1.0, 0.0, 1.0)
    }


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
