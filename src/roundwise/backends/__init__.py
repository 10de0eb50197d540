"""Backends: the kernels that algorithms are written against, one class per arithmetic model."""

from __future__ import annotations

from importlib import import_module

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
"""The arithmetic models of the processor."""

DEVICES = {"cuda": "roundwise.backends.cuda.backend:CudaBackend"}
"""Backends of devices, whose packages are imported when they are first asked for."""


def known_backends() -> list[str]:
    """The names of all arithmetic models, whether there is such a device here or not.

    Examples
    --------
    >>> from roundwise.backends import known_backends
    >>> known_backends()
    ['operation', 'storage', 'native', 'cuda']
    """
    return [*BACKENDS, *DEVICES]


def backend_class(arithmetic: str) -> type[Backend]:
    """The class of an arithmetic model; this asks for no device.

    Parameters
    ----------
    arithmetic : str

    Returns
    -------
    type
        A subclass of `Backend`.

    Examples
    --------
    >>> from roundwise.backends import backend_class
    >>> backend_class("operation").__name__
    'OperationBackend'
    """
    if arithmetic in DEVICES:
        module, _, name = DEVICES[arithmetic].partition(":")
        found: type[Backend] = getattr(import_module(module), name)
        return found
    if arithmetic not in BACKENDS:
        raise UnknownNameError("arithmetic model", arithmetic, known_backends())
    return BACKENDS[arithmetic]


def get_backend(arithmetic: str | Backend = "operation") -> Backend:
    """The backend of that arithmetic model; a backend is returned as it is.

    Where there is no such device, `DeviceUnavailable` says what is missing.

    Parameters
    ----------
    arithmetic : str or Backend
        ``"operation"``, ``"storage"``, ``"native"`` or ``"cuda"``.

    Examples
    --------
    >>> rw.backends.get_backend("operation").arithmetic
    'operation'
    """
    if isinstance(arithmetic, Backend):
        return arithmetic
    return backend_class(arithmetic)()
