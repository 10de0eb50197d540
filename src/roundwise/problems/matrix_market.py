"""Reads linear systems from Matrix Market files and writes solutions, plain or gzipped."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise._files import one_line, replace_file
from roundwise.problems.linear_system import LinearSystem, Vector

PathLike: TypeAlias = str | Path


def read_matrix_market(path: PathLike, rhs: PathLike | None = None) -> LinearSystem:
    """Read Ax = b from Matrix Market files.

    Coordinate files stay sparse and array files dense; symmetric and skew-symmetric
    storage is expanded; integers become float64. `read_arrays` reads complex files.

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
        For a missing file, and for one that is malformed or does not fit. Nothing is allocated for
        sizes that a file only claims: an array needs two bytes for each entry, a coordinate file
        six, and as many entries as rows (a row without one makes A singular).

    References
    ----------
    R. F. Boisvert, R. Pozo, K. A. Remington, The Matrix Market Exchange Formats: Initial
    Design, NISTIR 5935, 1996.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rw.problems.write_matrix_market(f"{folder}/A.mtx", np.array([[4.0, 1.0], [1.0, 3.0]]))
    ...     system = rw.problems.read_matrix_market(f"{folder}/A.mtx")
    >>> system.A
    array([[4., 1.],
           [1., 3.]])
    """
    A, B, name = read_arrays(path, rhs, real=True)
    meta = {"generator": "read_matrix_market", "family": name, "file": Path(path).name}
    if B is None:
        return LinearSystem.from_solution(A, reference_solution(A.shape[0]), name=name, meta=meta)
    if B.shape[1] > 1:
        raise ValueError(
            f"{rhs} holds several right-hand sides; pass one column with {A.shape[0]} rows, or use "
            "read_arrays"
        )
    return LinearSystem(A, B[:, 0], name=name, meta=meta | {"rhs": Path(str(rhs)).name})


def _check_columns(n: int) -> Callable[[Header], None]:
    """Refuse a file that does not hold right-hand sides of n equations."""

    def check(header: Header) -> None:
        if header.rows != n or header.columns < 1:
            raise Unfit(
                f"holds a {header.rows} x {header.columns} right-hand side; "
                f"pass one column with {n} rows, or several"
            )
        if header.columns > max(1, header.entries):
            raise Unfit(
                f"has {header.columns} columns, but {header.entries} entries; leave out the "
                "columns without any"
            )

    return check


def read_arrays(
    path: PathLike, rhs: PathLike | None = None, real: bool = False
) -> tuple[Any, Any, str]:
    """A, the columns of b (None without `rhs`) and a name from files of real or complex numbers.

    Hermitian storage is expanded. Complex numbers are refused if they must be `real`.
    """
    A = _read(Path(path), _check_square, real)
    name = Path(path).name.removesuffix(".gz").removesuffix(".mtx")
    B: Any = None if rhs is None else _read(Path(rhs), _check_columns(A.shape[0]), real)
    return A, B.toarray() if sp.issparse(B) else B, name


def write_matrix_market(path: PathLike, X: NDArray[Any]) -> None:
    """Write X, real or complex, as a Matrix Market array with all its bits.

    It is gzipped if `path` ends with .gz. An `OSError` names a file that cannot be written; an old
    one is then still there.

    Parameters
    ----------
    path : path
    X : array
        A matrix or columns.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rw.problems.write_matrix_market(f"{folder}/A.mtx", np.array([[2.0, 0.1], [0.1, 2.0]]))
    ...     rw.problems.read_matrix_market(f"{folder}/A.mtx").A
    array([[2. , 0.1],
           [0.1, 2. ]])
    """
    text = io.BytesIO()
    # 17 digits distinguish any two float64. "general" keeps SciPy from testing for symmetry.
    field = "complex" if np.iscomplexobj(X) else "real"
    scipy.io.mmwrite(text, X, field=field, precision=17, symmetry="general")
    data = text.getvalue()
    replace_file(Path(path), gzip.compress(data) if Path(path).suffix == ".gz" else data)


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


# SciPy's reader is not used: since 1.12, a file that is cut off or garbled can crash it, and with
# it the process. This one reads every such file to an error.
_DEFLATED_AT_MOST = 1032  # bytes that one byte of gzip can stand for
_ENTRY_BYTES = {"coordinate": len("1 1 1\n"), "array": len("1\n")}
_LONGEST_LINE = 1 << 16  # of the header


class Unfit(ValueError):
    """A file that can be read does not serve here; `_read` puts its name before the reason."""


class Header(NamedTuple):
    """The claims of a file's first lines."""

    layout: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int  # stored ones

    @classmethod
    def read(cls, stream: BinaryIO | gzip.GzipFile) -> Header:
        """Read banner, comments and the line of sizes; the stream is then at the entries."""
        banner = stream.readline(_LONGEST_LINE).decode("ascii", "replace").lower().split()
        if banner[:2] != ["%%matrixmarket", "matrix"] or len(banner) != 5:
            raise ValueError("it does not start with %%MatrixMarket matrix and three more words")
        layout, field, symmetry = banner[2:]
        _check_word(layout, _ENTRY_BYTES)
        _check_word(field, _FIELDS)
        _check_word(symmetry, _SYMMETRIES)
        line = b"%"
        while line.startswith(b"%") or line.isspace():
            line = stream.readline(_LONGEST_LINE)
        sizes = line.split()
        if len(sizes) != (2 if layout == "array" else 3) or not all(
            size.isdigit() and len(size) < 19 for size in sizes
        ):
            raise ValueError(f"its sizes are {line[:80]!r}")
        rows, columns, *rest = (int(size) for size in sizes)
        return cls(layout, field, symmetry, rows, columns, *(rest or [0]))._counted()

    def _counted(self) -> Header:
        """An array claims its entries by its shape; of a symmetric one, the lower triangle."""
        if self.layout == "coordinate":
            return self
        if self.symmetry == "general":
            return self._replace(entries=self.rows * self.columns)
        n = self.rows
        strict = self.symmetry == "skew-symmetric"
        return self._replace(entries=n * (n - 1) // 2 if strict else n * (n + 1) // 2)

    @property
    def width(self) -> int:
        """Numbers of an entry: its place if there is one, and its value."""
        return (2 if self.layout == "coordinate" else 0) + (2 if self.field == "complex" else 1)

    def check(self, source: Path, real: bool) -> None:
        """Refuse what has no (real) values, and claims of more entries than the file can hold."""
        if self.field == "complex" and real:
            raise Unfit(
                "is complex, and a LinearSystem is real; solve it by `roundwise solve A.mtx`, or "
                "read it with scipy.io.mmread for roundwise.solve"
            )
        if self.field == "pattern":
            raise Unfit("is a pattern without values; pass a file with real values")
        size = source.stat().st_size
        holds = size * (_DEFLATED_AT_MOST if _is_packed(source) else 1)
        if self.entries * _ENTRY_BYTES[self.layout] > holds + 1:
            raise ValueError(
                f"it claims {self.entries} entries, more than its {size} bytes can hold; it was "
                "cut off or damaged: get it again"
            )


_FIELDS = ("real", "double", "integer", "unsigned-integer", "complex", "pattern")
_SYMMETRIES = {"general": 0.0, "symmetric": 1.0, "hermitian": 1.0, "skew-symmetric": -1.0}
"""The factor of an entry of the lower triangle when it is copied to the upper one."""


def _check_word(word: str, known: Collection[str]) -> None:
    if word not in known:
        raise ValueError(f"its first line says {word!r}, not one of {', '.join(known)}")


def _check_square(header: Header) -> None:
    n = header.rows
    if n != header.columns:
        raise Unfit(f"holds a {n} x {header.columns} matrix; pass a square one")
    covered = header.entries * (1 if header.symmetry == "general" else 2)
    if header.layout == "coordinate" and n > covered:
        raise Unfit(
            f"claims {n} rows, but only {header.entries} entries: rows without any make the matrix "
            "singular; pass a nonsingular one"
        )


def _read(source: Path, check: Callable[[Header], None], real: bool) -> Any:
    """The dense array or `csr_array` in a Matrix Market file whose header passes the check.

    A file of complex numbers is refused if they must be `real`.
    """
    if not source.is_file():
        missing = "is no file" if source.exists() else "does not exist"
        raise FileNotFoundError(f"{source} {missing}; pass the path of a Matrix Market file")
    try:
        with gzip.open(source) if _is_packed(source) else source.open("rb") as stream:
            header = Header.read(stream)
            header.check(source, real)
            check(header)
            numbers = _numbers(stream.read(), header)
        A = _sparse(numbers, header) if header.layout == "coordinate" else _dense(numbers, header)
    except Unfit as error:
        raise ValueError(f"{source} {error}") from None
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{source} is no readable Matrix Market file: {one_line(error)}"
        ) from error
    if not np.isfinite(A.data if sp.issparse(A) else A).all():
        raise ValueError(f"{source} holds NaN or infinite entries; replace them first")
    return A


def _is_packed(source: Path) -> bool:
    return source.suffix == ".gz"


def _numbers(text: bytes, header: Header) -> NDArray[np.float64]:
    """All numbers of the entries, one entry in a row; one that is missing or none is an error."""
    width = header.width
    # A number takes two bytes: of those that are claimed, no more are allocated than can be there.
    numbers = np.empty(min(width * header.entries, len(text) // 2 + 1))
    found = _kernels.read_numbers(text, numbers)
    if found < 0:
        raise ValueError("something among its entries is no number")
    if found != width * header.entries:
        raise ValueError(
            f"it claims {header.entries} entries of {width} numbers, and has {found} numbers"
        )
    return numbers.reshape(-1, width)


def _sparse(numbers: NDArray[np.float64], header: Header) -> sp.csr_array:
    places, values = numbers[:, :2].astype(np.int64), _values(numbers[:, 2:])
    if (
        (places != numbers[:, :2]).any()
        or (places < 1).any()
        or (places > (header.rows, header.columns)).any()
    ):
        raise ValueError(
            f"an entry is not within rows 1 to {header.rows} and columns 1 to {header.columns}"
        )
    i, j = places.T - 1
    if sign := _SYMMETRIES[header.symmetry]:
        off = i != j
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        across = values[off].conj() if header.symmetry == "hermitian" else values[off]
        values = np.concatenate([values, sign * across])
    return sp.csr_array(sp.coo_array((values, (i, j)), shape=(header.rows, header.columns)))


def _values(numbers: NDArray[np.float64]) -> NDArray[Any]:
    """The values of entries: complex if there are two numbers for each."""
    if numbers.shape[1] == 1:
        return numbers[:, 0]
    return np.ascontiguousarray(numbers).view(np.complex128)[:, 0]


def _dense(numbers: NDArray[np.float64], header: Header) -> NDArray[Any]:
    sign, rows, columns = _SYMMETRIES[header.symmetry], header.rows, header.columns
    values = _values(numbers)
    if not sign:
        return np.ascontiguousarray(values.reshape(columns, rows).T)
    if rows != columns:
        raise ValueError(f"it says that a {rows} x {columns} matrix is {header.symmetry}")
    A = np.zeros((rows, rows), dtype=values.dtype)
    j, i = np.triu_indices(rows, 1 if sign < 0 else 0)  # columns of the lower triangle in turn
    A[j, i] = sign * (values.conj() if header.symmetry == "hermitian" else values)
    A[i, j] = values
    return A
