"""The storage of GMRES-IR, as Carson & Chen's native study models it.

It is a model: what a run really took is measured by `roundwise.outcomes.fill`.
"""

from __future__ import annotations

from roundwise.actions import ActionLike
from roundwise.algorithms import GmresIR

INDEX_BYTES = 4


def modelled_bytes(
    n: int, action: ActionLike, restart: int, entries: tuple[int, int] | None = None
) -> int:
    """Bytes with formats (u_f, u, u_g, u_r), and `restart` Arnoldi steps in a GMRES cycle.

    The matrix in u, a second one in u_r if that is another format, the factors in u_f, and vectors:
    the Krylov basis of ``restart + 1`` and one product in u_g, solution and correction in u,
    right-hand side and residual in u_r. `entries` are those of a sparse A and of its factors, which
    have a 32-bit index each; by default both are dense.
    """
    u_f, u, u_g, u_r = GmresIR().formats(action)
    if entries is None:
        of_matrix, of_factors, index = n * n, n * n, 0
    else:
        (of_matrix, of_factors), index = entries, INDEX_BYTES
    matrices = of_matrix * (u.storage_bytes + index) + of_factors * (u_f.storage_bytes + index)
    if u_r != u:
        matrices += of_matrix * u_r.storage_bytes  # its indices are those of the other
    vectors = (restart + 2) * u_g.storage_bytes + 2 * u.storage_bytes + 2 * u_r.storage_bytes
    return matrices + n * vectors
