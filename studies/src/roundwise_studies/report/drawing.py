"""What all figures share: style, colours that colour-blind readers can tell apart, panels, axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import zip_longest
from math import ceil
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise._lazy import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Parameters = ParamSpec("Parameters")

INK = "#1f2328"
FAINT = "#6e7781"

GROUP_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe & Ito's colours, those that stand out from white first."""

GROUP_MARKERS = ("o", "^", "s", "D", "v", "P", "X")

LINE_STYLES = ("-", "--", "-.", ":")

WIDTH = 10.0
"""Inches; on a laptop a figure fills the text column at about this size."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.8,
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9),
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.6,
    **{f"{part}.labelcolor": INK for part in ("axes", "xtick", "ytick")},
    **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), "#9aa2ab"),
    # White, not transparent: the page behind a figure may be dark.
    **{f"{part}.facecolor": "white" for part in ("figure", "axes", "savefig")},
}


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Run a figure function in the common style; without matplotlib, say what to install."""

    @wraps(draw)
    def drawn(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with require("matplotlib", "plot").rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """A figure with rows x columns axes; no pyplot, so that nothing global is kept alive."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.07)  # type: ignore[union-attr,call-arg]
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def case_panels(
    cases: Mapping[str, Any], top: float, height: float, columns: int = 0, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """A figure with one titled panel per case, `columns` side by side.

    It is `top` inches high, and `height` more for each row. By default up to three panels stand in
    one row, more in rows of two.
    """
    need_cases(cases, "cases")
    columns = columns or (len(cases) if len(cases) <= 3 else 2)
    rows = ceil(len(cases) / columns)
    figure, axes = panels(rows, columns, (WIDTH, top + height * rows), **options)
    for ax, case in zip_longest(axes.flat, cases):
        ax.set_visible(case is not None)
        ax.set_title(case or "")
    return figure, axes


def group_look(index: int) -> tuple[str, str]:
    """Colour and marker of a group; the eighth looks like the first again."""
    return GROUP_COLORS[index % len(GROUP_COLORS)], GROUP_MARKERS[index % len(GROUP_MARKERS)]


def group_key(index: int, label: str, **look: Any) -> Any:
    """An entry of a legend that shows the marker of a group."""
    color, marker = group_look(index)
    return marker_key(marker, color, label, **look)


def marker_key(marker: str, color: str, label: str, **look: Any) -> Any:
    """An entry of a legend that shows a marker, without a line unless `look` has a linestyle."""
    from matplotlib.lines import Line2D

    look = {"linestyle": ""} | look
    return Line2D([], [], marker=marker, color=color, label=label, **look)


def patch_keys(colors: Sequence[Any], labels: Sequence[str]) -> list[Any]:
    """Entries of a legend that show colours."""
    from matplotlib.patches import Patch

    return [Patch(color=color, label=text) for color, text in zip(colors, labels, strict=True)]


def sequential_colors(count: int) -> list[tuple[float, float, float, float]]:
    """Colours from light to dark, for things with an order; they differ in grey, too."""
    from matplotlib import colormaps

    positions = np.linspace(0.93, 0.08, count) if count > 1 else [0.3]
    return [colormaps["viridis"](float(p)) for p in positions]


def write_on(ax: Axes, x: float, y: float, text: str, color: Sequence[float], **look: Any) -> None:
    """Centre a text at (x, y), where the background has that colour."""
    ax.text(x, y, text, ha="center", va="center", color=ink_on(color), **look)


def ink_on(color: Sequence[float]) -> str:
    """Black or white, whichever is read better on a colour (relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    luminance = float(np.dot([0.2126, 0.7152, 0.0722], linear))
    return "black" if luminance > 0.179 else "white"


def legend_above(figure: Figure, handles: Sequence[Any], columns: int | None = None) -> None:
    """One legend for all panels, above them."""
    figure.legend(
        handles=list(handles),
        loc="outside upper left",
        ncols=columns or len(handles),
        handlelength=1.6,
    )


def vector(values: ArrayLike, name: str, length: int | None = None) -> NDArray[np.float64]:
    """A 1-d float array, of the given length."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "a vector" if length is None else f"a vector of length {length}"
        raise ValueError(f"{name} has shape {array.shape}; pass {wanted}")
    return array


def need_cases(cases: Mapping[Any, Any], name: str) -> None:
    if not cases:
        raise ValueError(f"{name} is empty; pass at least one case")
