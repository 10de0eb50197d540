"""
One matrix, many right-hand sides
=================================

Factorize once. Columns that are there together are solved together.
"""

# sphinx_gallery_thumbnail_path = "images/thumb-solve_many.png"

import numpy as np

import roundwise as rw

rng = np.random.default_rng(0)
A = rng.standard_normal((800, 800)) + 30 * np.eye(800)

B = rng.standard_normal((800, 20))
X = rw.solve(A, B)  # columns together
print(f"20 columns, largest residual {np.abs(A @ X - B).max():.1e}")

# %%
# Right-hand sides that come one after the other, each depending on the last, share the factors.

factorization = rw.factor(A)
b = rng.standard_normal(800)
for _ in range(5):
    b = factorization.solve(b)
    b /= np.abs(b).max()
print(factorization)
