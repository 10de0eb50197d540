"""What both emulated arithmetic models can do: the same formats and methods on every machine."""

from __future__ import annotations

from roundwise.backends.contract import Backend
from roundwise.backends.emulated.carriers import is_emulated
from roundwise.formats import NAMED_FORMATS, FloatFormat, get_format


class EmulatedBackend(Backend):
    """Arithmetic in any format that a hardware type carries exactly."""

    def formats(self, sparse: bool = False) -> tuple[FloatFormat, ...]:
        return tuple(sorted(NAMED_FORMATS.values(), key=lambda fmt: fmt.p))

    def supports(self, fmt: str | FloatFormat, sparse: bool = False) -> bool:
        return is_emulated(get_format(fmt))
