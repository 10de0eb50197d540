"""The reward of Carson & Chen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from roundwise.actions import Action
from roundwise.algorithms.base import Outcome
from roundwise.formats import FP64
from roundwise.rewards.base import ProblemFacts, Reward


@dataclass(frozen=True)
class PaperReward(Reward):
    """Carson & Chen's reward: precision + accuracy + iterations.

    - ``precision = w2 sum_stages t_FP64 / (t_p (1 + log10 max(kappa, 1)))``, where t counts
      significand bits, the implicit one included (53, 24, 11, 8);
    - ``accuracy = w1 f``, where ``f = -5 c1`` if ``max(e_ref, e_scaled) > 1``, and otherwise
      ``f = -c1 (log10 max(e_ref, epsilon) + log10 max(e_scaled, epsilon))``;
    - ``iterations = -lambda_iter log2 max(T, 1)``, T the inner iterations of the whole run.

    ``e_ref = ||x - x_true|| / (||x_true|| + epsilon)`` in the max norm, and
    ``e_scaled = eta / (||A||_inf ||x_true||_inf + ||b||_2 + epsilon)`` with eta the final ferr.
    A run without a result (ferr is inf) is in the first branch.

    Where the larger error passes 1, the accuracy drops from 0 or more to -5 w1 c1 and stays there:
    no failure is worse than another, and a failure after few iterations is rewarded for them.

    `PAPER_W1` and `PAPER_W2` are the paper's settings for dense systems; it takes
    ``lambda_iter=0.5`` for sparse and PDE systems, and 0 in its ablation.

    Parameters
    ----------
    w1, w2 : float
        Weights of accuracy and of precision.
    c1, lambda_iter, epsilon : float
        As in the formulas.

    Examples
    --------
    >>> from roundwise.rewards import PaperReward
    >>> PaperReward(lambda_iter=0.5).lambda_iter  # for sparse systems
    0.5
    """

    name: ClassVar[str] = "paper"

    w1: float = 1.0
    w2: float = 0.1
    c1: float = 1.0
    lambda_iter: float = 1.0
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        for name in ("w1", "w2", "c1", "lambda_iter"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)}; choose a finite number >= 0")
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon = {self.epsilon}; choose 0 < epsilon < 1")

    def errors(self, outcome: Outcome, facts: ProblemFacts) -> tuple[float, float]:
        """``(e_ref, e_scaled)``."""
        ferr, size = outcome.ferr, facts.norm_x_true
        if math.isnan(ferr) or math.isnan(size):
            raise ValueError(
                "the paper's reward needs the forward error; pass problems with x_true, or use "
                "CostReward with BackwardErrorTarget"
            )
        # ferr is relative, or absolute for x_true = 0.
        e_ref = ferr * (size / (size + self.epsilon)) if size > 0 else ferr / self.epsilon
        return e_ref, ferr / (facts.norm_A * size + facts.norm_b + self.epsilon)

    def components(self, outcome: Outcome, facts: ProblemFacts, action: Action) -> dict[str, float]:
        d_kappa = 1.0 + math.log10(max(facts.kappa, 1.0))
        precision = sum(FP64.p / (fmt.p * d_kappa) for fmt in action)
        e_ref, e_scaled = self.errors(outcome, facts)
        if e_ref <= 1 and e_scaled <= 1:
            logarithms = (math.log10(max(e, self.epsilon)) for e in (e_ref, e_scaled))
            accuracy = -self.c1 * sum(logarithms)
        else:
            accuracy = -5 * self.c1
        return {
            "precision": self.w2 * precision,
            "accuracy": self.w1 * accuracy,
            "iterations": 0.0 - self.lambda_iter * math.log2(max(outcome.inner_iterations, 1)),
        }


PAPER_W1 = PaperReward(w1=1.0, w2=0.1)
PAPER_W2 = PaperReward(w1=1.0, w2=1.0)
