"""Arrays that callers pass: read as NumPy's and SciPy's solvers read them, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._csr import dense_from_sparse
from roundwise.algorithms.scaling import NOT_FINITE, ScaledColumns, ScaledMatrix, scaled_columns
from roundwise.backends.arrays import array_module, is_sparse
from roundwise.backends.native.storage import converted
from roundwise.formats import FP32

Array = NDArray[np.float64]

BLOCK = 2**22
"""About how many numbers of b are solved for at a time: a solve has ten arrays of that size."""

LEAST_COLUMNS = 32
"""Fewer columns at a time would read the factors too often."""

_SINGLE = (np.dtype(np.float32), np.dtype(np.complex64))


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenColumns(ScaledColumns):
    """Right-hand sides, scaled, and what the answer is to look like."""

    was_vector: bool = field(kw_only=True)
    dtype: Any = field(kw_only=True)  # float32 if A and b are, else float64: of the answer


_ON_CUDA = (2, 13)
"""DLPack's numbers of CUDA's memory, and of memory that CUDA manages."""

_ZERO = np.zeros(1)
_ZERO.flags.writeable = False


def zeros_of_shape(n: int, columns: int) -> Array:
    """Read-only zeros that take no memory; `numpy.broadcast_to` takes longer."""
    return np.ndarray((n, columns), buffer=_ZERO, strides=(0, 0))


def is_complex(x: Any) -> bool:
    """Whether an array, matrix or array-like holds complex numbers."""
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype):
        return dtype.kind == "c"
    if dtype is not None:  # of another library
        return False
    return np.asarray(x).dtype.kind == "c"


def checked_columns(b: Any, matrix: ScaledMatrix) -> NDArray[Any]:
    """b as an array that A can be solved with, where A is."""
    return columns_of_rows(b, matrix.n, matrix.is_sparse or isinstance(matrix.A, np.ndarray))


def columns_of_rows(b: Any, rows: int, on_host: bool = True) -> NDArray[Any]:
    """b as a finite array with A's rows, or an error that names the fix.

    What is on a GPU is found to be finite later, with the norms of its columns.
    """
    if is_sparse(b):
        b = dense_from_sparse(b, "b")  # SciPy's spsolve takes a sparse b, too; the answer is dense
    array = dense_array("b", b) if on_host else b
    check_dtype("b", array.dtype)
    if array.ndim not in (1, 2):
        raise np.linalg.LinAlgError(
            f"b has {array.ndim} dimensions; pass a vector or a matrix of columns"
        )
    if len(array) != rows:
        raise np.linalg.LinAlgError(
            f"b has {len(array)} rows, A has {rows}; pass b with {rows} rows"
        )
    if on_host and not all(bool(np.isfinite(block).all()) for block in _blocks(array)):
        raise ValueError(f"b {NOT_FINITE}")
    return array


def _blocks(b: NDArray[Any]) -> list[NDArray[Any]]:
    """Views of some columns at a time; one of them if there are few."""
    if b.size <= BLOCK or b.ndim == 1:
        return [b]
    step = max(LEAST_COLUMNS, BLOCK // len(b))
    return [b[:, j : j + step] for j in range(0, b.shape[1], step)]


def scaled_blocks(b: NDArray[Any], matrix: Any) -> Iterator[GivenColumns]:
    """Checked columns, scaled, some at a time."""
    dtype = np.float32 if b.dtype == matrix.dtype == np.float32 else np.float64
    xp = array_module(b)
    for block in _blocks(b):
        made = scaled_columns(xp.array(block, dtype=np.float64, order="F"), matrix)
        yield GivenColumns(
            made.B, made.exponents, made.known_norms, was_vector=b.ndim == 1, dtype=dtype
        )


def checked_shapes(A: NDArray[Any], b: NDArray[Any]) -> tuple[tuple[int, ...], NDArray[Any]]:
    """The shape of the stack of systems ``A X = b`` as NumPy broadcasts them, and b as columns.

    A b with one dimension is one vector for all systems; of others the last two are columns.
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise np.linalg.LinAlgError(f"A has shape {A.shape}; pass square matrices")
    if b.ndim == 0:
        raise ValueError("b is a number; pass a vector or columns")
    columns = b[:, None] if b.ndim == 1 else b
    n, rows = A.shape[-1], columns.shape[-2]
    if rows != n:
        remedy = f"pass b with {n} rows"
        if b.shape == A.shape[:-1]:  # NumPy 2 takes this for columns, too
            remedy = "for one vector per system pass b[..., None], and take x[..., 0]"
        raise ValueError(f"b has {rows} rows, A has {n}; {remedy}")
    if A.shape[:-2] == columns.shape[:-2]:
        return A.shape[:-2], columns
    try:
        return np.broadcast_shapes(A.shape[:-2], columns.shape[:-2]), columns
    except ValueError:
        raise ValueError(
            f"A is a stack of shape {A.shape[:-2]}, b one of {columns.shape[:-2]}; pass stacks of "
            "the same shape, or one system for all"
        ) from None


def answer_dtype(A: Any, b: Any) -> Any:
    """Single precision if A and b have it, else double; complex if A or b is."""
    single = A.dtype in _SINGLE and b.dtype in _SINGLE
    if "c" in (A.dtype.kind, b.dtype.kind):
        return np.complex64 if single else np.complex128
    return np.float32 if single else np.float64


def empty_answer(A: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The x of systems without unknowns, of no systems, or for no right-hand sides."""
    stack, columns = checked_shapes(A, b)
    X = np.empty(stack + columns.shape[-2:], dtype=answer_dtype(A, b))
    return X[..., 0] if b.ndim == 1 else X


def is_transposed(trans: Any) -> bool:
    """Whether SciPy's argument of that name asks for A', which is real here: "H" is "T"."""
    if isinstance(trans, str) and trans in ("N", "T", "H"):
        return trans != "N"
    if isinstance(trans, int | np.integer) and trans in (0, 1, 2):
        return trans != 0
    raise ValueError(f"trans = {trans!r}; choose 'N' or 0 for A, 'T' or 1 for its transpose")


def is_on_device(x: Any) -> bool:
    """Whether x is an array in the memory of a GPU."""
    if isinstance(x, np.ndarray) or is_sparse(x):
        return False
    where = getattr(x, "__dlpack_device__", None)
    return where is not None and where()[0] in _ON_CUDA


def given_array(name: str, values: Any) -> Any:
    """An array of a GPU as it is; anything else as a NumPy array."""
    return values if is_on_device(values) else dense_array(name, values, real=False)


def dense_array(name: str, values: Any, real: bool = True) -> NDArray[Any]:
    """An array-like as an array; refuses what NumPy would silently misread.

    If `real` is set, complex numbers are refused, too.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; pass {name}.filled(value) or an array")
    is_ours = isinstance(values, np.ndarray)  # at once: small systems take microseconds
    array = np.asarray(values) if is_ours else _foreign_array(name, values)
    if real or array.dtype.kind != "c":
        check_dtype(name, array.dtype)
    else:
        check_complex(name, array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _foreign_array(name: str, values: Any) -> NDArray[Any]:
    """A list, a number, a frame, an array of another package: what NumPy, or DLPack, converts."""
    if getattr(values, "requires_grad", False):
        raise TypeError(f"{name} requires a gradient; pass {name}.detach()")
    speaks_dlpack = hasattr(values, "__dlpack__") and not hasattr(values, "__array__")
    try:
        return np.from_dlpack(values) if speaks_dlpack else np.asarray(values)
    except (TypeError, BufferError) as error:
        raise TypeError(f"{name} is no array that NumPy reads; {_remedy(name, values)}") from error


def _remedy(name: str, values: Any) -> str:
    """What to pass instead of an object that NumPy refuses to convert."""
    kind, layout = type(values), str(getattr(values, "layout", ""))
    if "sparse" in layout:  # torch's
        return (
            f"it is a torch tensor of layout {layout}: with S = {name}.to_sparse_csr(), pass "
            "scipy.sparse.csr_array((S.values(), S.col_indices(), S.crow_indices()), S.shape)"
        )
    if "bfloat16" in str(getattr(values, "dtype", "")):
        return f"NumPy has no bfloat16: pass {name}.float()"
    if "Tracer" in kind.__name__:
        return (
            f"jax.jit, grad or vmap has put a {kind.__name__} in its place: call it outside of "
            "them, or through jax.pure_callback"
        )
    return f"it is of type {kind.__name__}: convert it to a NumPy array or a SciPy sparse array"


def float64_form(A: NDArray[Any]) -> Array:
    """A as a contiguous float64 array: itself if it is one."""
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    if A.dtype == np.float64 and contiguous and A.flags.aligned:
        return A
    if A.dtype == np.float32 and contiguous and A.flags.aligned:
        return (
            converted(A.T, FP32, np.float64).T
            if A.flags.c_contiguous
            else converted(A, FP32, np.float64)
        )
    return np.array(A, dtype=np.float64, order="K" if contiguous else "C")


def check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise np.linalg.LinAlgError(f"A has shape {shape}; pass a square matrix")
    if shape[0] == 0:
        raise ValueError("A is empty: there is nothing to factorize; call solve(A, b)")


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    if dtype == np.float64:  # at once: small systems take microseconds
        return
    if np.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{name} is complex ({dtype}), and this takes real numbers only; call roundwise.solve "
            f"or factor(A), which solve complex systems, or pass {name}.real if that is meant"
        )
    if not np.can_cast(dtype, np.float64):
        raise TypeError(
            f"{name} has dtype {dtype}, which float64 cannot hold; pass "
            f"{name}.astype(numpy.float64) if that is meant"
        )


def check_complex(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse what complex128 cannot hold."""
    if not np.can_cast(dtype, np.complex128):
        raise TypeError(
            f"{name} has dtype {dtype}, which complex128 cannot hold; pass "
            f"{name}.astype(numpy.complex128) if that is meant"
        )
