"""Backends: the kernels that algorithms are written against, one class per arithmetic model."""

from __future__ import annotations

from roundwise.backends.contract import (
    Analysis,
    ArithmeticFailure,
    Backend,
    Factors,
    Matrix,
    Status,
    UnsupportedFormat,
)
from roundwise.backends.emulated.operation import OperationBackend
from roundwise.backends.emulated.storage import StorageBackend
from roundwise.backends.engines import ENGINES, KNOWN_ENGINES
from roundwise.backends.native.backend import NativeBackend, native_formats
from roundwise.exceptions import UnknownNameError

BACKENDS: dict[str, type[Backend]] = {
    "operation": OperationBackend,
    "storage": StorageBackend,
    "native": NativeBackend,
}


def get_backend(arithmetic: str | Backend = "operation") -> Backend:
    """The backend of that arithmetic model; a backend is returned as it is."""
    if isinstance(arithmetic, Backend):
        return arithmetic
    if arithmetic not in BACKENDS:
        raise UnknownNameError("arithmetic model", arithmetic, list(BACKENDS))
    return BACKENDS[arithmetic]()
