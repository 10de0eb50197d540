"""
A sparse system
===============

Poisson's equation in three dimensions, by finite differences.
"""

# sphinx_gallery_thumbnail_path = "images/thumb-solve_sparse.png"

import numpy as np
import scipy.sparse as sp

import roundwise as rw

m = 20
T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
eye = sp.eye_array(m)
A = sp.kron(sp.kron(T, eye), eye) + sp.kron(sp.kron(eye, T), eye) + sp.kron(sp.kron(eye, eye), T)
b = np.ones(m**3)

# %%
# The call is the same as for a dense matrix; A stays sparse.

solution = rw.solve(A, b, full_output=True)  # in place of scipy.sparse.linalg.spsolve(A, b)
print(solution)

# %%
# What was chosen, and how far to trust x:

print(solution.explain())
