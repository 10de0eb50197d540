"""The contract of sparse factorizations: analyse a pattern once, factorize values many times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar

from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.contract import Factors
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FloatFormat


class Symbolic(ABC):
    """What an engine keeps of a pattern: its fill-reducing order, and perhaps more."""

    depends_on_values: bool = False
    """Whether the analysed matrix's values were looked at, so that others may want another one."""

    @abstractmethod
    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> Factors:
        """Factors of the matrix with these entries, in the order of the pattern's.

        The values are finite and have the type of the format. Raises `ArithmeticFailure` where
        the factorization breaks down; the analysis stays usable. Earlier factors stay valid.
        """


class EngineError(RoundwiseError, RuntimeError):
    """The library behind an engine failed for a reason that is not the matrix's."""


class Engine(ABC):
    """A way to factorize sparse matrices natively.

    Many engines call a library that need not be installed. Such an engine imports it when first
    used, never when it is imported itself.
    """

    name: ClassVar[str]
    orderings: ClassVar[tuple[str, ...]]
    """Fill-reducing orders, perhaps each with its own pivoting; the safest comes last.
    ``name/ordering`` is a method of the native backend."""
    formats: ClassVar[tuple[FloatFormat, ...]]
    """Those that it factorizes in, of fp32 and fp64, or that it stores a preconditioner in."""
    stores: ClassVar[bool] = False
    """Whether `formats` are those of storage alone: `Symbolic.factorize` is given FP64's values."""
    suits: ClassVar[str] = "any"
    """The square matrices that it factorizes: any, symmetric, or positive definite."""
    stops_at: ClassVar[float] = 0.0
    """The relative residual at which its solves stop, if they iterate; 0 if they substitute."""
    package: ClassVar[str] = "roundwise"
    """The distribution that it calls; ``roundwise info`` tells its version."""
    module: ClassVar[str] = "roundwise"
    """The package that must be there to be imported."""
    remedy: ClassVar[str] = ""
    """What to do where the package is not installed."""
    runs_on: ClassVar[str] = "cpu"
    """``"cuda"`` if it factorizes on a GPU, to which it copies matrices and right-hand sides."""
    results_depend_on_threads: ClassVar[bool] = False
    """Whether the last bits of its results change with the number of threads, or from call to call
    (cuDSS)."""

    @property
    def installed(self) -> bool:
        """Whether its package can be imported, which is found out without doing so."""
        return find_spec(self.module) is not None

    @abstractmethod
    def analyse(self, pattern: sparse.csr_array, ordering: str) -> Symbolic:
        """Prepare for square matrices with the pattern of this one, in canonical form.

        Its values may be looked at, but must not matter.
        """
