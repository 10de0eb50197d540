"""``%load_ext roundwise`` in IPython and Jupyter."""

from __future__ import annotations

from typing import Any

from roundwise.integrations.replacing import replacing_numpy

_KEPT = "_roundwise"
"""The name of the context among the notebook's own."""


def load(shell: Any) -> None:
    """Replace, and show the table where ``%roundwise`` is entered."""
    context = replacing_numpy()
    ledger = context.__enter__()
    shell.user_ns[_KEPT] = context

    def show(line: str) -> None:
        """The calls of NumPy's and SciPy's solvers so far, and what was gained."""
        print(ledger)

    shell.register_magic_function(show, "line", "roundwise")


def unload(shell: Any) -> None:
    """Put the originals back."""
    context = shell.user_ns.pop(_KEPT, None)
    if context is not None:
        context.__exit__(None, None, None)
