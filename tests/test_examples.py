"""The examples run, and say what they promise."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("solve_dense", "Verified: x solves exactly"),
        ("solve_many", "20 columns, largest residual"),
        ("solve_sparse", "Verified: x solves exactly"),
        ("solve_newton", "correction"),
        ("trained_policy", "Verified: x solves exactly"),
        ("custom_algorithm", "learned:    fp32-fp32  error"),
        ("fill_on_cluster", "120 outcomes computed by 3 workers"),
        ("custom_policy", "has the largest expected reward"),
        ("refinement", "fp32  kappa u_f"),
        ("paper_algorithms", "low kappa, high kappa: ['fp32', 'fp64']"),
        ("tuned_in_60_lines", "all-FP64 is the best action of 100 %"),
        ("formats", "mine   u = 1.6e-02"),
    ],
)
def test_example(name, promise, capsys, monkeypatch):
    # A figure is drawn; there is no window to show it in.
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    monkeypatch.setattr("sys.argv", [name])  # pytest's arguments are not the example's
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert promise in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_it_has_a_title_for_the_gallery(path):
    if path.stem == "demo":
        pytest.skip("make demo shows it; it is no page of the gallery")
    _, title, line, *_ = path.read_text().splitlines()
    assert line == "=" * len(title)


def test_a_policy_of_your_own_fits_on_a_screen():
    text = (EXAMPLES / "custom_policy.py").read_text()
    own = text[text.index("class MeanReward") : text.index("# %%\n# Trained")]
    assert len(own.strip().splitlines()) <= 30
