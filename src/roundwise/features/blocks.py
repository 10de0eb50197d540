"""Block triangular form: how much of a sparse matrix has to be factorized as one piece."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from roundwise.backends.engines import suits_symmetric_mode

BLOCKS_FROM = 1000
"""Below this n a block saves nothing that finding it would not cost."""


def largest_block(problem: Any) -> float:
    """The largest diagonal block of the block triangular form, as a share of n.

    Rows are exchanged such that no diagonal entry is zero, which full diagonals need not; the
    strongly connected components of the graph of A are then the blocks (Duff & Reid 1978), and only
    these need be factorized. It does not depend on which exchange fills the diagonal. 1 where it is
    not looked for: in dense, small and structurally singular matrices, and in nearly symmetric
    patterns, which seldom have more than one block.
    """
    if not problem.is_sparse or problem.n < BLOCKS_FROM or suits_symmetric_mode(problem.A):
        return 1.0
    A = problem.A
    if not A.diagonal().all():
        rows = maximum_bipartite_matching(A, perm_type="row")
        if (rows < 0).any():
            return 1.0
        A = A[rows]
    _, labels = connected_components(A, directed=True, connection="strong")
    return float(np.bincount(labels).max() / problem.n)
