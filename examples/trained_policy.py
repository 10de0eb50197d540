"""
A policy trained on systems like yours
======================================

Train a policy for ``solve``, save it, and solve with it.
Every method and format is run and timed on the training systems, here, on this machine. The policy
sees cheap features only, and learns which action makes the whole solve shortest. What it leads to
passes the same gate as any other answer: a poor policy costs time, and no digits.
"""

# sphinx_gallery_thumbnail_path = "images/thumb-trained_policy.png"

import tempfile
from pathlib import Path

import numpy as np

import roundwise as rw
from roundwise.problems import randsvd

# Two dozen dense systems; systems as large as yours teach more, and take longer.
rng = np.random.default_rng(0)
systems = [
    randsvd(int(n), kappa, mode=mode, rng=rng)
    for n in (200, 300, 400, 500)
    for kappa in (1e1, 1e4, 1e8)
    for mode in (2, 3)
]
tuner = rw.Tuner(rw.VerifiedSolve()).fit(systems)

# %%
# Then solve a system that it has not seen.

A, x_true = rng.standard_normal((1000, 1000)), rng.standard_normal(1000)
b = A @ x_true
solution = rw.solve(A, b, policy=tuner, full_output=True)
print(solution.explain())

# %%
# A saved policy is read by ``solve`` and by the command line.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "mine.json"
    tuner.save(path)  # JSON, and an npz file beside it
    x = rw.solve(A, b, policy=path)  # or: roundwise solve A.mtx b.mtx --policy mine.json
print(
    f"with the saved policy: relative error {np.abs(x - x_true).max() / np.abs(x_true).max():.1e}"
)

# Other policies learn from the same runs: Tuner(..., policy=..., table="outcomes.sqlite").
