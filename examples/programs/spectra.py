"""NumPy: spectra of mixtures, taken apart by least squares; many small systems, too."""

import numpy as np

rng = np.random.default_rng(0)
channels, substances = 2000, 120
pure = np.abs(rng.standard_normal((channels, substances)))
total = np.zeros(substances)
for _ in range(25):
    pure += 0.01 * rng.standard_normal(pure.shape)
    mixture = pure @ rng.uniform(0, 1, substances) + 0.01 * rng.standard_normal(channels)
    total += np.linalg.lstsq(pure, mixture)[0]
print(f"amounts {total.sum():.6f}, largest {total.max():.6f}")
for _ in range(5000):
    small = rng.standard_normal((6, 6)) + 6 * np.eye(6)
    total[:6] = np.linalg.solve(small, total[:6])
print(f"corrected {np.abs(total[:6]).max():.6e}")
