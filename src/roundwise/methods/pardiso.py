"""PARDISO, which comes with MKL: three factorizations, each in METIS's order and in MMD's."""

from roundwise.methods.sparse import DEFINITE, SAFE, SYMMETRIC, engine

CHOLESKY_METIS = engine("pardiso-cholesky/metis", ("ldl/amd",), DEFINITE)
CHOLESKY_MMD = engine("pardiso-cholesky/mmd", ("ldl/amd",), DEFINITE)
# Symmetric indefinite: in FP32 too many pivots are too small.
LDL_METIS = engine("pardiso-ldl/metis", (SAFE,), SYMMETRIC, low=None)
LDL_MMD = engine("pardiso-ldl/mmd", (SAFE,), SYMMETRIC, low=None)
LU_METIS = engine("pardiso/metis", (SAFE,))
LU_MMD = engine("pardiso/mmd", (SAFE,))
