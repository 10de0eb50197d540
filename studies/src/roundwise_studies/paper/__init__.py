"""The numbers of the paper, read from the CSV files beside this module.

E. Carson and X. Chen, Precision autotuning for linear solvers via contextual bandit-based RL.
Tables and figures are numbered in the order of its source. Methods are ``W1``, ``W2`` and ``FP64``;
the range ``all`` means all systems.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

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

HIGH_CONTRAST_FERR = 4.53e-2
"""Mean ferr of W1 and of W2 in the high-contrast family, tau = 1e-6."""

HIGH_CONTRAST_GMRES = 14.52
"""Mean inner iterations in the high-contrast family, tau = 1e-8."""


def _read(name: str, keys: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The numbers of each row of ``<name>.csv`` by its first `keys` columns, texts or numbers."""
    with Path(__file__).with_name(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = ([_cell(text) for text in row] for row in csv.reader(file))
    return {tuple(row[:keys]): dict(zip(header[keys:], row[keys:], strict=True)) for row in rows}


def _cell(text: str) -> Any:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text or None


def _shares(stages: dict[str, Any]) -> dict[str, float]:
    """Mean stages per system in each format; the stages that are not listed are in fp64."""
    counts = {name: stages[name] or 0 for name in ("bf16", "tf32", "fp32")}
    systems = stages["systems"] or 1
    shares = {name: count / systems for name, count in counts.items()}
    return {**shares, "fp64": 4 - sum(counts.values()) / systems}


PERFORMANCE = _read("performance", 4)
"""Success in percent (none for FP64), mean errors, mean outer and total inner iterations, by
(experiment, tau, method, range)."""

USAGE = _read("usage", 3)
"""Mean stages (of 4) per format and solve; of the dense systems the paper has a figure only."""

DENSE_USAGE = {key: _shares(row) for key, row in _read("dense_usage", 3).items()}
"""Mean stages per format of the dense systems by (tau, method, range): the numbers behind the
paper's figure, from the files ``precision_usage_by_condition.csv`` of its released results
(https://github.com/inEXASCALE/rlops). ``dense_usage.csv`` has the systems of each range, and the
stages of all of them together in bf16, tf32 and fp32."""

ABLATION_USAGE = {key: _shares(row) for key, row in _read("ablation_usage", 3).items()}
"""The same of the ablation."""

DATA = _read("data", 2)
"""The paper's data sets by (experiment, subset): the two halves, and the families of the test half;
densities in percent."""

NATIVE = _read("native", 2)
"""The native CPU study by (tau, policy): 100 validation systems, times in milliseconds; the formats
are fp16, fp32 and fp64."""


def reported(experiment: str, tau: float, method: str, kappa_range: str, metric: str) -> float:
    """A number of the paper's performance tables; NaN where it has none."""
    value = PERFORMANCE.get((experiment, tau, method, kappa_range), {}).get(metric)
    return math.nan if value is None else float(value)


def reported_usage(experiment: str, tau: float, method: str, fmt: str) -> float:
    """Mean stages in a format over all systems; NaN where the paper has no number."""
    value = USAGE.get((experiment, tau, method), {}).get(fmt)
    return math.nan if value is None else float(value)


def stages(experiment: str, tau: float, method: str, kappa_range: str) -> dict[str, float]:
    """Mean stages (of 4) in each format: by range for dense systems, else in ``all``."""
    by_range = {"dense": DENSE_USAGE, "ablation": ABLATION_USAGE}.get(experiment)
    if by_range is not None:
        return by_range[tau, method, kappa_range]
    return {name: float(share) for name, share in USAGE[experiment, tau, method].items()}
