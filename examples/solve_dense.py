"""
A dense system
==============

The call, and what there is to know about the answer.
"""

# sphinx_gallery_thumbnail_path = "images/thumb-solve_dense.png"

import numpy as np

import roundwise as rw

rng = np.random.default_rng(0)
A = rng.integers(-9, 10, (1000, 1000)).astype(float)
x_true = rng.integers(-9, 10, 1000).astype(float)
b = A @ x_true  # integers: this product is exact, so that x_true is the solution

x = rw.solve(A, b)  # in place of numpy.linalg.solve(A, b)
print(f"relative error {np.abs(x - x_true).max() / np.abs(x_true).max():.1e}")

# %%
# With ``full_output`` the answer comes with its error, the condition number, and how it was found.

solution = rw.solve(A, b, full_output=True)
print(solution)
print(solution.explain())
