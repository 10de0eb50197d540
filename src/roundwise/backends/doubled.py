"""Residuals in twice float64's precision, where the arrays of a backend are."""

from __future__ import annotations

from typing import Any

from roundwise.backends.contract import Backend, Vector
from roundwise.backends.native import exact
from roundwise.formats import FP64X2


def doubled_residual(backend: Backend, A: Any, X: Vector, B: Vector) -> Vector:
    """``B - A X`` of float64 data, whose error `exact.error_of` bounds.

    Emulated models have no such kernel: theirs is the processor's own.
    """
    if backend.on_host:
        return exact.residual(A, X, B)
    return backend.residual(backend.matrix(A, FP64X2), X, B)
