"""Approximate inverses of sparse matrices, made and applied by compiled kernels."""

from roundwise.backends.preconditioners.contract import STORED_IN, Preconditioner
from roundwise.backends.preconditioners.incomplete import Incomplete
from roundwise.backends.preconditioners.multigrid import Multigrid

__all__ = ["STORED_IN", "Incomplete", "Multigrid", "Preconditioner"]
