"""Metrics and tables of numbers that judge policies.

`accuracy_table` is the paper's table, with a strict success beside its own; `regret_table` and
`modelled_speedup` say what a policy is worth, with intervals; `times` compares measured seconds.
"""

from roundwise_studies.evaluation.accuracy import PAPER_RANGES, accuracy_table
from roundwise_studies.evaluation.choices import (
    best_fixed_action,
    cost_matrix,
    met_matrix,
    modelled_speedup,
    regret_table,
    regrets,
)
