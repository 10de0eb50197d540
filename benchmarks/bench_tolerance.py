"""What a looser tolerance is worth: times of `roundwise.solve` over tol, dense and sparse.

    python benchmarks/bench_tolerance.py [--page docs/iterative.md] [--repeats 7]

Writes a table into the page, between the comments ``<!-- begin tolerance -->`` and ``<!-- end
tolerance -->``, and the figure ``images/tolerance.png`` beside it. The tolerances of a system take
turns; medians are shown, over that of the default. A minute on two cores.
"""

import argparse
import platform
from pathlib import Path
from time import perf_counter

import numpy as np

import roundwise as rw
from roundwise.problems.pde import convection_diffusion_3d, laplace_3d
from roundwise_studies.report import Figure, Table, format_markdown, replace_block, write_figure
from roundwise_studies.report.drawing import group_look, panels, styled

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, None)


def systems():
    """Matrices by name."""
    rng = np.random.default_rng(0)
    for n in (2000, 4000):
        G = rng.standard_normal((n, n))
        yield f"Gaussian, n = {n}", G
        Q = np.linalg.qr(G)[0]
        P = np.linalg.qr(rng.standard_normal((n, n)))[0]
        yield f"kappa = 100, n = {n}", (Q * np.geomspace(1, 1e-2, n)) @ P
    yield "3-D Laplacian, 30^3", laplace_3d(30)
    yield "3-D convection, 20^3", convection_diffusion_3d(20, 20.0)


def measured(A, repeats):
    """For each tolerance the action, the corrections, and the median of the seconds."""
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    found = {tol: rw.solve(A, b, tol=tol, full_output=True) for tol in TOLERANCES}
    seconds = {tol: [] for tol in TOLERANCES}
    for _ in range(repeats):
        for tol in TOLERANCES:
            start = perf_counter()
            rw.solve(A, b, tol=tol)
            seconds[tol].append(perf_counter() - start)
    return {
        tol: (one.action.split("-")[0], one.iterations, float(np.median(seconds[tol])))
        for tol, one in found.items()
    }


@styled
def drawn(rows):
    figure, axes = panels(1, 1, (8.0, 4.0))
    ax = axes[0, 0]
    tolerances = [tol for tol in TOLERANCES if tol is not None]
    for i, (name, found) in enumerate(rows.items()):
        color, marker = group_look(i)
        speeds = [found[None][2] / found[tol][2] for tol in tolerances]
        ax.plot(tolerances, speeds, marker=marker, color=color, label=name)
    ax.axhline(1.0, linestyle="--", color="gray")
    ax.set(xscale="log", xlabel="tol", ylabel="times as fast as with the default")
    ax.invert_xaxis()
    ax.legend()
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="the page whose table is to be replaced")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    rows, cells = {}, []
    for name, A in systems():
        rows[name] = found = measured(A, given.repeats)
        cells.append(
            [
                name,
                *(
                    f"{action}, {steps}: {1e3 * seconds:.0f} ms"
                    for action, steps, seconds in found.values()
                ),
            ]
        )
        print(cells[-1], flush=True)
    names = ["default" if tol is None else f"{tol:.0e}" for tol in TOLERANCES]
    table = Table("Action, corrections and time by tolerance", ["system", *names], cells)
    if given.page:
        page = given.page.read_text(encoding="utf-8")
        page = replace_block(page, "tolerance", format_markdown(table))
        given.page.write_text(page, encoding="utf-8")
        caption = f"How many times as fast a solve is with a looser tol ({platform.machine()})"
        write_figure(Figure(caption, "tolerance", drawn(rows)), given.page.parent / "images", "png")


if __name__ == "__main__":
    main()
