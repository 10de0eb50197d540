"""How much memory a run of GMRES-IR would need if each stage stored its data in its format."""

from __future__ import annotations

from roundwise.actions import ActionLike
from roundwise.algorithms.gmres_ir import GmresIR

INDEX_BYTES = 4


def modelled_bytes(
    n: int, action: ActionLike, restart: int, entries: tuple[int, int] | None = None
) -> int:
    """Storage of GMRES-IR with formats (u_f, u, u_g, u_r), after Carson & Chen's native study.

    The matrix in u, a second one in u_r if that is another format, the factors in u_f, and vectors:
    the Krylov basis of ``restart + 1`` and one product in u_g, solution and correction in u,
    right-hand side and residual in u_r. It is a model: what a run really took is measured by
    `roundwise.outcomes.fill`.

    `restart` is the Arnoldi steps of a GMRES cycle, n if it never restarts. `entries` are those of
    a sparse A and of its factors, which have a 32-bit index each; by default both are dense.

    Parameters
    ----------
    n : int
        Unknowns.
    action : str or sequence of formats
        Formats of factor, update, gmres and residual.
    restart : int
        Arnoldi steps of a cycle.
    entries : (int, int), optional
        Of a sparse A and of its factors.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> from roundwise.algorithms import modelled_bytes
    >>> full = modelled_bytes(1000, "fp64-fp64-fp64-fp64", restart=30)
    >>> full - modelled_bytes(1000, "fp32-fp64-fp64-fp64", restart=30)  # half of the factors
    4000000
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
