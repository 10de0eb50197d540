"""statsmodels: ordinary least squares, with and without weights, and a logistic regression."""

import numpy as np
import statsmodels.api as sm

rng = np.random.default_rng(0)
X = sm.add_constant(rng.standard_normal((5000, 40)))
y = X @ np.arange(41) + rng.standard_normal(len(X))
print(f"R^2 {sm.OLS(y, X).fit().rsquared:.8f}")
print(f"weighted {sm.WLS(y, X, weights=rng.uniform(1, 2, len(X))).fit().rsquared:.8f}")
noisy = y + 100 * rng.standard_normal(len(X))
print(f"logistic {sm.Logit(noisy > 0, X[:, :20]).fit(disp=0).llf:.5f}")
