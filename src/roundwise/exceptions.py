"""The exceptions Roundwise raises on purpose; all derive from `RoundwiseError`."""


class RoundwiseError(Exception):
    """Base class of every error that Roundwise raises on purpose."""


class UnknownNameError(RoundwiseError, KeyError):
    """A name (of a format, backend, ...) that does not exist; the message lists those that do."""

    def __init__(self, kind: str, name: object, known: list[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(known)}")

    __str__ = Exception.__str__  # KeyError would print the message in quotes
