"""Actions: a format for every stage and, where an algorithm has methods, one of these.

Formats are ordered by significand bits; ties by exponent range, then by name (`format_key`).
Actions are ordered lexicographically, the first stage counting most (`action_key`): for
GMRES-IR that is the factorization, where most of the work is.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundwise._forking import cached_property
from roundwise.formats import FloatFormat, get_format

__all__ = [
    "Action",
    "ActionSpace",
    "as_action",
    "full_space",
    "implied_failures",
    "list_space",
    "monotone_space",
]


class Action(tuple[FloatFormat, ...]):
    """The formats of the stages, in stage order, and the method.

    It is a tuple of formats with an attribute `method`, "" for algorithms without methods. The
    text form is ``bf16-fp32-fp64-fp64``, or ``cholesky:fp32-fp64-fp64-fp64`` with a method.

    Parameters
    ----------
    formats : iterable of str or FloatFormat
        One for each stage.
    method : str
        How to factorize, for algorithms that have methods.

    Examples
    --------
    >>> action = rw.Action(["fp32", "fp64", "fp64", "fp64"], "cholesky")
    >>> str(action), action.method
    ('cholesky:fp32-fp64-fp64-fp64', 'cholesky')
    """

    method: str

    def __new__(cls, formats: Iterable[str | FloatFormat], method: str = "") -> Action:
        action = super().__new__(cls, (get_format(fmt) for fmt in formats))
        action.method = method
        return action

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action of a text form; `register_format` makes a format of your own known.

        Parameters
        ----------
        text : str

        Examples
        --------
        >>> rw.Action.parse("cholesky:fp32-fp64-fp64-fp64").method
        'cholesky'
        """
        if not isinstance(text, str):
            raise TypeError(f"an action's text form is a str, got {type(text).__name__}")
        method, _, formats = text.rpartition(":")
        return cls((part.strip() for part in formats.split("-")), method.strip())

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other) is True and self.method == getattr(other, "method", "")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.method)) if self.method else tuple.__hash__(self)

    @cached_property
    def text(self) -> str:
        """The text form."""
        formats = "-".join(fmt.name for fmt in self)
        return f"{self.method}:{formats}" if self.method else formats

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Action.parse({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Action, (tuple(self), self.method)


ActionLike = str | Sequence[str | FloatFormat]
"""An action, its text form, or one format or name of a format for each stage."""


def as_action(action: ActionLike, stages: Sequence[str] | None = None) -> Action:
    """The action, from whatever form it has; with `stages` the number of formats is checked.

    Parameters
    ----------
    action : str or sequence of formats
        A text as ``bf16-fp64``, or formats, or an `Action`.
    stages : sequence of str, optional
        The stages that it must have a format for.

    Examples
    --------
    >>> from roundwise.actions import as_action
    >>> str(as_action(("bf16", "fp64")))
    'bf16-fp64'
    """
    if isinstance(action, str):
        made = Action.parse(action)
    elif isinstance(action, Iterable):
        made = action if isinstance(action, Action) else Action(action)
    else:
        raise TypeError(f"an action is a str or a sequence of formats, got {action!r}")
    if stages is not None and len(made) != len(stages):
        raise ValueError(
            f"action {str(made)!r} has {len(made)} formats; pass one for each stage: "
            f"{', '.join(stages)}"
        )
    return made


def format_key(fmt: FloatFormat) -> tuple[int, int, str]:
    """Orders formats: significand bits, then exponent range, then name."""
    return fmt.p, fmt.emax - fmt.emin, fmt.name


def action_key(action: Iterable[FloatFormat]) -> tuple[tuple[int, int, str], ...]:
    """Orders actions: lexicographic in `format_key`, the first stage counting most."""
    return tuple(format_key(fmt) for fmt in action)


@dataclass(frozen=True)
class ActionSpace:
    """The actions to choose from, by index; make one with `monotone_space` and its like.

    A space has at least one action; each is listed once, with one format per stage. Of two actions
    with the same formats, the one whose method comes later in `methods` counts as safer, so list
    the safest method last.

    Parameters
    ----------
    stages : tuple of str
        What the formats of an action are for.
    actions : tuple of Action

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> space = list_space(["factor", "residual"], ["fp32-fp64", "fp64-fp64"])
    >>> len(space), space.names[space.safe]
    (2, 'fp64-fp64')
    """

    stages: tuple[str, ...]
    actions: tuple[Action, ...]

    def __post_init__(self) -> None:
        if not self.stages or len(set(self.stages)) != len(self.stages):
            raise ValueError(f"stages = {self.stages}; pass at least one, each with its own name")
        if not self.actions:
            raise ValueError("an action space needs at least one action")
        if not all(isinstance(action, tuple) for action in self.actions):
            raise TypeError("an action of a space is a tuple of formats; use list_space for texts")
        actions = tuple(as_action(action, self.stages) for action in self.actions)
        object.__setattr__(self, "actions", actions)  # plain tuples become actions
        if len(set(self.actions)) != len(self.actions):
            twice = next(a for a in self.actions if self.actions.count(a) > 1)
            raise ValueError(f"action {twice} is listed twice; pass each once")
        if len({fmt.name for fmt in self.formats}) != len(self.formats):
            raise ValueError("two formats of the space share a name; rename one")

    def __repr__(self) -> str:
        first, last = self.names[0], self.names[-1]
        listed = first if len(self) == 1 else f"{first} ... {last}"
        return f"ActionSpace({len(self)} for {', '.join(self.stages)}: {listed})"

    def __len__(self) -> int:
        return len(self.actions)

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def __getitem__(self, index: int) -> Action:
        return self.actions[index]

    @cached_property
    def formats(self) -> tuple[FloatFormat, ...]:
        """The formats that occur, low to high."""
        return tuple(sorted({fmt for action in self.actions for fmt in action}, key=format_key))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The text form of each action."""
        return tuple(str(action) for action in self.actions)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that occur, in the order of the actions; ("",) without methods."""
        return tuple(dict.fromkeys(action.method for action in self.actions))

    @cached_property
    def by_method(self) -> dict[str, tuple[int, ...]]:
        """The indices of the actions of each method."""
        of: dict[str, list[int]] = {method: [] for method in self.methods}
        for i, action in enumerate(self.actions):
            of[action.method].append(i)
        return {method: tuple(indices) for method, indices in of.items()}

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def safe(self) -> int:
        """Index of the safe action: most bits in the last stage, then in the one before, ...

        An action that has the most bits in every stage wins. Where none has, the last stage
        counts most: for refinement it is the residual, which bounds the accuracy that can be
        reached at all, while a poor first stage costs iterations.
        """
        return self.safest(range(len(self)))

    def safest(self, among: Iterable[int]) -> int:
        """Index of the safest of some actions, in the order of `safe`."""

        def safety(i: int) -> tuple[Any, int]:
            action = self.actions[i]
            return action_key(action)[::-1], self.methods.index(action.method)

        return max(among, key=safety)

    def index(self, action: ActionLike) -> int:
        """Where an action, as text or as formats or their names, stands in the space."""
        if isinstance(action, str | Action):
            text = str(action)
        else:
            text = "-".join(f.name if isinstance(f, FloatFormat) else str(f) for f in action)
        try:
            return self._indices[text.lower() if text.lower() in self._indices else text]
        except KeyError:
            raise ValueError(
                f"action {text!r} is not in the space of {len(self)} actions from {self.names[0]} "
                f"to {self.names[-1]}; choose one of its names"
            ) from None

    def climb(self, first: int) -> tuple[int, ...]:
        """The actions to try in turn from one on, by index; the last one is the safe one.

        After a failure comes the next higher format of the first stage with the same method (and
        the safe formats in the other stages, if the space has that), then the safe action.
        """
        here, rest = self.actions[first], tuple(self.actions[self.safe][1:])
        ladder = [first]
        for fmt in (fmt for fmt in self.formats if fmt.p > here[0].p):
            higher = self.find(Action((fmt, *rest), here.method))
            if higher is not None:
                ladder.append(higher)
        return tuple(dict.fromkeys((*ladder, self.safe)))

    def find(self, action: Action) -> int | None:
        """Where an action stands in the space; None if it is not there."""
        return self._indices.get(str(action))

    def last(self, k: int) -> ActionSpace:
        """The space of its last k actions: of `monotone_space`, those with the most bits."""
        return ActionSpace(self.stages, self.actions[-k:] if k > 0 else ())

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the stages, the definition of each format, and the actions' names."""
        return {
            "stages": list(self.stages),
            "formats": [dataclasses.asdict(fmt) for fmt in self.formats],
            "actions": list(self.names),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ActionSpace:
        """The space that `to_dict` wrote."""
        try:
            formats = {d["name"]: FloatFormat(**d) for d in saved["formats"]}
            parts = [text.rpartition(":") for text in saved["actions"]]
            actions = (
                Action((formats[name] for name in names.split("-")), method)
                for method, _, names in parts
            )
            return cls(tuple(saved["stages"]), tuple(actions))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved action space ({error!r}); save it again") from error


def full_space(stages: Sequence[str], formats: Iterable[str | FloatFormat]) -> ActionSpace:
    """All m**k actions of m formats and k stages, in the order of `action_key`, low to high.

    Parameters
    ----------
    stages : sequence of str
    formats : iterable of str or FloatFormat

    Examples
    --------
    >>> from roundwise.actions import full_space
    >>> full_space(["factor", "residual"], ["fp32", "fp64"]).names
    ('fp32-fp32', 'fp32-fp64', 'fp64-fp32', 'fp64-fp64')
    """
    return list_space(stages, _product(stages, formats))


def monotone_space(stages: Sequence[str], formats: Iterable[str | FloatFormat]) -> ActionSpace:
    """The actions whose significand bits do not decrease from stage to stage.

    ``p_1 <= p_2 <= ... <= p_k``; C(m+k-1, k) actions of m formats with distinct bits. Formats
    with equal bits (fp16 and tf32) may stand in either order, which adds actions. The order
    is that of `full_space`.

    Parameters
    ----------
    stages : sequence of str
    formats : iterable of str or FloatFormat

    Examples
    --------
    >>> from roundwise.actions import monotone_space
    >>> len(monotone_space(rw.GmresIR.stages, ["bf16", "tf32", "fp32", "fp64"]))  # the paper's
    35
    """
    actions = (
        action
        for action in _product(stages, formats)
        if all(low.p <= high.p for low, high in itertools.pairwise(action))
    )
    return list_space(stages, actions)


def list_space(stages: Sequence[str], actions: Iterable[ActionLike]) -> ActionSpace:
    """The given actions, as text or as sequences of formats, in the given order.

    Parameters
    ----------
    stages : sequence of str
    actions : iterable of actions
        As texts or sequences of formats.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> list_space(["factor", "residual"], ["fp32-fp64", "fp64-fp64"]).names
    ('fp32-fp64', 'fp64-fp64')
    """
    if isinstance(actions, str):
        raise TypeError(f"actions is the text {actions!r}; pass a list of actions: [{actions!r}]")
    if isinstance(stages, str):
        raise TypeError(f"stages is the text {stages!r}; pass a tuple of names")
    return ActionSpace(tuple(stages), tuple(as_action(action, stages) for action in actions))


def implied_failures(space: ActionSpace, failed: int) -> list[int]:
    """Actions that are not worth a try once this one failed: same method, no stage higher.

    A format is no higher than another if it has no more significand bits and its exponents
    lie within the other's. So a failure of fp16, which may be overflow, implies nothing about bf16.
    The action that failed is not listed. That lower precision fails where higher precision did is a
    rule with exceptions: rounding errors may cancel by luck.

    Parameters
    ----------
    space : ActionSpace
    failed : int
        The index of an action that failed.

    Returns
    -------
    list of int
        Indices of actions that need not be tried.

    Examples
    --------
    >>> from roundwise.actions import full_space, implied_failures
    >>> space = full_space(["factor", "residual"], ["bf16", "fp32"])
    >>> [space.names[i] for i in implied_failures(space, space.names.index("fp32-bf16"))]
    ['bf16-bf16']
    """
    if not 0 <= failed < len(space):
        raise IndexError(f"failed = {failed}, the space has {len(space)} actions")
    limit = space[failed]
    return [
        i
        for i, action in enumerate(space)
        if i != failed
        and action.method == limit.method
        and all(_within(f, g) for f, g in zip(action, limit, strict=True))
    ]


def _within(low: FloatFormat, high: FloatFormat) -> bool:
    return (
        low.p <= high.p
        and low.max <= high.max
        and low.emin >= high.emin
        and low.min_subnormal >= high.min_subnormal
    )


def _product(
    stages: Sequence[str], formats: Iterable[str | FloatFormat]
) -> Iterator[tuple[FloatFormat, ...]]:
    if isinstance(formats, str):
        raise TypeError(f"formats is the text {formats!r}; pass a list of names: [{formats!r}]")
    # A format given twice (by name and as an object) is one format.
    ordered = sorted({get_format(fmt) for fmt in formats}, key=format_key)
    return itertools.product(ordered, repeat=len(stages))
