"""SuiteSparse's engines, each in FP64 alone: CHOLMOD, KLU and UMFPACK."""

from roundwise.methods.sparse import DEFINITE, SAFE, engine

CHOLMOD_METIS = engine("cholmod/metis", ("ldl/amd",), DEFINITE, low=None)
CHOLMOD_AMD = engine("cholmod/amd", ("ldl/amd",), DEFINITE, low=None)
# Only where pivots stay where the counts expect them: KLU cannot be stopped if they do not.
KLU = engine("klu/amd", (SAFE,), low=None, counts=("fill_is_known",))
UMFPACK = engine("umfpack/amd", (SAFE,), low=None)
