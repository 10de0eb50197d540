"""What Roundwise raises on purpose, all derived from `RoundwiseError`, and what it warns of."""

from __future__ import annotations

from typing import Any

from scipy.linalg import LinAlgWarning


class RoundwiseError(Exception):
    """Base class of every error that Roundwise raises on purpose.

    Message and attributes survive copying and pickling, whatever the `__init__` of a child takes:
    so an error of a worker process reaches the one that waits for it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own would call the class with the message alone, and `multiprocessing.Pool` waits
        # forever for a result whose error cannot be made again.
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[RoundwiseError], args: tuple[Any, ...]) -> RoundwiseError:
    return kind.__new__(kind, *args)  # this sets its args; `__init__` is not called


class UnknownNameError(RoundwiseError, KeyError):
    """A name (of a format, backend, ...) that does not exist; the message lists those that do."""

    def __init__(self, kind: str, name: object, known: list[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(known)}")

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class IllConditionedWarning(LinAlgWarning):  # type: ignore[misc]
    """An answer passed the gate, but few of its digits are right, or none is certain.

    SciPy's solvers warn of ill-conditioned matrices by the same base class, so that one filter is
    enough: ``warnings.simplefilter("error", scipy.linalg.LinAlgWarning)``.
    """
