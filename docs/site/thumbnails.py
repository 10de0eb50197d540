"""Pictures for programs of the gallery without a figure: what each is about, in a few strokes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

DARK, LIGHT = "#0a7d91", "#f5a623"


def dense(axes: Any) -> None:
    axes.imshow(np.random.default_rng(0).standard_normal((12, 12)), cmap="GnBu")


def sparse(axes: Any) -> None:
    i = np.arange(36)
    for offset in (-6, -1, 0, 1, 6):
        axes.plot(i, i + offset, "s", ms=3, color=DARK)
    axes.set(xlim=(-1, 36), ylim=(36, -1))


def many(axes: Any) -> None:
    axes.imshow(np.random.default_rng(0).standard_normal((10, 10)), cmap="GnBu")
    for j in range(4):
        axes.add_patch(plt.Rectangle((11 + 1.6 * j, -0.5), 0.9, 10, color=LIGHT))
    axes.set_xlim(-1, 18)


def trained(axes: Any) -> None:
    axes.barh(["fp64", "fp32", "bf16"], [9.3, 6.0, 7.1], color=["#bbbbbb", LIGHT, DARK])


def policy(axes: Any) -> None:
    axes.step(range(7), [0, 1, 1, 2, 2, 3, 3], where="mid", color=DARK, lw=4)


def algorithm(axes: Any) -> None:
    x = np.linspace(0, 2 * np.pi, 200)
    axes.plot(3 * np.cos(x), np.sin(x), color=DARK, lw=3)
    axes.annotate("", (3.2, 0), (0, 0), arrowprops={"color": LIGHT, "width": 3})
    axes.set_aspect("equal")


def agent(axes: Any) -> None:
    t = np.arange(300)
    noise = np.random.default_rng(0).standard_normal(300)
    axes.plot(t, 1 - np.exp(-t / 60) + 0.05 * noise, color=DARK)


def cluster(axes: Any) -> None:
    for x in (-1, 0, 1):
        axes.plot([0, x], [1, 0], color="gray", lw=2)
        axes.plot(x, 0, "s", ms=22, color=DARK)
    axes.plot(0, 1, "o", ms=26, color=LIGHT)
    axes.set(xlim=(-1.6, 1.6), ylim=(-0.6, 1.6))


PICTURES: dict[str, Callable[[Any], None]] = {
    "solve_dense": dense,
    "solve_sparse": sparse,
    "solve_many": many,
    "trained_policy": trained,
    "custom_policy": policy,
    "custom_algorithm": algorithm,
    "gym_agent": agent,
    "fill_on_cluster": cluster,
}


def draw(folder: Path) -> None:
    """Write ``thumb-NAME.png`` for each program, if it is not there yet."""
    for name, picture in PICTURES.items():
        path = folder / f"thumb-{name}.png"
        if path.exists():
            continue
        fig, axes = plt.subplots(figsize=(4, 2.8), layout="constrained")
        picture(axes)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        fig.savefig(path, dpi=100)
        plt.close(fig)
