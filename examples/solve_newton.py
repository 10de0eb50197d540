"""
Newton's method
===============

A sequence of matrices with one pattern, which is analysed once: the Bratu problem
``laplace(u) + c exp(u) = 0`` on a square, u = 0 at its boundary, by finite differences. Needs
roundwise[plot].
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

import roundwise as rw

side, c = 80, 2.0
n, h = side**2, 1 / (side + 1)
line = sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(side, side)) / h**2
eye = sparse.eye_array(side)
laplacian = sparse.csr_array(sparse.kron(line, eye) + sparse.kron(eye, line))


def jacobian(u):
    """Its entries change with u, its pattern does not."""
    return laplacian + sparse.diags_array(c * np.exp(u))


u, sizes = np.zeros(n), []
F = rw.factor(jacobian(u))
for iteration in range(20):
    residual = laplacian @ u + c * np.exp(u)
    step = F.solve(-residual, full_output=True)
    u += step.x
    size = np.abs(step.x).max()
    sizes.append(size)
    print(f"{iteration}: correction {size:.1e}, {step.action}, {1e3 * step.seconds:.1f} ms")
    if size < 1e-10:
        break
    F.refactor(jacobian(u))

# %%
# Each correction is about the square of the last one: Newton's method converges as it should,
# whatever the format of the factors.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
image = left.imshow(u.reshape(side, side), extent=(0, 1, 0, 1), cmap="viridis", origin="lower")
left.set(title="u, the solution")
fig.colorbar(image)
right.semilogy(sizes, "o-")
right.set(xlabel="iteration", title="largest entry of the correction")

# %%
# How the sum of u changes with each entry of the right-hand side: one solve with the transpose.
w = F.solve(np.ones(n), "T")
print(f"sensitivities: {w.min():.2e} to {w.max():.2e}")
plt.show()
