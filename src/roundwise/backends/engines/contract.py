"""The contract of sparse factorizations: analyse a pattern once, factorize values many times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.contract import Factors
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FloatFormat


class FactorizationStopped(RoundwiseError):
    """A factorization ended early because its caller asked for it."""


class Symbolic(ABC):
    """What an engine keeps of a pattern: its fill-reducing order, and perhaps more."""

    @abstractmethod
    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> Factors:
        """Factors of the matrix with these entries, in the order of the pattern's.

        The values are finite and have the type of the format. Raises `ArithmeticFailure` where
        the factorization breaks down.
        """


class Engine(ABC):
    """A way to factorize sparse matrices natively."""

    name: ClassVar[str]
    orderings: ClassVar[tuple[str, ...]]
    """Fill-reducing orders, perhaps each with its own pivoting; the safest comes last.
    ``name/ordering`` is a method of the native backend."""
    formats: ClassVar[tuple[FloatFormat, ...]]
    """Those that it factorizes in, of fp32 and fp64."""
    symmetric: ClassVar[bool] = False
    """Whether it takes symmetric matrices alone; it reads their lower triangle only."""

    @abstractmethod
    def analyse(self, pattern: sparse.csr_array, ordering: str) -> Symbolic:
        """Prepare for square matrices with the pattern of this one, in canonical form.

        Its values may be looked at, but must not matter.
        """
