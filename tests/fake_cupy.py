"""A stand-in for CuPy on a machine without a GPU: NumPy's arrays behind CuPy's rules.

An array here refuses what CuPy's refuse: to become a NumPy array by itself, and to be computed with
NumPy arrays. What CuPy's functions do not take (``initial`` of `max`) is not taken either. So code
that would copy to the host, or fail on a GPU, fails here.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_FLAGS = ("c_contiguous", "f_contiguous")


class ndarray(NDArrayOperatorsMixin):
    """A NumPy array that is to be thought of as lying on a GPU."""

    def __init__(self, values):
        self._values = values

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        assert method == "__call__"
        assert not kwargs.get("initial")
        with np.errstate(all="ignore"):  # a GPU does not warn
            return _wrapped(ufunc(*_bare(inputs), **_bare(kwargs)))

    def __array_function__(self, func, types, args, kwargs):
        assert "initial" not in kwargs
        with np.errstate(all="ignore"):
            return _wrapped(func(*_bare(args), **_bare(kwargs)))

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)
    strides = property(lambda self: self._values.strides)
    itemsize = property(lambda self: self._values.itemsize)
    flags = property(lambda self: self._values.flags)
    T = property(lambda self: ndarray(self._values.T))
    real = property(lambda self: ndarray(self._values.real), lambda self, x: _set(self, "real", x))
    imag = property(lambda self: ndarray(self._values.imag), lambda self, x: _set(self, "imag", x))

    def __getitem__(self, index):
        return ndarray(np.asarray(self._values[_bare_index(index)]))

    def __setitem__(self, index, value):
        self._values[_bare_index(index)] = _bare(value)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return (ndarray(np.asarray(part)) for part in self._values)

    def __bool__(self):
        return bool(self._values)

    def __float__(self):
        return float(self._values)

    def __int__(self):
        return int(self._values)

    def get(self):
        return self._values.copy()

    def item(self):
        return self._values.item()

    def tolist(self):
        return self._values.tolist()

    def astype(self, dtype, order="K", copy=True):
        made = self._values.astype(dtype, order=order, copy=copy)
        return self if made is self._values else ndarray(made)

    def copy(self, order="C"):
        return ndarray(self._values.copy(order=order))

    def reshape(self, *shape):
        return ndarray(self._values.reshape(*shape))

    def view(self, dtype):
        return ndarray(self._values.view(dtype))

    def conj(self):
        return ndarray(self._values.conj())

    def swapaxes(self, one, other):
        return ndarray(self._values.swapaxes(one, other))

    def transpose(self, *axes):
        return ndarray(self._values.transpose(*axes))

    def ravel(self):
        return ndarray(self._values.ravel())

    def diagonal(self):
        return ndarray(self._values.diagonal())

    def __dlpack_device__(self):
        return (2, 0)


def _set(array, part, values):
    setattr(array._values, part, _bare(values))


def _reduction(name):
    def method(self, axis=None, out=None, keepdims=False):
        if name in ("max", "min", "argmax", "argmin") and not self.size:
            raise ValueError("zero-size array to reduction operation which has no identity")
        found = getattr(self._values, name)(axis=axis, keepdims=keepdims)
        return ndarray(np.asarray(found))

    return method


for _name in ("max", "min", "sum", "any", "all", "argmax", "argmin"):
    setattr(ndarray, _name, _reduction(_name))


def _bare(value):
    """Without the wrapper; NumPy's own arrays are refused, its numbers are not."""
    if isinstance(value, ndarray):
        return value._values
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(_bare(part) for part in value)
    if isinstance(value, dict):
        return {name: _bare(part) for name, part in value.items()}
    return value


def _bare_index(index):
    """Indices may be NumPy's: CuPy copies them to the device."""
    if isinstance(index, tuple):
        return tuple(_bare_index(part) for part in index)
    return index._values if isinstance(index, ndarray) else index


def _wrapped(value):
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(_wrapped(part) for part in value)
    return value


def asarray(values, dtype=None, order=None):
    if isinstance(values, ndarray):
        made = np.asarray(values._values, dtype=dtype, order=order)
        return values if made is values._values else ndarray(made)
    return ndarray(np.array(values, dtype=dtype, order=order or "K"))


def array(values, dtype=None, copy=True, order="K"):
    return ndarray(np.array(getattr(values, "_values", values), dtype=dtype, order=order))


def asnumpy(values):
    return values.get()


def from_dlpack(values):
    return values if isinstance(values, ndarray) else ndarray(values.lent())


def _function(function):
    def call(*args, **kwargs):
        assert "initial" not in kwargs
        with np.errstate(all="ignore"):
            return _wrapped(function(*_bare(args), **_bare(kwargs)))

    return call


def __getattr__(name):
    """NumPy's functions and types, with arrays of this module."""
    found = getattr(np, name)
    return found if isinstance(found, type) or not callable(found) else _function(found)


linalg = SimpleNamespace(qr=_function(np.linalg.qr), solve=_function(np.linalg.solve))


class _Cuda:
    """The current device and stream; `entered` notes what was made current."""

    def __init__(self):
        self.entered = []

    @contextmanager
    def Device(self, number):
        self.entered.append(("device", number))
        yield

    def get_current_stream(self):
        return SimpleNamespace(ptr=0, is_capturing=lambda: False)

    def ExternalStream(self, pointer):
        self.entered.append(("stream", pointer))
        return nullcontext()


cuda = _Cuda()
