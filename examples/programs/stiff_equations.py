"""SciPy: a stiff reaction with diffusion, integrated by Radau's implicit method."""

import numpy as np
from scipy.integrate import solve_ivp

n = 500
diffusion = (np.diag(np.full(n - 1, 1.0), -1) - 2 * np.eye(n) + np.diag(np.ones(n - 1), 1)) * 400.0


def change(t, u):
    return diffusion @ u + u * (1 - u) * (u - 0.3)


def jacobian(t, u):
    return diffusion + np.diag(-3 * u**2 + 2.6 * u - 0.3)


start = np.exp(-(np.linspace(-4, 4, n) ** 2))
found = solve_ivp(change, (0.0, 2.0), start, method="Radau", jac=jacobian, rtol=1e-6, atol=1e-9)
print(f"mass {found.y[:, -1].sum():.6f}, peak {found.y[:, -1].max():.6f}")
