"""The machine: its identity, the threads and instruction set of our kernels, the BLAS it loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roundwise._lazy import lazy_names

if TYPE_CHECKING:
    from roundwise.machine.identity import Machine
    from roundwise.machine.threads import get_simd_level, set_simd_level, simd_levels

__getattr__, __dir__, __all__ = lazy_names(
    "roundwise.machine",
    {"identity": ("Machine",), "threads": ("get_simd_level", "set_simd_level", "simd_levels")},
)
