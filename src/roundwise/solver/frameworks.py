"""Arrays that a framework follows: for gradients, or while it traces a program.

A solve with such arrays is the framework's business: it goes through `roundwise.integrations`,
which is imported when the first of them comes by.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

FRAMEWORKS = ("torch", "jax")
"""Each has a module of that name in `roundwise.integrations`."""


def framework_of(*operands: Any) -> Any:
    """The integration whose framework follows one of the operands; None for plain arrays."""
    for name in FRAMEWORKS:
        if sys.modules.get(name) is not None:
            home = f"roundwise.integrations.{name}"
            # Looked up first: `torch.compile` traces no import.
            module = sys.modules[home] if home in sys.modules else import_module(home)
            if module.follows(*operands):
                return module
    return None
