"""
Which method, and why
=====================

Four systems that users of iterative solvers bring: heat in a cube, an elastic block, heat that is
carried along, a graph. What was done, and why, is in ``explain()``.
"""

# sphinx_gallery_thumbnail_path = "images/scaling.png"

import numpy as np
import scipy.sparse as sp

import roundwise as rw

rng = np.random.default_rng(0)

# %%
# Heat conduction in three dimensions: symmetric positive definite.

laplacian = rw.problems.laplace_3d(24)
print(rw.solve(laplacian, np.ones(laplacian.shape[0]), full_output=True).explain())

# %%
# Heat that is carried along by a wind: unsymmetric.

windy = rw.problems.pde.convection_diffusion_3d(16, 20.0)
print(rw.solve(windy, np.ones(windy.shape[0]), full_output=True).explain())


# %%
# An elastic block of trilinear elements, clamped at one side: three unknowns in each node.


def elastic_block(m, poisson_ratio=0.3):
    """The stiffness matrix of m x m x m cubes."""
    mu, lame = 1 / (2 + 2 * poisson_ratio), poisson_ratio / (1 + poisson_ratio)
    lame /= 1 - 2 * poisson_ratio
    D = np.diag([2 * mu] * 3 + [mu] * 3)
    D[:3, :3] += lame
    corners = np.array([(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)])
    K = np.zeros((24, 24))
    for point in (corners - 0.5) / np.sqrt(3) + 0.5:  # Gauss's rule
        near = np.where(corners, point, 1 - point)  # the factors of each shape function
        sign = 2 * corners - 1
        grad = sign * np.array(
            [[row[1] * row[2], row[0] * row[2], row[0] * row[1]] for row in near]
        )
        B = np.zeros((6, 24))
        for c, (x, y, z) in enumerate(grad):
            B[:, 3 * c : 3 * c + 3] = [
                *([x, 0, 0], [0, y, 0], [0, 0, z]),
                *([y, x, 0], [0, z, y], [z, 0, x]),
            ]
        K += B.T @ D @ B / 8
    K = (K + K.T) / 2
    number = np.arange((m + 1) ** 3).reshape(m + 1, m + 1, m + 1)
    nodes = [number[i : m + i, j : m + j, k : m + k].ravel() for i, j, k in corners]
    places = (3 * np.stack(nodes, axis=1)[:, :, None] + np.arange(3)).reshape(-1, 24)
    rows, columns = np.repeat(places, 24, axis=1), np.tile(places, 24)
    values = np.tile(K.ravel(), len(places))
    n = 3 * (m + 1) ** 3
    A = sp.coo_array((values, (rows.ravel(), columns.ravel())), (n, n)).tocsr()
    free = np.arange(3 * (m + 1) ** 2, n)  # all but the nodes of one side
    return A[free][:, free]


block = elastic_block(8)
pull = np.zeros(block.shape[0])
pull[2::3] = -1e-3  # its own weight
print(rw.solve(block, pull, full_output=True).explain())

# %%
# The Laplacian of a graph is singular: its null space, the constants, must be named.

edges = rng.integers(0, 500, (2, 2000))
weights = sp.coo_array((np.ones(2000), edges), (500, 500)).tocsr()
weights = weights + weights.T
graph = sp.diags_array(weights.sum(axis=1)) - weights
b = rng.standard_normal(500)
b -= b.mean()
potential = rw.solve(graph.tocsr(), b, nullspace="constants", full_output=True)
print(potential.explain())
print("mean of the potentials:", potential.x.mean())

# %%
# A matrix that nobody has: products are all that is known, and the diagonal preconditions it.


def product(x):
    return laplacian @ x


free = rw.solve(
    product, np.ones(laplacian.shape[0]), M=lambda r: r / laplacian.diagonal(), full_output=True
)
print(free.explain())
