"""Evaluation: metrics and tables, numbers only.

`accuracy_table` and `usage_table` are the paper's tables, with a strict success beside its own;
`regret_table` and `modelled_speedup` say what a policy is worth, with intervals. `format_table`
prints the rows of any of them.
"""

from roundwise.evaluation.accuracy import (
    PAPER_RANGES,
    AccuracyTable,
    KappaRange,
    RangeAccuracy,
    RangeUsage,
    UsageTable,
    accuracy_table,
    assign_ranges,
    paper_success,
    usage_table,
)
from roundwise.evaluation.regret import (
    Interval,
    PolicyRegret,
    RegretTable,
    SeedSpread,
    Speedup,
    best_fixed_action,
    mean_interval,
    modelled_speedup,
    ratio_interval,
    regret_table,
    regrets,
    seed_spread,
)
from roundwise.evaluation.tables import Row, format_table
from roundwise.rewards.targets import strict_success

__all__ = [
    "PAPER_RANGES",
    "AccuracyTable",
    "Interval",
    "KappaRange",
    "PolicyRegret",
    "RangeAccuracy",
    "RangeUsage",
    "RegretTable",
    "Row",
    "SeedSpread",
    "Speedup",
    "UsageTable",
    "accuracy_table",
    "assign_ranges",
    "best_fixed_action",
    "format_table",
    "mean_interval",
    "modelled_speedup",
    "paper_success",
    "ratio_interval",
    "regret_table",
    "regrets",
    "seed_spread",
    "strict_success",
    "usage_table",
]
