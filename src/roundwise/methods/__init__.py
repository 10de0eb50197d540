"""The methods: how a system may be factorized, in which formats, and what that costs.

A new method is a `Method`, in a file of its own or in one of these, and a line in `METHODS`. With a
price, the default policy chooses it wherever that is the lowest.
"""

from roundwise.methods import dense, gpu, iterative, structured
from roundwise.methods.contract import Method, Price, Rates, Seconds, Shape, Work
from roundwise.methods.sparse import AMOUNTS, FLOPS, SAFE, SAME_PRICE, SPARSE, amounts

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
        *iterative.ITERATIVE,
        *SPARSE,
    )
}
"""The methods by name; of equal prices the later one wins."""

DEFAULT_METHOD = "lu"
"""The method of an action that names none: every backend has it, dense and sparse."""


def safest_last() -> tuple[Method, ...]:
    """The methods, with those that are safe for every dense and every sparse matrix at the end."""
    safe = DEFAULT_METHOD, SAFE
    return tuple(sorted(METHODS.values(), key=lambda method: method.name in safe))
