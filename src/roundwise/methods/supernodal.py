"""Our own sparse engines: Cholesky, L D L' and LU with static pivots, in panels."""

from roundwise.methods.sparse import DEFINITE, SAFE, STATIC, SYMMETRIC, engine

# Nested dissection is for systems where its flops were counted: they are part of the price.
CHOLESKY_ND = engine("cholesky/nd", ("ldl/amd",), DEFINITE, counts=("nd_flops",))
CHOLESKY_AMD = engine("cholesky/amd", ("ldl/amd",), DEFINITE)
# Symmetric indefinite: in FP32 too many pivots are too small.
LDL_AMD = engine("ldl/amd", (SAFE,), SYMMETRIC, low=None)
LU_ND = engine("lu/nd", (SAFE,), STATIC, counts=("nd_flops",))
LU_AMD = engine("lu/amd", (SAFE,), STATIC)
