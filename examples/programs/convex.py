"""cvxpy: least squares with numbers that must not be negative, for several penalties."""

import cvxpy as cp
import numpy as np

rng = np.random.default_rng(0)
A = rng.standard_normal((300, 80))
b = rng.standard_normal(300)
x = cp.Variable(80)
for penalty in (0.1, 1.0, 10.0):
    objective = cp.Minimize(cp.sum_squares(A @ x - b) + penalty * cp.norm1(x))
    problem = cp.Problem(objective, [x >= 0])
    problem.solve(solver=cp.CLARABEL)
    print(f"penalty {penalty:4}: {problem.value:.5f}")
