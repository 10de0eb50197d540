"""scikit-learn: kernel ridge regression, its penalty chosen on points that were held out."""

import numpy as np
from sklearn.kernel_ridge import KernelRidge

rng = np.random.default_rng(0)
X = rng.standard_normal((1500, 5))
y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(len(X))
for penalty in (1e-2, 1e-1, 1.0):
    model = KernelRidge(alpha=penalty, kernel="rbf", gamma=0.1).fit(X[:1100], y[:1100])
    print(f"penalty {penalty:4}: score {model.score(X[1100:], y[1100:]):.6f}")
