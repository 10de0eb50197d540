"""Algebraic multigrid as PyAMG has it: a preconditioner for positive definite matrices."""

from roundwise.methods.sparse import DEFINITE, engine

RUGE_STUBEN = engine("amg/rs", ("cholesky/amd",), DEFINITE, low=None)
