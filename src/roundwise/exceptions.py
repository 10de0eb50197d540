"""What Roundwise raises on purpose, all derived from `RoundwiseError`, and what it warns of."""

from scipy.linalg import LinAlgWarning


class RoundwiseError(Exception):
    """Base class of every error that Roundwise raises on purpose."""


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
