"""NumPy and SciPy: currents on a wire at some frequencies (12, or as many as told); a grid."""

import sys

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

places = np.linspace(0.0, 1.0, 1000)
apart = np.abs(places[:, None] - places) + 1e-3
total = 0.0
for waves in np.linspace(1.0, 4.0, int(sys.argv[1]) if len(sys.argv) > 1 else 12):
    coupling = np.cos(2 * np.pi * waves * apart) / apart
    total += np.linalg.solve(coupling, np.ones(len(places))).sum()
print(f"currents {total:.6f}")

n = 120
chain = sparse.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1])
eye = sparse.eye_array(n)
grid = sparse.csc_array(sparse.kron(chain, eye) + sparse.kron(eye, chain))
charge = np.zeros(n * n)
charge[n * n // 2] = 1.0
for step in range(10):
    charge = spsolve(sparse.csc_array(grid * (1 + 0.1 * step) + sparse.eye_array(n * n)), charge)
print(f"potential {charge.max():.9e}")
