"""A stand-in for the GPU: NumPy's arrays, and our kernels compiled for the CPU (cuda_shim.hpp)."""

from __future__ import annotations

import ctypes
import re
import subprocess
import warnings
from contextlib import nullcontext
from functools import cache
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

_HERE = Path(__file__).parent
_SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\([^)]*\)\s*(\w+)\(([^)]*)\)')
_REAL = {"float32": "float", "float64": "double"}
_GEMM = {"float64": np.float64, "float32": np.float32, "tf32": np.float32}


class _Now:
    """A plan that is no plan: it is made anew for each factorization."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def run(self, arena: Any) -> None:
        self._run()


class HostDevice:
    """What `Device` can do, on the CPU."""

    xp = np
    name, key, memory_free = "stand-in", "stand-in", 2**40

    _numbers = count()  # of all devices here: plans are kept by number

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def number(self) -> int:
        """Another one each time, so that no plan is kept: it knows the memory it was made for."""
        return next(self._numbers)

    def synchronize(self) -> None:
        pass

    def cholesky(self, A: Any) -> Any:
        try:
            return np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return np.full_like(A, np.nan)

    def lu_factor(self, A: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return scipy.linalg.lu_factor(A, check_finite=False)

    def lu_solve(self, factors: Any, B: Any, transpose: bool) -> Any:
        return scipy.linalg.lu_solve(factors, B, trans=int(transpose), check_finite=False)

    def solve_triangular(self, L: Any, B: Any) -> Any:
        return scipy.linalg.solve_triangular(L, B, lower=True)

    def aside(self) -> Any:
        return nullcontext()

    def signal(self, name: Any) -> None:
        pass

    def await_signal(self, name: Any) -> None:
        pass

    def planned(self, run: Any, arena: Any) -> Any:
        return _Now(run)

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
        names = np.dtype(real).name, np.dtype(real if stored is None else stored).name
        library, parameters = compiled(self._folder, source, *names)
        x, y = (grid, 1) if isinstance(grid, int) else (*grid, 1)[:2]
        types = [_ctype(parameter) for parameter in parameters[kernel]]
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        given = [kind(value) for kind, value in zip(types, values, strict=True)]
        getattr(library, f"run_{kernel}")(x, y, block, *given)

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
        m, n, k = shape
        times, *steps = batch or (1, 0, 0, 0)
        for i in range(times):
            left = _operand(A, (m, k), kind, i * steps[0])
            right = _operand(B, (n, k) if transpose_B else (k, n), kind, i * steps[1])
            result = _view(C, (m, n), _GEMM.get(kind, np.float32), i * steps[2])
            with np.errstate(all="ignore"):
                product = alpha * (left @ (right.T if transpose_B else right))
                result[...] = product + (beta * result if beta else 0)


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
def compiled(folder: Path, source: str, real: str, stored: str) -> tuple[Any, dict[str, list[str]]]:
    """The library of a source file, and the parameters of its kernels."""
    text = (
        resources.files("roundwise.backends.cuda").joinpath("kernels", f"{source}.cu").read_text()
    )
    found = {
        name: [" ".join(p.split()) for p in inside.split(",")]
        for name, inside in _SIGNATURE.findall(text)
    }
    launchers = [_launcher(name, parameters) for name, parameters in found.items()]
    path = folder / f"{source}_{real}_{stored}"
    path.with_suffix(".cpp").write_text(
        f'#include "{_HERE / "cuda_shim.hpp"}"\n'
        f"#define REAL {_REAL[real]}\n#define STORED {_REAL[stored]}\n"
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
