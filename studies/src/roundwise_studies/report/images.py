"""Figures as bytes, files and data URIs; the same figure gives the same bytes."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Literal

from roundwise._lazy import require
from roundwise_studies.report.content import Figure

Ending = Literal["svg", "png"]

MEDIA_TYPES: dict[str, str] = {"svg": "image/svg+xml", "png": "image/png"}

DPI = 150


def image(figure: Figure, ending: Ending = "svg", dpi: int = DPI) -> tuple[bytes, str]:
    """The bytes of a figure and the ending of its format.

    A figure that is a file already is read as it is, whatever ending was asked for.
    """
    if isinstance(figure.image, (str, Path)):
        path = Path(figure.image)
        found = path.suffix.lower().removeprefix(".")
        if found not in MEDIA_TYPES:
            raise ValueError(f"figure {figure.name!r} is {path.name}; pass an .svg or .png file")
        return path.read_bytes(), found
    # A second layout would move things by fractions of a point: lay out once.
    if figure.image.get_layout_engine() is not None:
        figure.image.draw_without_rendering()
        figure.image.set_layout_engine(None)
    buffer = BytesIO()
    # Identifiers in an SVG follow from the salt; with the date left out, nothing else varies.
    salt = {"svg.hashsalt": figure.name, "svg.fonttype": "path"}
    metadata = {"Date": None, "Creator": None} if ending == "svg" else {"Software": None}
    with require("matplotlib", "plot").rc_context(salt):
        figure.image.savefig(buffer, format=ending, dpi=dpi, metadata=metadata)
    return buffer.getvalue(), ending


def data_uri(figure: Figure) -> str:
    """A figure as a ``data:`` address, for pages that load nothing.

    In an ``<img>`` the identifiers and styles of an SVG do not mix with the page's.
    """
    data, ending = image(figure)
    return f"data:{MEDIA_TYPES[ending]};base64,{b64encode(data).decode('ascii')}"


def write_figure(
    figure: Figure, folder: Path | str, ending: Ending = "svg", dpi: int = DPI
) -> Path:
    """Write a figure to ``folder/name.ending``; return that path."""
    data, found = image(figure, ending, dpi)
    path = Path(folder) / f"{figure.name}.{found}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
