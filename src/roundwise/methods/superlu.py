"""SuperLU, which comes with SciPy."""

from roundwise.methods.sparse import SAFE, engine

# From a weak diagonal pivots leave, and fill in where nobody counted on it.
MMD = engine("superlu/mmd", (SAFE,), ("symmetric_pattern", "strong_diagonal"))
COLAMD = engine(SAFE, ())
