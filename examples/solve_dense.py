"""
A dense system
==============

The call, and what there is to know about the answer.
"""

import numpy as np

import roundwise as rw

rng = np.random.default_rng(0)
A = rng.standard_normal((1000, 1000))
x_true = rng.standard_normal(1000)
b = A @ x_true

x = rw.solve(A, b)  # in place of numpy.linalg.solve(A, b)
print(f"relative error {np.abs(x - x_true).max() / np.abs(x_true).max():.1e}")

# %%
# With ``full_output`` the answer comes with its error, the condition number, and how it was found.

solution = rw.solve(A, b, full_output=True)
print(solution)
print(solution.explain())
