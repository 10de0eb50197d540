"""``roundwise compare``: its table, its figure and its refusals. No time decides a test."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from command_line import fail, roundwise, succeed

import roundwise as rw
from roundwise.commands import compare as comparing

GATE = np.sqrt(30) * rw.FP64.unit_roundoff


@pytest.fixture
def dense_file(tmp_path):
    path = tmp_path / "dense.mtx"
    scipy.io.mmwrite(path, np.random.default_rng(0).standard_normal((30, 30)))
    return path


def compared(*args):
    return json.loads(succeed("compare", *args, "--seconds", 0.01, "--json"))


@pytest.mark.parametrize(
    ("A", "peer"),
    [
        (np.eye(30) + 0.01, "numpy.linalg.solve"),
        (np.eye(30) + 0.01j, "numpy.linalg.solve"),
        (sp.diags_array([1.0, -2.5, 1.0], offsets=[-1, 0, 1], shape=(30, 30)).tocoo(),
         "scipy.sparse.linalg.spsolve"),
    ],
)  # fmt: skip
def test_a_file_is_compared_with_its_peer(tmp_path, A, peer):
    scipy.io.mmwrite(tmp_path / "A.mtx", A)
    (row,) = compared(tmp_path / "A.mtx")["comparisons"]
    assert (row["n"], row["peer"]) == (30, peer)
    assert 0 <= row["backward_error"] <= GATE
    assert 0 <= row["peer_backward_error"] <= 100 * GATE
    assert row["times_faster"] == row["peer_seconds"] / row["seconds"]
    assert row["runs"] >= 1


def test_random_systems_of_the_sizes_asked_for():
    rows = compared("--sizes", 12, "--sizes", 5)["comparisons"]
    assert [row["n"] for row in rows] == [5, 12]
    text = succeed("compare", "--sizes", 5, "--seconds", 0.01)
    assert "roundwise.solve beside numpy.linalg.solve" in text
    assert "times faster" in text


def test_when_time_is_up_larger_systems_are_left_out():
    rows = compared()["comparisons"]
    assert rows[0]["n"] == 100
    assert len(rows) < 6  # n = 4000 takes more than 0.01 s everywhere


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure(tmp_path, dense_file, ending):
    pytest.importorskip("matplotlib")
    out = tmp_path / f"figure.{ending}"
    assert f"The figure is in {out}" in succeed("compare", dense_file, "-o", out, "--seconds", 0.01)
    assert out.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])


def test_refusals(tmp_path, dense_file, monkeypatch):
    assert "leave it out for a file" in fail(2, "compare", dense_file, "--sizes", 10)
    assert ".png, .svg or .pdf" in fail(2, "compare", "-o", tmp_path / "figure.txt")
    assert "above 0" in fail(2, "compare", "--seconds", 0)
    scipy.io.mmwrite(tmp_path / "singular.mtx", np.ones((4, 4)))
    assert "singular" in fail(1, "compare", tmp_path / "singular.mtx")
    (tmp_path / "text.mtx").write_text("no matrix")
    assert "text.mtx" in fail(1, "compare", tmp_path / "text.mtx")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = fail(1, "compare", dense_file, "-o", tmp_path / "figure.png")
    assert 'pip install "roundwise[plot]"' in refused


def test_python_m_roundwise_is_the_command():
    command = [sys.executable, "-m", "roundwise", "compare", "--sizes", "4", "--seconds", "0.01"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "numpy.linalg.solve" in ran.stdout
    ran = subprocess.run(command[:3], capture_output=True, text=True, check=True)
    assert "Usage: roundwise" in ran.stdout


def test_rows_are_printed_when_they_are_made_and_kept_on_ctrl_c(monkeypatch):
    made = []
    compare = comparing.compared

    def interrupted(*args):
        if made:
            raise KeyboardInterrupt
        made.append(compare(*args))
        return made[0]

    monkeypatch.setattr(comparing, "compared", interrupted)
    sizes = ("--sizes", 5, "--sizes", 6, "--seconds", 0.01)
    result = roundwise("compare", *sizes)
    assert result.exit_code == 130
    assert "1 comparisons are finished" in result.stderr
    assert "Gaussian" in result.stdout
    assert len(json.loads(roundwise("compare", *sizes, "--json").stdout or "{}")) == 0  # none made
    made.clear()
    result = roundwise("compare", *sizes, "--json")
    assert [row["n"] for row in json.loads(result.stdout)["comparisons"]] == [5]
