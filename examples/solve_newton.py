"""Newton's method: a sequence of like matrices, and a solver that remembers.

The discretised Bratu problem u'' + c exp(u) = 0 with u = 0 at both ends, with a dense kernel
added, so that the Jacobians are full.
"""

import numpy as np

import roundwise as rw

n, c = 500, 2.0
h = 1 / (n + 1)
t = h * np.arange(1, n + 1)
laplacian = (
    np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
) / h**2
kernel = h * np.exp(-(np.subtract.outer(t, t) ** 2))

solver = rw.Solver()  # learns from its own solves; Solver(memory="solver.sqlite") keeps it
u = np.zeros(n)
for iteration in range(20):
    residual = laplacian @ u + c * np.exp(u) + kernel @ u
    jacobian = laplacian + np.diag(c * np.exp(u)) + kernel
    step = solver.solve(jacobian, -residual, full_output=True)
    u += step.x
    size = np.abs(step.x).max()
    print(f"{iteration}: correction {size:.1e}, {step.action}, {1e3 * step.seconds:.1f} ms")
    if size < 1e-10:
        break
