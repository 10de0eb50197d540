"""The methods: how a system may be factorized, in which formats, and what that costs.

A new method is a file with a `Method` and a line in `METHODS`. With a price, the default policy
chooses it wherever that is the lowest.
"""

from roundwise.methods import (
    amg,
    dense,
    gpu,
    pardiso,
    structured,
    suitesparse,
    superlu,
    supernodal,
)
from roundwise.methods.contract import Method, Price, Rates, Seconds, Shape, Work
from roundwise.methods.sparse import AMOUNTS, FLOPS, SAFE, SAME_PRICE, amounts

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        dense.CHOLESKY,
        structured.BANDED,
        structured.TRIANGULAR,
        gpu.DIAGONAL,
        gpu.BUTTERFLY,
        gpu.LOCAL,
        gpu.TOURNAMENT,
        dense.LU,
        dense.QR,
        amg.RUGE_STUBEN,
        suitesparse.CHOLMOD_METIS,
        suitesparse.CHOLMOD_AMD,
        pardiso.CHOLESKY_METIS,
        pardiso.CHOLESKY_MMD,
        supernodal.CHOLESKY_ND,
        supernodal.CHOLESKY_AMD,
        pardiso.LDL_METIS,
        pardiso.LDL_MMD,
        supernodal.LDL_AMD,
        supernodal.LU_ND,
        supernodal.LU_AMD,
        suitesparse.KLU,
        suitesparse.UMFPACK,
        pardiso.LU_METIS,
        pardiso.LU_MMD,
        superlu.MMD,
        superlu.COLAMD,
    )
}
"""The methods by name; of equal prices the later one wins."""

DEFAULT_METHOD = "lu"
"""Of an action that names none: every backend has it, for dense and for sparse matrices."""


def safest_last() -> tuple[Method, ...]:
    """The methods, with those that are safe for every dense and every sparse matrix at the end."""
    safe = DEFAULT_METHOD, SAFE
    return tuple(sorted(METHODS.values(), key=lambda method: method.name in safe))
