"""SciPy: a grid of resistors and capacitors over time, with factors that are kept for a while."""

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

n = 150
chain = sparse.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1])
eye = sparse.eye_array(n)
grid = sparse.kron(chain, eye) + sparse.kron(eye, chain)
voltage = np.zeros(n * n)
for time in range(12):
    conductance = 1.0 + 0.2 * np.sin(time)
    factors = splu(sparse.csc_array(conductance * grid + 0.01 * sparse.eye_array(n * n)))
    for step in range(3):
        source = np.zeros(n * n)
        source[n // 2] = np.cos(0.1 * (3 * time + step))
        voltage = factors.solve(source + 0.01 * voltage)
print(f"voltage {voltage.max():.9f}, energy {voltage @ voltage:.9f}")
