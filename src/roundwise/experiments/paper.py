"""The numbers of the paper's simulated experiments, as data.

E. Carson and X. Chen, Precision autotuning for linear solvers via contextual bandit-based RL.
Tables and figures are numbered in the order of its source. `METRICS` names the columns of the
performance tables; `reported` looks one number up.
"""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[float, str, str]
"""(tau, method, range); methods are ``W1``, ``W2``, ``FP64``; the range ``all`` is all systems."""

METRICS = ("success", "ferr", "nbe", "outer", "gmres")
"""Success in percent (none for FP64), mean errors, mean outer and total inner iterations."""

Numbers = tuple[float | None, float, float, float, float]

TABLES = {
    "dense": "Table 2",
    "sparse": "Table 4",
    "pde": "Table 7",
    "ablation": "Table 9",
    "sparse usage": "Table 5",
    "pde usage": "Table 8",
    "sparse data": "Table 3",
    "pde data": "Table 6",
}

_DENSE_FP64: dict[Key, Numbers] = {
    (1e-6, "FP64", "low"): (None, 1.20e-14, 7.96e-17, 2.00, 2.00),
    (1e-6, "FP64", "medium"): (None, 1.46e-11, 8.13e-17, 2.00, 2.00),
    (1e-6, "FP64", "high"): (None, 1.92e-09, 8.09e-17, 2.00, 2.00),
    (1e-8, "FP64", "low"): (None, 1.20e-14, 7.96e-17, 2.00, 2.00),
    (1e-8, "FP64", "medium"): (None, 1.46e-11, 8.13e-17, 2.00, 2.00),
    (1e-8, "FP64", "high"): (None, 1.92e-09, 8.14e-17, 2.00, 2.93),
}

PERFORMANCE: dict[str, dict[Key, Numbers]] = {
    "dense": {
        (1e-6, "W1", "low"): (100, 1.19e-14, 7.90e-17, 2.35, 2.70),
        (1e-6, "W1", "medium"): (100, 1.57e-11, 2.82e-15, 2.26, 2.20),
        (1e-6, "W1", "high"): (100, 1.89e-09, 1.63e-14, 2.21, 2.54),
        (1e-6, "W2", "low"): (100, 2.48e-07, 2.19e-08, 2.30, 8.00),
        (1e-6, "W2", "medium"): (100, 4.22e-07, 4.95e-11, 2.29, 3.40),
        (1e-6, "W2", "high"): (100, 1.89e-09, 1.63e-14, 2.21, 2.54),
        (1e-8, "W1", "low"): (100, 1.18e-14, 7.40e-17, 2.35, 4.49),
        (1e-8, "W1", "medium"): (100, 2.95e-11, 9.60e-13, 2.14, 4.77),
        (1e-8, "W1", "high"): (100, 2.02e-09, 7.93e-17, 2.11, 3.79),
        (1e-8, "W2", "low"): (89.2, 2.49e-07, 2.61e-08, 2.22, 9.54),
        (1e-8, "W2", "medium"): (100, 3.49e-06, 6.44e-11, 2.14, 4.71),
        (1e-8, "W2", "high"): (100, 3.91e-06, 4.28e-11, 2.11, 3.57),
        **_DENSE_FP64,
    },
    "ablation": {
        (1e-6, "W1", "low"): (100, 8.86e-08, 1.45e-10, 2.65, 11.05),
        (1e-6, "W1", "medium"): (100, 4.22e-07, 4.97e-11, 2.54, 5.94),
        (1e-6, "W1", "high"): (100, 1.94e-09, 1.63e-14, 2.32, 3.25),
        (1e-6, "W2", "low"): (100, 3.37e-07, 2.20e-08, 2.46, 12.08),
        (1e-6, "W2", "medium"): (100, 4.22e-07, 4.97e-11, 2.54, 5.94),
        (1e-6, "W2", "high"): (100, 1.94e-09, 1.63e-14, 2.32, 3.25),
        (1e-8, "W1", "low"): (100, 1.34e-11, 1.62e-12, 2.38, 15.97),
        (1e-8, "W1", "medium"): (100, 3.49e-06, 6.44e-11, 2.31, 12.37),
        (1e-8, "W1", "high"): (100, 3.91e-06, 4.28e-11, 2.11, 3.57),
        (1e-8, "W2", "low"): (89.2, 2.49e-07, 2.61e-08, 2.27, 21.03),
        (1e-8, "W2", "medium"): (100, 3.49e-06, 6.48e-11, 2.34, 12.51),
        (1e-8, "W2", "high"): (100, 3.91e-06, 4.28e-11, 2.18, 4.29),
        **_DENSE_FP64,
    },
    "sparse": {
        (1e-6, "W1", "all"): (100, 4.91e-09, 5.26e-17, 2.01, 2.22),
        (1e-6, "W2", "all"): (100, 4.91e-09, 5.26e-17, 2.01, 2.22),
        (1e-6, "FP64", "all"): (None, 4.90e-09, 5.28e-17, 2.00, 2.00),
        (1e-8, "W1", "all"): (100, 4.90e-09, 5.28e-17, 2.00, 2.10),
        (1e-8, "W2", "all"): (100, 4.91e-09, 5.28e-17, 2.01, 2.36),
        (1e-8, "FP64", "all"): (None, 4.90e-09, 5.28e-17, 2.00, 2.10),
    },
    "pde": {
        (1e-6, "W1", "all"): (100, 1.13e-2, 2.38e-7, 2.05, 12.75),
        (1e-6, "W2", "all"): (100, 1.13e-2, 2.38e-7, 2.31, 13.01),
        (1e-6, "FP64", "all"): (None, 3.89e-11, 6.46e-17, 2.00, 2.00),
        (1e-8, "W1", "all"): (100, 4.43e-11, 8.41e-15, 2.04, 5.13),
        (1e-8, "W2", "all"): (100, 4.43e-11, 8.41e-15, 2.04, 5.13),
        (1e-8, "FP64", "all"): (None, 3.89e-11, 6.46e-17, 2.00, 2.00),
    },
}

USAGE: dict[str, dict[tuple[float, str], dict[str, float]]] = {
    experiment: {
        key: dict(zip(("bf16", "tf32", "fp32", "fp64"), shares, strict=True))
        for key, shares in rows.items()
    }
    for experiment, rows in {
        "sparse": {
            (1e-6, "W1"): (0.00, 0.00, 0.01, 3.99),
            (1e-6, "W2"): (0.00, 0.00, 0.01, 3.99),
            (1e-8, "W1"): (0.00, 0.00, 0.00, 4.00),
            (1e-8, "W2"): (0.00, 0.00, 0.01, 3.99),
        },
        "pde": {
            (1e-6, "W1"): (0.01, 0.00, 0.07, 3.92),
            (1e-6, "W2"): (0.01, 0.00, 0.33, 3.66),
            (1e-8, "W1"): (0.00, 0.01, 0.07, 3.92),
            (1e-8, "W2"): (0.00, 0.01, 0.07, 3.92),
        },
    }.items()
}
"""Mean stages (of 4) per format and solve; of the dense systems the paper has a figure only."""

DENSE_USAGE: dict[tuple[float, str, str], dict[str, float]] = {
    key: {
        **{fmt: count / systems for fmt, count in zip(("bf16", "tf32", "fp32"), low, strict=True)},
        "fp64": 4 - sum(low) / systems,
    }
    for key, (systems, low) in {
        (1e-6, "W1", "low"): (37, (0, 0, 13)),
        (1e-6, "W1", "medium"): (35, (0, 0, 14)),
        (1e-6, "W1", "high"): (28, (0, 0, 9)),
        (1e-6, "W2", "low"): (37, (5, 16, 5)),
        (1e-6, "W2", "medium"): (35, (0, 3, 14)),
        (1e-6, "W2", "high"): (28, (0, 0, 9)),
        (1e-8, "W1", "low"): (37, (0, 0, 13)),
        (1e-8, "W1", "medium"): (35, (0, 2, 8)),
        (1e-8, "W1", "high"): (28, (0, 0, 3)),
        (1e-8, "W2", "low"): (37, (4, 16, 5)),
        (1e-8, "W2", "medium"): (35, (0, 2, 10)),
        (1e-8, "W2", "high"): (28, (0, 0, 9)),
    }.items()
}
"""The same of the dense systems by range, the numbers behind the paper's figure: from the files
``precision_usage_by_condition.csv`` of its released results (https://github.com/inEXASCALE/rlops),
as systems, and the stages of all of them in bf16, tf32 and fp32."""

DENSE_LOW_W2_USAGE = {"bf16": 0.33, "tf32": 0.76}
"""About, for W2 and low kappa; the text does not say at which tau."""

HIGH_CONTRAST_FERR = 4.53e-2
"""Mean ferr of W1 and of W2 in the high-contrast family, tau = 1e-6."""

HIGH_CONTRAST_GMRES = 14.52
"""Mean inner iterations in the high-contrast family, tau = 1e-8."""


@dataclass(frozen=True)
class DataRow:
    """A row of the paper's data set summaries; densities in percent."""

    count: int
    kappa: tuple[float, float]
    n: tuple[int, int]
    density: tuple[float, float]


DATA: dict[str, dict[str, DataRow]] = {
    "sparse": {
        "train": DataRow(100, (9.926e7, 1.559e10), (103, 500), (1.80, 5.10)),
        "test": DataRow(100, (1.016e8, 7.863e9), (100, 498), (1.80, 5.00)),
    },
    "pde": {
        "train": DataRow(100, (2.187e1, 3.592e11), (100, 529), (0.91, 4.60)),
        "test": DataRow(100, (2.236e1, 2.222e12), (121, 529), (0.91, 3.83)),
        "poisson_2d": DataRow(25, (5.770e1, 2.137e2), (121, 484), (1.00, 3.83)),
        "anisotropic_2d": DataRow(25, (5.770e1, 2.328e2), (121, 529), (0.91, 3.83)),
        "high_contrast_2d": DataRow(25, (6.022e5, 2.222e12), (196, 529), (0.91, 2.41)),
        "convection_diffusion_2d": DataRow(25, (2.236e1, 1.868e2), (121, 529), (0.91, 3.83)),
    },
}
"""By subset: the two halves, and the families of the test half."""


def reported(experiment: str, tau: float, method: str, kappa_range: str, metric: str) -> float:
    """A number of the paper's performance tables; NaN where it has none."""
    row = PERFORMANCE.get(experiment, {}).get((tau, method, kappa_range))
    value = None if row is None or metric not in METRICS else row[METRICS.index(metric)]
    return float("nan") if value is None else float(value)


@dataclass(frozen=True)
class NativeRow:
    """A row of the paper's native CPU study, of 100 validation systems; times in milliseconds."""

    actions: int
    reduced: int
    successes: int
    speedup: float
    memory: float
    ms: float
    ms_fp64: float
    ferr: float
    nbe: float


NATIVE: dict[tuple[float, str], NativeRow] = {
    (1e-6, "RL(W1)"): NativeRow(5, 53, 100, 1.74, 0.92, 227.73, 320.09, 1.84e-8, 6.53e-9),
    (1e-6, "RL(W2)"): NativeRow(5, 53, 100, 1.74, 0.92, 227.73, 320.09, 1.84e-8, 6.53e-9),
    (1e-8, "RL(W1)"): NativeRow(4, 28, 100, 1.44, 0.91, 268.97, 320.15, 5.68e-12, 3.45e-12),
    (1e-8, "RL(W2)"): NativeRow(5, 29, 99, 1.45, 0.91, 266.61, 320.15, 5.74e-12, 3.49e-12),
}
"""By (tau, policy); the formats are fp16, fp32 and fp64."""
