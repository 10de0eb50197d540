"""scikit-learn: a Gaussian process whose kernel is fitted to the data."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

rng = np.random.default_rng(0)
X = rng.standard_normal((500, 3))
y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(len(X))
model = GaussianProcessRegressor(RBF() + WhiteKernel(0.01), random_state=0).fit(X, y)
print(f"log likelihood {model.log_marginal_likelihood_value_:.4f}")
mean, deviation = model.predict(np.zeros((1, 3)), return_std=True)
print(f"at the origin {mean[0]:.5f} +- {deviation[0]:.5f}")
