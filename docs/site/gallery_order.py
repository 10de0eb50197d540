"""The order of the gallery: easy programs first, those for studies last."""

from __future__ import annotations

ORDER = (
    "solve_dense",
    "solve_sparse",
    "solve_many",
    "solve_newton",
    "trained_policy",
    "refinement",
    "formats",
    "paper_algorithms",
    "tuned_in_60_lines",
    "custom_policy",
    "custom_algorithm",
    "gym_agent",
    "fill_on_cluster",
)


class EasyFirst:
    """The key of a file: its place in `ORDER`; new programs come last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> tuple[int, str]:
        stem = filename.removesuffix(".py")
        return ORDER.index(stem) if stem in ORDER else len(ORDER), stem

    def __repr__(self) -> str:
        return "EasyFirst"  # Sphinx compares settings by this
