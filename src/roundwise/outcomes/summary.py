"""What a table holds, in numbers, for people and for ``roundwise info``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roundwise.outcomes.records import from_json
from roundwise.outcomes.schema import RESULTS_VERSION, DamagedText, opened
from roundwise.outcomes.table import OutcomeTable


def table_summary(path: Path) -> dict[str, Any]:
    """What a table holds, by setting; see docs/outcome-table.md for its columns."""
    table = OutcomeTable(path, must_exist=True)
    with opened(table.path) as connection:
        connection.execute("BEGIN")  # one snapshot for all queries
        problem_count, n_min, n_max = connection.execute(
            "SELECT count(*), min(n), max(n) FROM problem"
        ).fetchone()
        features = connection.execute(
            "SELECT name, count(*) FROM feature WHERE results_version = ? GROUP BY name",
            (RESULTS_VERSION,),
        ).fetchall()
        settings = connection.execute(
            "SELECT setting.id, algorithm, arithmetic, results_version, count(*), "
            "count(DISTINCT problem), count(DISTINCT action) "
            "FROM outcome JOIN setting ON setting.id = outcome.setting "
            "GROUP BY setting.id ORDER BY algorithm, arithmetic, results_version"
        ).fetchall()
        measurements = dict(
            connection.execute("SELECT setting, count(*) FROM measurement GROUP BY setting")
        )
        statuses = connection.execute(
            "SELECT setting, status, count(*) FROM outcome GROUP BY setting, status ORDER BY status"
        ).fetchall()
        described = {algorithm: from_json(algorithm) for _, algorithm, *_ in settings}
        for saved in described.values():
            stages = saved.get("stages")
            if "algorithm" not in saved or not isinstance(stages, list):
                raise DamagedText("the settings of an algorithm are incomplete")
    names = "arithmetic", "results_version", "outcomes", "problems", "actions"
    return {
        "table": str(path),
        "problems": problem_count,
        "n": None if n_min is None else [n_min, n_max],
        "features": dict(features),
        "settings": [
            described[algorithm]  # algorithm, stages
            | dict(zip(names, facts, strict=True))
            | {
                "measurements": measurements.get(setting, 0),
                "statuses": {name: count for other, name, count in statuses if other == setting},
            }
            for setting, algorithm, *facts in settings
        ],
        "origins": table.origins(),
    }
