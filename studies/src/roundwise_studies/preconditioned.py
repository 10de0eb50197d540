"""How few bits does each stage of preconditioned CG and GMRES need?

    python -m roundwise_studies.preconditioned [--page docs/iterative-precision.md]

Emulated arithmetic (``operation``), `KrylovIR`; half a minute on two cores. The question is the
paper's, asked of iterative methods: formats for four stages, of dense systems like the paper's
(with complete factors, as GMRES-IR has them) and of discretized partial differential equations
(with preconditioners that are no factorization). Two parts:

- `sufficient`: the lowest format of each stage with which the backward error is at most
  ``sqrt(n) u``, all other stages in FP64, and by how much the iterations grow;
- `by_bits`: iterations against significand bits of the preconditioner and of the Krylov vectors, in
  formats with any number of bits and the exponents of BF16 and FP32.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roundwise.actions import Action
from roundwise.algorithms import KrylovIR, Outcome, Shared
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.formats import BF16, FP32, FP64, TF32, FloatFormat
from roundwise.problems import LinearSystem, pde, poisson_2d, randsvd
from roundwise_studies.report import (
    Figure,
    Table,
    format_markdown,
    format_text,
    replace_block,
    write_figure,
)
from roundwise_studies.report.drawing import group_look, legend_above, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FORMATS = (BF16, TF32, FP32, FP64)
BITS = (2, 3, 4, 6, 8, 11, 16, 24, 53)


@dataclass(frozen=True)
class Case:
    """A system, and how it is solved."""

    name: str
    system: LinearSystem
    algorithm: KrylovIR

    @property
    def method(self) -> str:
        """The Krylov method and its preconditioner, in words."""
        return f"{self.algorithm.krylov.upper()}, {self.algorithm.preconditioner.upper()}"


def cases(m: int = 20, n: int = 100, seed: int = 0) -> list[Case]:
    """Systems of n unknowns if dense, of m x m unknowns if sparse."""
    rng = np.random.default_rng(seed)
    spd = randsvd(n, 1e2, rng=rng)
    squared = LinearSystem.from_solution(spd.A @ spd.A.T, rng.standard_normal(n))
    contrast = pde.high_contrast_2d(m, 1e4, rng=rng)
    convection = pde.convection_diffusion_2d(m, 0.05, (1.0, 0.5))
    poisson, stretched = poisson_2d(m), pde.anisotropic_2d(m, 1e-2)
    return [
        Case("dense, kappa 1e2", randsvd(n, 1e2, rng=rng), KrylovIR("gmres", "lu")),
        Case("dense, kappa 1e6", randsvd(n, 1e6, rng=rng), KrylovIR("gmres", "lu")),
        Case("dense spd, kappa 1e4", squared, KrylovIR("cg", "cholesky")),
        Case("Poisson", poisson, KrylovIR("cg", "fsai")),
        Case("anisotropic", stretched, KrylovIR("cg", "fsai")),
        Case("high contrast", contrast, KrylovIR("cg", "jacobi")),
        Case("high contrast", contrast, KrylovIR("cg", "fsai")),
        Case("convection", convection, KrylovIR("gmres", "jacobi")),
        Case("convection", convection, KrylovIR("gmres", "spai")),
    ]


def passes_gate(outcome: Outcome, case: Case) -> bool:
    return outcome.x is not None and outcome.nbe <= default_tolerance(case.system.n)


def with_format(stage: int, fmt: FloatFormat) -> Action:
    """FP64 in all stages but one."""
    formats = [FP64] * len(KrylovIR.stages)
    formats[stage] = fmt
    return Action(formats)


def sufficient(studied: list[Case]) -> Table:
    """A row for each case: iterations in FP64, and the lowest format of each stage."""
    rows: list[list[str | float]] = []
    for case in studied:
        shared = Shared()
        full = case.algorithm.run(case.system, with_format(0, FP64), shared=shared)
        lowest = (_lowest(case, i, full, shared) for i in range(len(KrylovIR.stages)))
        rows.append([case.name, case.method, full.inner_iterations, *lowest])
    header = ["system", "method", "iterations in FP64", *KrylovIR.stages]
    title = "The lowest format of each stage that suffices, and iterations over those in FP64"
    return Table(title, header, rows)


def _lowest(case: Case, stage: int, full: Outcome, shared: Shared) -> str:
    for fmt in FORMATS:
        outcome = case.algorithm.run(case.system, with_format(stage, fmt), shared=shared)
        if passes_gate(outcome, case):
            ratio = outcome.inner_iterations / max(full.inner_iterations, 1)
            return f"{fmt.name} ({ratio:.2f})"
    return "none"


Curves = dict[str, dict[str, list[float]]]


def by_bits(studied: list[Case], stages: tuple[int, ...] = (0, 1)) -> Curves:
    """For each stage and case, the iterations for each of `BITS`, over those in FP64.

    Infinite where the gate is not passed.
    """
    found: Curves = {KrylovIR.stages[stage]: {} for stage in stages}
    for case in studied:
        shared = Shared()
        full = case.algorithm.run(case.system, with_format(0, FP64), shared=shared)
        for stage in stages:
            ratios = []
            for bits in BITS:
                fmt = FP64 if bits == FP64.p else FloatFormat(f"p{bits}", bits, -126, 127)
                outcome = case.algorithm.run(case.system, with_format(stage, fmt), shared=shared)
                passed = passes_gate(outcome, case)
                ratios.append(
                    outcome.inner_iterations / full.inner_iterations if passed else np.inf
                )
            found[KrylovIR.stages[stage]][f"{case.name}: {case.method}"] = ratios
    return found


@styled
def drawn(curves: Curves) -> Drawing:
    """A panel for each stage: iterations over those in FP64, by significand bits."""
    figure, axes = panels(1, len(curves), (10.0, 4.4))
    for ax, (stage, lines) in zip(axes[0], curves.items(), strict=True):
        for i, (name, ratios) in enumerate(lines.items()):
            color, marker = group_look(i)
            style = "-" if i < 7 else "--"
            shown = [ratio if np.isfinite(ratio) else np.nan for ratio in ratios]
            ax.plot(BITS, shown, style, marker=marker, markersize=4, color=color, label=name)
        ax.set(xscale="log", yscale="log", xlabel="significand bits", title=stage)
        ax.set_xticks(BITS, [str(bits) for bits in BITS])
        ax.minorticks_off()
        ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes[0, 0].set_ylabel("iterations over those in FP64")
    legend_above(figure, axes[0, 0].get_legend_handles_labels()[0], 3)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, help="the page whose blocks are to be replaced")
    given = parser.parse_args()
    studied = cases()
    table = sufficient(studied)
    print(format_text(table), end="\n\n")
    if given.page:
        page = given.page.read_text(encoding="utf-8")
        given.page.write_text(
            replace_block(page, "sufficient", format_markdown(table)), encoding="utf-8"
        )
        caption = "Iterations over those in FP64, by the significand bits of one stage"
        figure = Figure(caption, "iterative-precision", drawn(by_bits(studied)))
        write_figure(figure, given.page.parent / "images", "png")


if __name__ == "__main__":
    main()
