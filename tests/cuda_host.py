"""A stand-in for the GPU: NumPy's arrays, and our kernels compiled for the CPU (cuda_shim.hpp)."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
import warnings
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from roundwise.backends.cuda.device import Device, scalars, source_text

_HERE = Path(__file__).parent
_SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\([^)]*\)\s*(\w+)\(([^)]*)\)')
_REAL = {"float32": "float", "float64": "double"}
_GEMM = {"float64": np.float64, "float32": np.float32, "tf32": np.float32}


class _Stream:
    """A stream of the host: what is launched on it runs at once, or is captured for a graph."""

    _numbers = count(1)
    _capturing: ClassVar[threading.local] = threading.local()

    def __init__(self, **_: Any) -> None:
        self.ptr = next(self._numbers)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def use(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def begin_capture(self) -> None:
        self._capturing.calls = []

    def end_capture(self) -> Any:
        calls, self._capturing.calls = self._capturing.calls, None
        return SimpleNamespace(launch=lambda stream: [call() for call in calls])

    @classmethod
    def run(cls, call: Any) -> None:
        calls = getattr(cls._capturing, "calls", None)
        if calls is None:
            call()
        else:
            calls.append(call)


class _Arrays:
    """NumPy, with as much of ``cupy.cuda`` as plans ask for."""

    cuda = SimpleNamespace(
        Stream=_Stream,
        Event=lambda **_: SimpleNamespace(record=lambda stream: None),
        get_current_stream=lambda: _STREAM,
        device=SimpleNamespace(get_cublas_handle=lambda: None),
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_STREAM = _Stream()


class _Kernel:
    """A kernel compiled for the CPU, found by its number as CUDA's are by their handles."""

    known: ClassVar[dict[int, _Kernel]] = {}

    def __init__(self, function: Any, types: list[Any]) -> None:
        self._function, self._types, self.ptr = function, types, len(self.known) + 1
        self.known[self.ptr] = self

    def __call__(self, grid: tuple[int, ...], block: tuple[int], args: tuple[Any, ...]) -> None:
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        given = [kind(value) for kind, value in zip(self._types, values, strict=True)]
        with _RUNNING:
            self._function(*(*grid, 1)[:2], *block, *given)

    @classmethod
    def launch(cls, number: int, *rest: int) -> None:
        """As the driver's `cuLaunchKernel`: the arguments are read when it is called."""
        (x, y, _, threads, _, _, _, _, places, _), kernel = rest, cls.known[number]
        pointers = (ctypes.c_void_p * len(kernel._types)).from_address(places)
        args = tuple(ctypes.c_int64.from_address(pointer).value for pointer in pointers)
        _Stream.run(lambda: kernel((x, y), (threads,), args))


class HostDevice(Device):
    """A device of the host: its kernels, products and plans are run by the CPU."""

    name, key, memory_free, processors = "stand-in", "stand-in", 2**40, 1
    number = 0
    records_products = False

    def __init__(self, folder: Path) -> None:
        self._folder, self.xp, self._kernels = folder, _Arrays(), {}
        self._scalars = scalars()
        self.cublas = SimpleNamespace(gemmEx=_product, gemmStridedBatchedEx=_products)
        self.driver = SimpleNamespace(launchKernel=_Kernel.launch)

    def synchronize(self) -> None:
        pass

    def kernel(
        self, source: str, kernel: str, real: Any, stored: Any = None, constants: Any = ()
    ) -> Any:
        names = np.dtype(real).name, np.dtype(real if stored is None else stored).name
        with _COMPILING:
            library, parameters = compiled(self._folder, source, *names, constants)
            found = self._kernels.get((source, kernel, *names, constants))
            if found is None:
                types = [_ctype(parameter) for parameter in parameters[kernel]]
                found = _Kernel(getattr(library, f"run_{kernel}"), types)
                self._kernels[source, kernel, *names, constants] = found
        return found

    def cholesky(self, A: Any, n: int, real: Any, info: int, *, upper: bool) -> None:
        a, said = _view(A, (n, n), real), _view((info, 1), (1, 1), np.int32)
        triangle, said[0, 0] = scipy.linalg.lapack.get_lapack_funcs("potrf", [a])(
            a, lower=not upper, clean=False
        )
        a[...] = triangle

    def divide_by_triangle(self, L: Any, k: int, B: Any, rows: int, real: Any) -> None:
        b = _view(B, (rows, k), real)
        triangle = np.tril(_view(L, (k, k), real))
        with np.errstate(all="ignore"):
            b[...] = scipy.linalg.solve_triangular(triangle, b.T, lower=True, check_finite=False).T

    def lu_factor(self, A: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return scipy.linalg.lu_factor(A, check_finite=False)

    def lu_solve(self, factors: Any, B: Any, transpose: bool) -> Any:
        return scipy.linalg.lu_solve(factors, B, trans=int(transpose), check_finite=False)


_COMPILING = threading.Lock()
_RUNNING = (
    threading.Lock()
)  # the shim's threads and shared memory are those of one kernel at a time
_TYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}
_TF32 = 77  # cuBLAS's name of that arithmetic


def _product(handle: None, trans: int, turn: int, n: int, m: int, k: int, *rest: Any) -> None:
    """cuBLAS's gemmEx, whose matrices are by columns."""
    alpha, B, kind, ldb, A, _, lda, beta, C, result, ldc, compute, algorithm = rest
    operands = B, kind, ldb, 0, A, kind, lda, 0, beta, C, result, ldc, 0
    _products(handle, trans, turn, n, m, k, alpha, *operands, 1, compute, algorithm)


def _products(handle: None, trans: int, turn: int, n: int, m: int, k: int, *rest: Any) -> None:
    """cuBLAS's gemmStridedBatchedEx."""
    alpha, B, number, ldb, step_B, A, _, lda, step_A, beta, C, result, ldc, step_C, *more = rest
    times, compute, _ = more
    kind, number_type = _TYPES[number], np.dtype(_TYPES[result])
    kind = "tf32" if compute == _TF32 else kind
    a, b = (_view((place, 1), (1, 1), number_type)[0, 0] for place in (alpha, beta))
    for i in range(times):
        left = _operand((A, lda), (k, m) if turn else (m, k), kind, i * step_A)
        right = _operand((B, ldb), (n, k) if trans else (k, n), kind, i * step_B)
        C_i = _view((C, ldc), (m, n), number_type, i * step_C)
        with np.errstate(all="ignore"):
            product = a * ((left.T if turn else left) @ (right.T if trans else right))
            C_i[...] = product + (b * C_i if b else 0)


def _view(matrix: tuple[int, int], shape: tuple[int, int], dtype: Any, offset: int = 0) -> Any:
    (start, ld), (rows, columns), size = matrix, shape, np.dtype(dtype).itemsize
    if 0 in shape:
        return np.empty(shape, dtype)
    length = ((rows - 1) * ld + columns) * size
    memory = (ctypes.c_char * length).from_address(start + offset * size)
    flat = np.frombuffer(memory, dtype=dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, (ld * size, size))


def _operand(matrix: tuple[int, int], shape: tuple[int, int], kind: str, offset: int) -> Any:
    if kind == "float16":
        return _view(matrix, shape, np.float16, offset).astype(np.float32)
    if kind == "bfloat16":
        return (_view(matrix, shape, np.uint16, offset).astype(np.uint32) << 16).view(np.float32)
    values = _view(matrix, shape, _GEMM[kind], offset)
    if kind != "tf32":
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def _ctype(parameter: str) -> Any:
    if "*" in parameter:
        return ctypes.c_void_p
    words = parameter.split()[:-1]
    if words == ["long", "long"]:
        return ctypes.c_longlong
    return {"int": ctypes.c_int, "double": ctypes.c_double}[words[-1]]


@cache
def compiled(
    folder: Path, source: str, real: str, stored: str, constants: tuple[tuple[str, int], ...] = ()
) -> tuple[Any, dict[str, list[str]]]:
    """The library of a source file, and the parameters of its kernels."""
    text = source_text(source)
    found = {
        name: [" ".join(p.split()) for p in inside.split(",")]
        for name, inside in _SIGNATURE.findall(text)
    }
    launchers = [_launcher(name, parameters) for name, parameters in found.items()]
    path = folder / "_".join([source, real, stored, *(str(value) for _, value in constants)])
    defined = "".join(f"#define {name} {value}\n" for name, value in constants)
    path.with_suffix(".cpp").write_text(
        f'#include "{_HERE / "cuda_shim.hpp"}"\n'
        f"#define REAL {_REAL[real]}\n#define STORED {_REAL[stored]}\n"
        + defined
        + text
        + "\n".join(launchers)
    )
    command = ["g++", "-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w"]
    subprocess.run(
        [*command, "-o", str(path.with_suffix(".so")), str(path.with_suffix(".cpp"))], check=True
    )
    return ctypes.CDLL(str(path.with_suffix(".so"))), found


def _launcher(name: str, parameters: list[str]) -> str:
    names = ", ".join(map(_name, parameters))
    return (
        f'extern "C" void run_{name}(int grid_x, int grid_y, int threads, {", ".join(parameters)}) '
        f"{{\n    run_grid(grid_x, grid_y, threads, [&] {{ {name}({names}); }});\n}}\n"
    )


def _name(parameter: str) -> str:
    return re.findall(r"\w+", parameter)[-1]
