"""Which format to factorize in first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from roundwise.backends import native_formats
from roundwise.exceptions import UnknownNameError
from roundwise.solver.inputs import CheckedMatrix


@dataclass(frozen=True)
class Choice:
    """The formats to factorize in, in turn, and why."""

    formats: tuple[str, ...]
    reason: str


class FormatPolicy(Protocol):
    """Chooses formats from what costs next to nothing to know of a matrix."""

    def choose(self, matrix: CheckedMatrix, positive_definite: bool) -> Choice: ...


@dataclass(frozen=True)
class Fixed:
    """Always the same format first."""

    fmt: str

    def choose(self, matrix: CheckedMatrix, positive_definite: bool) -> Choice:
        return Choice(ladder_from(self.fmt), f"You asked for {self.fmt} first.")


@dataclass(frozen=True)
class BySize:
    """FP64 for small systems, FP32 first for those above the crossover."""

    crossover: int = 400

    def choose(self, matrix: CheckedMatrix, positive_definite: bool) -> Choice:
        if matrix.n < self.crossover:
            reason = f"With n = {matrix.n} < {self.crossover}, lower precision gains no time."
            return Choice(("fp64",), reason)
        return Choice(ladder_from("fp32"), f"With n = {matrix.n}, FP32 factors take half the time.")


def ladder_from(fmt: str) -> tuple[str, ...]:
    """This format and the higher ones to climb to."""
    ladder = ("bf16", "fp32", "fp64") if fmt != "fp16" else ("fp16", "fp32", "fp64")
    return ladder[ladder.index(fmt) :]


def get_policy(policy: str | FormatPolicy) -> FormatPolicy:
    if not isinstance(policy, str):
        return policy
    if policy == "default":
        return BySize()
    names = [fmt.name for fmt in native_formats()]
    if policy not in names:
        raise UnknownNameError("policy", policy, ["default", *names])
    return Fixed(policy)
