"""Metrics and tables of numbers that judge policies.

`accuracy_table` and `usage_table` are the paper's tables, with a strict success beside its own;
`regret_table` and `modelled_speedup` say what a policy is worth, with intervals; `climb_costs` what
a solve costs that tries one action after another. `format_table` prints the rows of any table.
"""

from roundwise.evaluation.accuracy import (
    PAPER_RANGES,
    AccuracyTable,
    KappaRange,
    RangeAccuracy,
    UsageTable,
    accuracy_table,
    assign_ranges,
    paper_success,
    usage_table,
)
from roundwise.evaluation.climbs import Speedup, climb_costs, modelled_speedup
from roundwise.evaluation.intervals import (
    Interval,
    SeedSpread,
    mean_interval,
    ratio_interval,
    seed_spread,
)
from roundwise.evaluation.regret import (
    RegretTable,
    best_fixed_action,
    regret_table,
    regrets,
)
from roundwise.evaluation.tables import format_table
from roundwise.rewards.targets import strict_success
