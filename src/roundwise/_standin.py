"""TEMPORARY NumPy stand-ins for kernels that are being written; removed when they land."""

import numpy as np

import roundwise._kernels as k
from roundwise.formats import get_format
from roundwise.rounding import round_to


def native_norms(A):
    M = np.abs(A.astype(np.float64))
    return float(M.sum(axis=0).max()), float(M.sum(axis=1).max()), float(M.max())


def native_convert(src, dst, tag):
    import ml_dtypes

    kinds = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
    if src.dtype == np.uint16:
        dst[...] = src.view(kinds[tag]).astype(dst.dtype)
    elif dst.dtype == np.uint16:
        dst.view(kinds[tag])[...] = round_to(src.astype(np.float64), get_format(tag)).astype(
            kinds[tag]
        )
    else:
        dst[...] = src


def _f64(P, tag):
    out = np.empty_like(P, dtype=np.float64, order="F")
    native_convert(P, out, tag)
    return out


def native_solve_lu(P, y, transpose, tag):
    from scipy.linalg import lapack

    x, _ = lapack.dgetrs(
        _f64(P, tag), np.arange(len(P), dtype=np.int32), y.astype(np.float64), trans=int(transpose)
    )
    y[...] = x


def native_solve_cholesky(P, y, lower, tag):
    from scipy.linalg import lapack

    x, _ = lapack.dpotrs(_f64(P, tag), y.astype(np.float64), lower=lower)
    y[...] = x


def native_matvec(A, x, y, transpose, tag):
    M = _f64(A, tag)
    y[...] = (M.T if transpose else M) @ x


def native_bf16_lu(A, piv, level):
    from scipy.linalg import lapack

    P, p, info = lapack.sgetrf(A)
    A[...] = P
    piv[...] = p
    return info


if not hasattr(k, "native_norms"):
    for f in (
        native_norms,
        native_convert,
        native_solve_lu,
        native_solve_cholesky,
        native_matvec,
        native_bf16_lu,
    ):
        setattr(k, f.__name__, f)
    k.native_bf16_levels = lambda: ["avx512_bf16", "portable"]
