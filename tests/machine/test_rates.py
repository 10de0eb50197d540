"""The one file of rates that ships: its schema, its parts, and how a part is replaced."""

import json

import pytest

from roundwise.exceptions import RoundwiseError
from roundwise.machine import rates


def test_every_part_says_where_it_comes_from():
    for part in ("cpu", "threads"):
        assert rates.shipped_rates(part)["source"].startswith("python -m ")
    assert "calibrate --device cuda" in rates.shipped_rates("cuda")["source"]
    for machine in rates.shipped_rates("lu_threads"):
        assert machine["source"].startswith("python benchmarks/lu_threads.py")


@pytest.mark.parametrize(
    "saved", [None, [], {}, {"schema": rates.SCHEMA, "version": 99}, {"schema": "other"}]
)
def test_another_file_is_refused(saved):
    with pytest.raises(RoundwiseError, match="install it again"):
        rates.checked(saved)


def test_a_file_that_lacks_a_part_is_refused():
    whole = json.loads(rates.FILE.read_text(encoding="utf-8"))
    assert rates.checked(whole) == whole
    for part in rates.PARTS:
        with pytest.raises(RoundwiseError, match=f"lack {part};"):
            rates.checked({name: x for name, x in whole.items() if name != part})


def test_one_part_is_replaced_and_the_others_stay(tmp_path):
    file = tmp_path / "rates.json"
    rates.write_rates("threads", {"source": "a  test", "rates": {"1": [1.5, 2]}}, file)
    rates.write_rates("lu_threads", [], file)
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert saved["threads"] == {"source": "a  test", "rates": {"1": [1.5, 2]}}
    assert saved["lu_threads"] == []
    for part in ("cpu", "cuda"):
        assert saved[part] == rates.shipped_rates(part)
    assert json.loads(rates.FILE.read_text(encoding="utf-8"))["lu_threads"]  # not this one
