"""Methods of least squares, which factorize the tall one of A and A', m-by-n.

Each takes more operations than the one before, and bears larger condition numbers: dense methods
take ``m n^2 + n^3 / 3`` operations (Cholesky of A'A, up to kappa = 1e7), ``3 m n^2 + n^3``
(Cholesky QR, up to 1e12), ``4 m n^2`` (Householder's QR with Q) and about ``14 m n^2`` (the SVD,
which also tells the rank). So the cheapest is tried first, whatever the shape.
"""

from __future__ import annotations

from roundwise.formats import FP32, FP64
from roundwise.methods.contract import Method

SVD = Method("svd", sparse=False, formats=(FP64,), chosen=False)

TALL: dict[str, Method] = {
    method.name: method
    for method in (
        Method("cholesky", sparse=False, formats=(FP32, FP64), then=("choleskyqr",)),
        Method("choleskyqr", sparse=False, formats=(FP64,), then=("qr",)),
        Method("qr", sparse=False, formats=(FP32, FP64), then=("svd",)),
        Method("cholesky/amd", sparse=True, formats=(FP32, FP64), then=("superlu/colamd",)),
        Method("superlu/colamd", sparse=True, formats=(FP32, FP64), then=("svd",)),
        SVD,
    )
}
"""By name. Of dense and of sparse ones the first is the one that is tried first."""


def tall_methods(sparse: bool) -> tuple[str, ...]:
    """The names of those for a dense or a sparse A, the cheapest first; an SVD is for both."""
    return tuple(name for name, one in TALL.items() if one.sparse == sparse or one is SVD)
