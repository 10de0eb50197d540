"""The BLAS libraries that the wheels of SciPy and NumPy bring along: their threads and names.

Both wheels bundle an OpenBLAS each, in a folder of their own. Where a package was built against
another BLAS (MKL, Accelerate, a distribution's OpenBLAS), nothing is found and nothing is set.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import scipy

from roundwise._forking import cached_property


class BundledOpenBlas:
    """An OpenBLAS that a wheel bundles; its symbols have a prefix, and perhaps a suffix."""

    def __init__(self, library: ctypes.CDLL, prefix: str, suffix: str) -> None:
        self._library, self._prefix, self._suffix = library, prefix, suffix

    def _function(self, name: str, returns: Any = None, *arguments: Any) -> Any:
        function = getattr(self._library, f"{self._prefix}{name}{self._suffix}")
        function.restype, function.argtypes = returns, arguments
        return function

    @cached_property
    def asks_threads(self) -> Any:
        """The function that tells how many threads a call may use now; every solve asks."""
        return self._function("openblas_get_num_threads", ctypes.c_int)

    def fortran(self, name: str) -> Any:
        """A LAPACK routine as a ctypes function, for those that SciPy does not wrap; None if the
        library lacks it."""
        return getattr(self._library, f"{self._prefix}{name}_{self._suffix}", None)

    @property
    def integer(self) -> Any:
        """The ctypes type of its integers; a suffix tells of 64 bits."""
        return ctypes.c_int64 if self._suffix else ctypes.c_int32

    @property
    def threads(self) -> int:
        """How many threads a call may use now."""
        return int(self.asks_threads())

    @threads.setter
    def threads(self, count: int) -> None:
        self._function("openblas_set_num_threads", None, ctypes.c_int)(count)

    @cached_property
    def version(self) -> str:
        """Version and build, with the processor that its kernels are for; not the threads."""
        config = self._function("openblas_get_config", ctypes.c_char_p)().decode()
        core = self._function("openblas_get_corename", ctypes.c_char_p)().decode()
        words = [word for word in config.split() if not word.startswith("MAX_THREADS")]
        return " ".join(words if core in words else [*words, core])


@cache
def bundled(package: str) -> BundledOpenBlas | None:
    """The OpenBLAS in a package's wheel; None if the package uses another BLAS."""
    for path in _candidates(package):
        library = ctypes.CDLL(str(path))  # the one in use: a file is loaded once
        for prefix, suffix in product(("scipy_", ""), ("", "64_", "_64_")):
            if hasattr(library, f"{prefix}openblas_set_num_threads{suffix}"):
                return BundledOpenBlas(library, prefix, suffix)
    return None


def _candidates(package: str) -> Iterator[Path]:
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:
        home = Path(spec.origin).parent
        for folder in (home.parent / f"{package}.libs", home / ".dylibs", home / ".libs"):
            files = sorted(folder.glob("*openblas*"))
            yield from (f for f in files if re.search(r"\.(dylib|dll|so(\.\d+)*)$", f.name))


def set_threads(count: int) -> None:
    """Set the threads of every OpenBLAS that was found."""
    for package in ("scipy", "numpy"):
        if library := bundled(package):
            library.threads = count


def name_and_threads() -> tuple[str, int | None]:
    """SciPy's BLAS and its threads; None where they cannot be asked for."""
    if library := bundled("scipy"):
        return library.version, library.threads
    return _configured_name(), None


@cache
def _configured_name() -> str:
    facts = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{facts.get('name', 'unknown BLAS')} {facts.get('version', '')}".strip()
