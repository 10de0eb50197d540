"""Rates of LU and Cholesky by number of threads: ours, OpenBLAS's and MKL's, kept for each machine.

And those of OpenBLAS's products of two matrices, to compare with.

``python benchmarks/factorization_rates.py`` measures this machine and writes
docs/factorizations/NAME.json, where NAME tells the processor and its cores.
docs/refresh_factorizations.py draws what all machines left there, so that the page can be made on
any of them.

MKL is that of the wheel ``mkl``, or the one inside of torch. Every contender starts after a pause:
the threads of a BLAS library go on spinning after a call.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.linalg import blas, lapack
from threadpoolctl import threadpool_limits
from timing import medians, timed

from roundwise import _kernels
from roundwise.backends.engines import mkl
from roundwise.machine.identity import Machine
from roundwise.machine.threads import usable_cores

FOLDER = Path(__file__).parents[1] / "docs" / "factorizations"
LEVEL = _kernels.native_bf16_levels()[0]
DTYPES = {"fp64": np.float64, "fp32": np.float32, "bf16": np.float32}
Call = Callable[[np.ndarray, int], object]


def ours(what: str, fmt: str, n: int) -> Call:
    pivots = np.zeros(n, np.int32)
    if what == "lu":
        if fmt == "bf16":
            return lambda a, t: _kernels.native_bf16_lu(a, pivots, LEVEL, t)
        return lambda a, t: _kernels.native_lu(a, pivots, t)
    if fmt == "bf16":
        return lambda a, t: _kernels.native_bf16_cholesky(a, False, LEVEL, t)
    return lambda a, t: _kernels.native_cholesky(a, False, t)


def product(fmt: str, n: int) -> dict[str, Call]:
    if fmt == "bf16":
        return {}
    gemm = blas.dgemm if fmt == "fp64" else blas.sgemm
    c = np.zeros((n, n), DTYPES[fmt], order="F")
    return {"OpenBLAS": lambda a, _: gemm(1.0, a, a, c=c, overwrite_c=True)}


def openblas(what: str, fmt: str) -> Call | None:
    if fmt == "bf16":
        return None
    name = ("d" if fmt == "fp64" else "s") + ("getrf" if what == "lu" else "potrf")
    function, options = getattr(lapack, name), {} if what == "lu" else {"lower": 1, "clean": 0}

    return lambda a, _: function(a, overwrite_a=True, **options)


def mkl_wheel(what: str, fmt: str, n: int) -> Call | None:
    path = mkl.library_path()
    if path is None or fmt == "bf16":
        return None
    library = ctypes.CDLL(str(path))
    letter, rows, info = "d" if fmt == "fp64" else "s", ctypes.c_int(n), ctypes.c_int()
    pivots = np.zeros(n, np.int32)

    def call(a: np.ndarray, threads: int) -> None:
        library.MKL_Set_Num_Threads(threads)
        order, data = ctypes.byref(rows), ctypes.c_void_p(a.ctypes.data)
        if what == "lu":
            swaps = ctypes.c_void_p(pivots.ctypes.data)
            getattr(library, letter + "getrf_")(
                order, order, data, order, swaps, ctypes.byref(info)
            )
        else:
            getattr(library, letter + "potrf_")(b"L", order, data, order, ctypes.byref(info))

    return call


def mkl_in_torch(what: str, fmt: str) -> Call | None:
    if fmt == "bf16" or find_spec("torch") is None:
        return None
    import torch

    if not torch.backends.mkl.is_available():
        return None

    def call(a: np.ndarray, threads: int) -> None:
        torch.set_num_threads(threads)
        columns = torch.from_numpy(a.T).mT  # Fortran-ordered, as LAPACK wants it
        torch.linalg.lu_factor(columns) if what == "lu" else torch.linalg.cholesky(columns)

    return call


def contenders(what: str, fmt: str, n: int) -> dict[str, Call]:
    if what == "product":
        return product(fmt, n)
    found = {
        "ours": ours(what, fmt, n),
        "OpenBLAS": openblas(what, fmt),
        "MKL": mkl_wheel(what, fmt, n) or mkl_in_torch(what, fmt),
    }
    return {name: call for name, call in found.items() if call is not None}


def rates(
    what: str, fmt: str, n: int, threads: list[int], repeats: int
) -> Iterator[dict[str, Any]]:
    """Gflop/s of the median, the contenders in turn."""
    A = np.asfortranarray(np.random.default_rng(0).standard_normal((n, n)), DTYPES[fmt])
    if what == "cholesky":
        A = np.asfortranarray(np.eye(n) + 1 / n, DTYPES[fmt])
    work, flops = A.copy(order="F"), {"lu": 2 / 3, "cholesky": 1 / 3, "product": 2}[what] * n**3
    calls = contenders(what, fmt, n)

    def fresh(call: Call, t: int) -> float:
        work[...] = A
        return timed(lambda: call(work, t))

    for t in threads:
        with threadpool_limits(t):  # OpenBLAS
            found = medians(repeats, {name: partial(fresh, calls[name], t) for name in calls})
        for name, seconds in found.items():
            rate = flops / seconds / 1e9
            print(f"{what} {fmt} n={n} threads={t} {name}: {rate:.0f} Gflop/s", flush=True)
            yield {
                "what": what,
                "format": fmt,
                "by": name,
                "n": n,
                "threads": t,
                "rate": round(rate, 1),
            }


def file_name(machine: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") + ".json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4000], help="default 4000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    asked = parser.parse_args()
    cores = usable_cores()
    threads = [t for t in (1, 2, 4, 8, 16, 32, 64) if t <= cores]
    name = f"{Machine.this().cpu}, {cores} cores"
    found = []
    for n in asked.sizes:
        for what in ("lu", "cholesky", "product"):
            for fmt in DTYPES:
                counts = threads if what == "lu" and n == asked.sizes[0] else threads[-1:]
                found += rates(what, fmt, n, counts, asked.repeats)
    asked.folder.mkdir(exist_ok=True)
    record = {
        "machine": name,
        "bf16": LEVEL,
        "versions": f"NumPy {np.__version__}, SciPy {scipy.__version__}",
        "rates": found,
    }
    text = json.dumps(record, indent=1)
    text = re.sub(
        r'\{\s+"what"([^}]*)\s+\}', lambda m: "{" + " ".join(f'"what"{m[1]}'.split()) + "}", text
    )
    (asked.folder / file_name(name)).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
