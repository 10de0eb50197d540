"""How numbers of each native format lie in memory, and what they are computed with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.checks import Float64Array, require_nonzero_diagonal
from roundwise.backends.contract import ArithmeticFailure, Status, UnsupportedFormat
from roundwise.backends.native import buffer_pool
from roundwise.formats import BF16, FP16, FP32, FP64, FloatFormat
from roundwise.machine.threads import ONE_THREAD as ONE_THREAD
from roundwise.machine.threads import pass_threads
from roundwise.rounding import round_to

COMPUTED_IN = {FP64: FP64, FP32: FP32, BF16: FP32, FP16: FP32}
"""The format in which numbers that are stored in a format are computed with."""

DTYPES: dict[FloatFormat, Any] = {FP64: np.float64, FP32: np.float32} | dict.fromkeys(
    (BF16, FP16), np.uint16
)
"""How numbers of a format lie in memory."""

COMPLEX_DTYPES: dict[FloatFormat, Any] = {FP64: np.complex128, FP32: np.complex64}
"""How complex numbers with parts of a format do."""

SPARSE_FORMATS = (FP32, FP64)
"""SciPy and the sparse engines have no others."""


def routines(module: Any, name: str, letters: str = "dszc") -> dict[np.dtype[Any], Any]:
    """The routine of BLAS or LAPACK with this name, by the type of the numbers it is for."""
    types = {"d": np.float64, "s": np.float32, "z": np.complex128, "c": np.complex64}
    return {np.dtype(types[letter]): getattr(module, letter + name) for letter in letters}


def require_native(fmt: FloatFormat) -> None:
    """Refuse a format that no native kernel computes with."""
    if fmt not in COMPUTED_IN:
        raise UnsupportedFormat(
            f"there is no native arithmetic for {fmt}, only for "
            f"{', '.join(native.name for native in COMPUTED_IN)}; use the operation or storage "
            "model"
        )


def require_native_sparse(fmt: FloatFormat) -> None:
    """Refuse a format that no sparse matrix has natively."""
    if fmt not in SPARSE_FORMATS:
        raise UnsupportedFormat(
            f"sparse matrices run natively in fp32 and fp64 alone, not in {fmt}; use one of these, "
            "or the operation model"
        )


def has_16_bits(fmt: FloatFormat) -> bool:
    """Whether numbers are rounded when they are stored; the common answer comes first and fast."""
    return fmt is not FP64 and fmt is not FP32 and fmt in (BF16, FP16)


def stored(values: NDArray[Any], fmt: FloatFormat) -> NDArray[Any]:
    """A Fortran-ordered float64 or float32 array as it lies in memory in a format."""
    if fmt == FP64 or values.dtype == DTYPES[fmt]:  # nothing to round
        return values.astype(DTYPES[fmt], order="F", copy=False)
    return converted(values, fmt, DTYPES[fmt])


def work_array(values: NDArray[Any], fmt: FloatFormat) -> NDArray[Any]:
    """A copy of a matrix in a format, for a factorization to overwrite.

    Whoever needs it no more gives its memory to `buffer_pool.keep`.
    """
    dtype, threads = DTYPES[fmt], pass_threads(values.size)
    work = buffer_pool.empty(values.shape, dtype)
    if values.dtype == dtype and values.flags.f_contiguous:
        _kernels.native_copy(values, work, threads)
    elif fmt == FP64 or values.dtype == dtype:
        work[...] = values
    else:
        _kernels.native_convert(values, work, fmt.name, threads)
    return work


def converted(numbers: NDArray[Any], fmt: FloatFormat, dtype: Any) -> NDArray[Any]:
    """Numbers to or from the memory type of a format; always a new array, Fortran-ordered."""
    if numbers.dtype == dtype:
        return numbers.copy(order="F")
    result = np.empty_like(numbers, dtype=dtype, order="F")
    _kernels.native_convert(numbers, result, fmt.name, pass_threads(numbers.size))
    return result


def narrowed(factors: NDArray[Any], fmt: FloatFormat, kernel: str) -> NDArray[Any]:
    """Finite factors as they are stored in a format; raises a failure if it cannot hold them.

    Rounding is monotone, so that the largest entry overflows if any does.
    """
    if factors.dtype == DTYPES[fmt]:
        return factors
    largest = largest_entry(factors)
    if not np.isfinite(round_to(largest, fmt)):
        raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
    require_nonzero_diagonal(round_to(np.diagonal(factors).astype(np.float64), fmt), fmt)
    return stored(factors, fmt)


def largest_entry(matrix: NDArray[Any]) -> float:
    """The largest magnitude in a Fortran-ordered matrix; not finite if an entry is not."""
    return float(_kernels.native_column_norms(matrix, pass_threads(matrix.size))[1])


def is_finite(matrix: NDArray[Any]) -> bool:
    """Whether a Fortran-ordered array, real or complex, has no infinity and no NaN."""
    return bool(np.isfinite(largest_entry(matrix.T.view(matrix.real.dtype).T)))


def gemv(
    matrix: NDArray[Any], x: NDArray[Any], transpose: bool, fmt: FloatFormat = FP64
) -> NDArray[Any]:
    """The product of a Fortran-ordered matrix, as it is stored in a format, or its transpose.

    It is not BLAS's: whose threads go on spinning after a call, and the next LU beside them takes
    half as long again (``make bench``).
    """
    y = np.empty(matrix.shape[1 if transpose else 0], dtype=x.dtype)
    _kernels.native_matvec(matrix, fmt.name, x, y, transpose, pass_threads(matrix.size))
    return y


def loaded(x: NDArray[Any], fmt: FloatFormat) -> NDArray[Any]:
    """A float64 operand, rounded to the format, in the type that it is computed with; a copy."""
    if fmt is FP64:
        return x.astype(np.float64)
    if has_16_bits(fmt):
        x = round_to(x, fmt)
    with np.errstate(over="ignore"):
        return x.astype(np.float64 if fmt == FP64 else np.float32)


def finished(y: NDArray[Any], kernel: str, fmt: FloatFormat, *operands: Any) -> Float64Array:
    """A result as float64, rounded to a 16-bit format; raises a failure if it is not finite."""
    result = np.asarray(y, dtype=np.float64)
    if has_16_bits(fmt):
        result = round_to(result, fmt)
    if not np.isfinite(result).all():
        raise nonfinite(kernel, fmt, *operands)
    return result


def gathered(b: Float64Array, rows: NDArray[np.int32] | None, fmt: FloatFormat) -> NDArray[Any]:
    """What `loaded` makes of a Fortran-ordered block, whose rows are put in this order."""
    y = np.empty(b.shape, np.float64 if fmt == FP64 else np.float32, order="F")
    _kernels.native_gather(rows, round_to(b, fmt) if has_16_bits(fmt) else b, y)
    return y


def scattered(
    y: NDArray[Any], places: NDArray[np.int32] | None, kernel: str, fmt: FloatFormat, *operands: Any
) -> Float64Array:
    """What `finished` makes of a Fortran-ordered block, whose rows go to these places."""
    result = np.empty(y.shape, order="F")
    finite = _kernels.native_scatter(places, y, result)
    if has_16_bits(fmt):
        result = round_to(result, fmt)
        finite = finite and bool(np.isfinite(result).all())
    if not finite:
        raise nonfinite(kernel, fmt, *operands)
    return result


def nonfinite(kernel: str, fmt: FloatFormat, *operands: Any) -> ArithmeticFailure:
    """The failure to raise for a result that is not finite: whose status the operands decide."""
    finite = all(np.isfinite(operand).all() for operand in operands)
    return ArithmeticFailure(Status.OVERFLOW if finite else Status.NONFINITE_INPUT, kernel, fmt)
