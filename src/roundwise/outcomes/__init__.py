"""Outcomes of every action on every problem, computed once and kept in a file.

>>> table = OutcomeTable("outcomes.sqlite")                       # doctest: +SKIP
>>> fill(table, algorithm, problems, actions, jobs=-1)            # doctest: +SKIP
>>> view = table.view(algorithm, problems, actions)               # doctest: +SKIP
"""

from roundwise.outcomes.filling import PAPER_FEATURES, fill
from roundwise.outcomes.progress import progress_bar
from roundwise.outcomes.reading import STATUSES, OutcomeView
from roundwise.outcomes.schema import RESULTS_VERSION, OutcomeTableError
from roundwise.outcomes.table import OutcomeTable
from roundwise.outcomes.workers import NATIVE_FEATURES, WorkersLost
