"""Reads linear systems from Matrix Market files and writes solutions, plain or gzipped."""

from __future__ import annotations

import gzip
import inspect
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

from roundwise.problems.linear_system import LinearSystem
from roundwise.problems.problem import Vector

PathLike: TypeAlias = str | Path
# SciPy 1.18 warns unless it is told to return a sparse array; older ones do not know the word.
_AS_ARRAY: dict[str, Any] = (
    {"spmatrix": False} if "spmatrix" in inspect.signature(scipy.io.mmread).parameters else {}
)


def read_matrix_market(path: PathLike, rhs: PathLike | None = None) -> LinearSystem:
    """Read Ax = b from Matrix Market files.

    Coordinate files stay sparse and array files dense; symmetric and skew-symmetric
    storage is expanded; integers become float64.

    Parameters
    ----------
    path : path
        The matrix, ``.mtx`` or ``.mtx.gz``: real or integer, square. A pattern without values is
        refused rather than filled with ones: that matrix is often singular.
    rhs : path, optional
        The right-hand side: a file with one column of n entries. `x_true` is then None.
        Without it, ``x_true = reference_solution(n)`` and b = fl(A x_true), see
        `LinearSystem.from_solution`.

    Raises
    ------
    FileNotFoundError, ValueError
        For a missing file, and for one that is malformed or does not fit.

    References
    ----------
    R. F. Boisvert, R. Pozo, K. A. Remington, The Matrix Market Exchange Formats: Initial
    Design, NISTIR 5935, 1996.
    """
    if rhs is not None:
        systems = list(islice(read_columns(path, rhs), 2))
        if len(systems) > 1:
            raise ValueError(
                f"{rhs} holds several right-hand sides; pass one column with {systems[0].n} rows, "
                "or use read_columns"
            )
        return systems[0]
    A, name, meta = _read_square(Path(path))
    return LinearSystem.from_solution(A, reference_solution(A.shape[0]), name=name, meta=meta)


def read_columns(path: PathLike, rhs: PathLike) -> Iterator[LinearSystem]:
    """Yield one system for each column of the right-hand side `rhs`."""
    A, name, meta = _read_square(Path(path))
    B = _read(Path(rhs))
    n = A.shape[0]
    if B.shape[0] != n or B.shape[1] < 1:
        raise ValueError(
            f"{rhs} holds a {B.shape[0]} x {B.shape[1]} right-hand side; "
            f"pass one column with {n} rows, or several"
        )
    for b in (B.toarray() if sp.issparse(B) else B).T:
        yield LinearSystem(A, b, name=name, meta={**meta, "rhs": Path(rhs).name})


def write_matrix_market(path: PathLike, X: NDArray[np.float64]) -> None:
    """Write X as a Matrix Market array with all its bits; gzipped if `path` ends with .gz."""
    open_file = gzip.open if Path(path).suffix == ".gz" else open
    with open_file(path, "wb") as target:
        # 17 digits distinguish any two float64. "general" keeps SciPy from testing for symmetry.
        scipy.io.mmwrite(target, X, field="real", precision=17, symmetry="general")


def reference_solution(n: int) -> Vector:
    """The x_true of a matrix that comes without a right-hand side.

    ``x_i = (-1)**i (1 + frac(i (sqrt(5) - 1) / 2))``, i = 1..n: magnitudes between 1 and
    2, no two alike, full significands. A vector of ones would hide errors: permutations do
    not change it, every format holds it exactly, and it lies in the null space of a Laplacian.
    All operations are exactly rounded: all machines get the same bits.
    """
    i = np.arange(1, n + 1, dtype=np.float64)
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    return np.asarray(np.where(i % 2 == 0, 1.0, -1.0) * (1.0 + (i * golden) % 1.0))


# SciPy's reader raises these on a damaged file or a corrupt gzip stream.
_UNREADABLE = (ValueError, OSError, EOFError, OverflowError, MemoryError, zlib.error)


def _read_square(source: Path) -> tuple[Any, str, dict[str, Any]]:
    """The matrix, its name, and the meta of its system."""
    A = _read(source)
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"{source} holds a {A.shape[0]} x {A.shape[1]} matrix; pass a square one")
    name = source.name.removesuffix(".gz").removesuffix(".mtx")
    return A, name, {"generator": "read_matrix_market", "family": name, "file": source.name}


def _read(source: Path) -> Any:
    """The dense array or `csr_array` in a real Matrix Market file."""
    if not source.is_file():
        missing = "is no file" if source.exists() else "does not exist"
        raise FileNotFoundError(f"{source} {missing}; pass the path of a Matrix Market file")
    try:
        *_, value_field, _ = scipy.io.mminfo(source)
        A = None if value_field in ("complex", "pattern") else scipy.io.mmread(source, **_AS_ARRAY)
    except _UNREADABLE as error:
        raise ValueError(f"{source} is no readable Matrix Market file: {error}") from error
    if value_field == "complex":
        raise ValueError(f"{source} is complex; only real systems: write its real form first")
    if value_field == "pattern":
        raise ValueError(f"{source} is a pattern without values; pass a file with real values")
    A = sp.csr_array(A) if sp.issparse(A) else np.asarray(A)
    if not np.isfinite(A.data if sp.issparse(A) else A).all():
        raise ValueError(f"{source} holds NaN or infinite entries; replace them first")
    return A
