"""How many GMRES iterations a rung is worth: they compete with the factors of the next one.

Prices tell both, whoever has chosen the rung. So an attempt that is given up makes a solve longer
by a share of what its next step takes, and not by a number of iterations that takes a thousand
times as long where A is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from roundwise.actions import Action
from roundwise.backends import Factors
from roundwise.costs.prices import PricedMethods
from roundwise.methods.contract import Shape, Work

SHARE = 0.5
"""Of the seconds of the next factors. A taste: what may be lost is half of what may be gained."""


def gmres_budget(
    prices: PricedMethods, ladder: Sequence[Action], level: int, shape: Shape
) -> int | None:
    """Iterations, those of all columns together, that this rung may take; None if nobody knows.

    They take `SHARE` of the time of the next other factors on the ladder that have a price.
    """
    here = ladder[level]

    def is_priced(action: Action) -> bool:
        return action.method is not None and prices.prices(action.method, action[0].name)

    def seconds(action: Action, work: Work) -> float:
        return prices.seconds(shape, str(action.method), action[0].name, work)

    others = (one for one in ladder[level + 1 :] if (one.method, one[0]) != (here.method, here[0]))
    higher = next(filter(is_priced, others), None)
    if higher is None:
        return None
    # An iteration is in FP64: it costs about the same by the factors of any format.
    iteration = seconds(here if is_priced(here) else higher, Work(iterations=1))
    factors = seconds(higher, Work(runs=1)) - seconds(higher, Work(steps=1))
    return int(SHARE * factors / iteration)


def shape_of(factors: Factors, n: int, entries: int) -> Shape:
    """The sizes of a solve with one column, as factors tell them.

    What engines do not tell is guessed as for `Profile.shape`: prices are compared with each other.
    """
    if not factors.is_sparse:
        return Shape(n, n * n)
    filled = float(factors.entries)
    flops = factors.flops if math.isfinite(factors.flops) else filled**2 / n
    return Shape(n, entries, 1, filled, flops, flops, entries**2 / n)
