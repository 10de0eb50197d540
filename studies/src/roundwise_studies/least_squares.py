"""Which precision suffices in least squares, as kappa and the residual vary; and can it be learned?

    python -m roundwise_studies.least_squares [--page docs/least-squares.md]

Emulated arithmetic (``operation``), m = 60, n = 20, `random_least_squares`; two to three minutes on
two cores. It follows no table of Carson, Higham & Pranesh (2020), whose experiments have other
matrices and MATLAB's emulation; the question is theirs. Two parts:

- `sufficient`: the lowest factor format with which `LsIR` passes the gate of `roundwise.lstsq`, by
  QR and by Cholesky of A'A, for each kappa and residual;
- `learned`: the paper's loop. A `Tuner` learns formats for all stages from training problems, and
  is judged on others.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundwise.actions import Action
from roundwise.algorithms import LsIR
from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.algorithms.least_squares.verified_lstsq import target_error
from roundwise.formats import FP64, get_format
from roundwise.policies import TabularQ
from roundwise.problems import LeastSquares, random_least_squares
from roundwise.rewards.paper import PAPER_W2
from roundwise.tuning import Tuner
from roundwise_studies.report import Table, format_markdown, format_text, replace_block

REFERENCE = "fp64-fp64-fp64-fp64x2"


@dataclass(frozen=True)
class Settings:
    """All that the result depends on."""

    m: int = 60
    n: int = 20
    kappas: tuple[float, ...] = (1e0, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12)
    residuals: tuple[float, ...] = (0.0, 1e-6, 1e-3, 1.0, 1e3)
    draws: int = 2
    training: int = 60
    testing: int = 40
    learned_formats: tuple[str, ...] = ("bf16", "fp32", "fp64")
    seed: int = 0


def drawn(settings: Settings, kappa: float, residual: float, seed: int) -> LeastSquares:
    rng = np.random.default_rng([settings.seed, seed])
    return random_least_squares(settings.m, settings.n, kappa=kappa, residual=residual, rng=rng)


def passes_gate(nbe: float, settings: Settings) -> bool:
    return nbe <= target_error(settings.m, settings.n, np.float64)


def lowest_format(problems: Iterable[LeastSquares], method: str, settings: Settings) -> str:
    """The lowest factor format that suffices for all problems, with FP64 in the other stages."""
    algorithm = LsIR(method="qr" if method == "qr" else "cholesky")
    needed = 0
    for problem in problems:
        while needed < len(PAPER_FORMATS):
            outcome = algorithm.run(problem, f"{PAPER_FORMATS[needed]}-fp64-fp64-fp64")
            if outcome.x is not None and passes_gate(outcome.nbe, settings):
                break
            needed += 1
    return PAPER_FORMATS[needed] if needed < len(PAPER_FORMATS) else "none"


def sufficient(settings: Settings) -> Table:
    """A row for each kappa, a column for each residual; QR's format, and Cholesky's."""
    rows: list[list[str]] = []
    for kappa in settings.kappas:
        row = [f"{kappa:.0e}"]
        for residual in settings.residuals:
            problems = [drawn(settings, kappa, residual, i) for i in range(settings.draws)]
            found = [lowest_format(problems, method, settings) for method in ("qr", "cholesky")]
            row.append(" / ".join(found))
        rows.append(row)
    header = ["kappa", *(f"residual {residual:.0e}" for residual in settings.residuals)]
    return Table("The lowest factor format that suffices: QR / Cholesky of A'A", header, rows)


def with_reference(problem: LeastSquares) -> LeastSquares:
    """The problem with its solution, refined with residuals in twice float64's precision."""
    x = LsIR().run(problem, REFERENCE, "native").x
    assert x is not None
    return replace(problem, x_true=x)


def learned(settings: Settings) -> Table:
    """How a trained `Tuner` does on unseen problems, beside one action for all."""
    rng = np.random.default_rng(settings.seed)
    count = settings.training + settings.testing
    logs = rng.uniform(0, 7, count)
    residuals = 10.0 ** rng.uniform(-6, 0, count)
    problems = [
        with_reference(drawn(settings, 10.0**log, float(residual), 1000 + i))
        for i, (log, residual) in enumerate(zip(logs, residuals, strict=True))
    ]
    algorithm = LsIR()
    training, testing = problems[: settings.training], problems[settings.training :]
    tuner = Tuner(
        algorithm,
        settings.learned_formats,
        policy=TabularQ(alpha="1/N", generalise="nearest"),
        reward=PAPER_W2,
        seed=settings.seed,
    ).fit(training)
    fp64 = Action([FP64] * 4)
    low = Action([get_format("bf16"), FP64, FP64, FP64])
    policies: dict[str, Sequence[Action]] = {
        "all fp64": [fp64] * len(testing),
        "bf16 factors": [low] * len(testing),
        "Tuner": [tuner.predict(problem) for problem in testing],
    }
    rows: list[list[str | float]] = []
    for name, actions in policies.items():
        outcomes = [algorithm.run(p, a) for p, a in zip(testing, actions, strict=True)]
        # As accurate as the conditioning of the problem lets float64 be, up to a factor of ten.
        right = [
            o.ferr <= 10 * sensitivity(p) * FP64.unit_roundoff
            for o, p in zip(outcomes, testing, strict=True)
        ]
        rows.append(
            [
                name,
                100 * float(np.mean(right)),
                float(np.mean([action[0].p for action in actions])),
                float(np.mean([sum(fmt.p for fmt in action) for action in actions])),
                float(np.mean([o.inner_iterations for o in outcomes])),
            ]
        )
    header = ["policy", "accurate, %", "bits in factor", "bits in all stages", "GMRES iterations"]
    return Table("What a Tuner learns", header, rows)


def sensitivity(problem: LeastSquares) -> float:
    """``kappa + kappa^2 ||r|| / (||A|| ||x||)``: the condition number of x (Wedin 1973)."""
    assert problem.x_true is not None
    s = np.linalg.svd(problem.A, compute_uv=False)
    r = problem.b - problem.A @ problem.x_true
    kappa = float(s[0] / s[-1])
    sizes = float(s[0]) * math.hypot(*problem.x_true.tolist())
    return kappa + kappa**2 * math.hypot(*r.tolist()) / sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, help="the page whose blocks are to be replaced")
    given = parser.parse_args()
    tables = {"sufficient": sufficient(Settings()), "learned": learned(Settings())}
    for table in tables.values():
        print(format_text(table), end="\n\n")
    if given.page:
        page = given.page.read_text(encoding="utf-8")
        for name, table in tables.items():
            page = replace_block(page, name, format_markdown(table))
        given.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
