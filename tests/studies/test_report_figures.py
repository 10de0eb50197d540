"""Figures: what they show, what they refuse, and that they leave no state behind."""

import math
import subprocess
import sys

import numpy as np
import pytest
from report_sample import CASES, DRAWINGS, FORMATS, draw_landscape, draw_usage, errors

from roundwise_studies.report import figures
from roundwise_studies.report.drawing import STYLE, ink_on


@pytest.mark.parametrize("name", DRAWINGS)
def test_figures_are_opaque_and_labelled(name):
    figure = DRAWINGS[name]()
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())
    assert (pixels[..., 3] == 255).all()
    assert (pixels[0, 0] == 255).all()
    assert pixels[..., :3].std() > 10  # something is drawn
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert all(ax.get_title(loc="left") for ax in shown if ax.get_subplotspec().is_first_row())
    inside = figure.bbox.padded(1)
    for ax in shown:
        box = ax.get_tightbbox()
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1


def test_figures_leave_no_global_state():
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    draw_usage()
    assert dict(matplotlib.rcParams) == before
    assert STYLE["font.size"] == 10


def test_usage_bars_add_up():
    (ax, _) = draw_usage().axes
    tops = {}
    for bar in ax.patches:
        place = round(bar.get_x(), 6)
        tops[place] = max(tops.get(place, 0), bar.get_y() + bar.get_height())
    assert list(tops.values()) == pytest.approx([4, 4])


def test_lost_runs_are_shown_above_all_others():
    ours, exact, kappas, groups = errors(count=8, lost=2)
    figure = figures.errors_against_fp64(ours, exact, kappas, groups)
    heights = np.concatenate([c.get_offsets()[:, 1] for c in figure.axes[0].collections[1:]])
    finite = np.concatenate([ours[CASES[0]][0], exact[CASES[0]][0]])
    top = finite[np.isfinite(finite)].max()
    assert np.sum(heights > 3 * top) == 2
    assert len(heights) == 8
    assert "no result" in [text.get_text() for text in figure.axes[0].texts]


def test_errors_of_zero_can_be_drawn():
    zeros = {"a": (np.zeros(3), np.zeros(3))}
    figures.errors_against_fp64(zeros, zeros, [1, 10, 100]).canvas.draw()


def test_the_best_action_is_marked():
    ax = draw_landscape().axes[0]
    (star,) = [line for line in ax.lines if line.get_marker() == "*"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (9.0, 2)


def test_many_cases_and_one():
    shares = np.full((3, 4), 1.0)
    for count in (1, 3, 4, 5):
        cases = {f"case {i}": shares for i in range(count)}
        figure = figures.usage_by_range(cases, ["a", "b", "c"], FORMATS)
        assert sum(ax.get_visible() for ax in figure.axes) == count


def test_sizes_are_sorted_by_number():
    ours, exact, kappas, _ = errors(count=4, lost=0)
    sizes = ["n >= 400", "n = 200 to 299", "n < 200", "n = 300 to 399"]
    figure = figures.errors_against_fp64(ours, exact, kappas, sizes)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    found = [shown.index(size) for size in sorted(sizes, key=sizes.index) if size in shown]
    assert [shown[i] for i in sorted(found)] == [sizes[2], sizes[1], sizes[3], sizes[0]]


def test_bars_of_variants_are_stacked():
    shares = {f"case {i}": np.array([[0.5, 1.0], [0.25, 0.0], [np.nan, np.nan]]) for i in range(4)}
    figure = figures.stacked_bars(shares, ["paper", "ours", "none"], ["bf16", "fp32"], 4)
    assert sum(ax.get_visible() for ax in figure.axes) == 4
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == [0.5, 0.25, 0.0, 1.5, 0.25, 0.0]


def test_dots_of_variants_have_room_for_zero():
    panels = {
        ("ferr", "W1"): {"low": (1e-14, [[1e-13, 1e-12], []])},
        ("GMRES", "W1"): {"low": (2.7, [[0.0, 3.0], [12.0]])},
    }
    figure = figures.dots_against(panels, ["ours", "all"])
    figure.canvas.draw()
    assert [ax.get_xscale() for ax in figure.axes] == ["log", "symlog"]
    line, dots = figure.axes[1].lines[:2]
    assert list(line.get_xdata()) == [2.7, 2.7]
    assert list(dots.get_xdata()) == [0.0, 3.0]


def test_a_table_that_is_drawn():
    values = np.array([[0.0, 2.0], [1.0, 0.5]])
    ax = figures.heat_table(["a", "b"], ["x", "y"], values).axes[0]
    assert [text.get_text() for text in ax.texts] == ["0.00", "2.00", "1.00", "0.50"]
    with pytest.raises(ValueError, match=r"pass \(2, 1\)"):
        figures.heat_table(["a", "b"], ["x"], values)


def test_letters_can_be_read():
    assert ink_on((1, 1, 1)) == ink_on((1, 1, 0)) == "black"
    assert ink_on((0, 0, 0)) == ink_on((0.27, 0, 0.33)) == "white"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.training_curves({}), "curves is empty"),
        (lambda: figures.training_curves({"a": ([], [])}), "pass .episodes. or"),
        (lambda: figures.usage_by_range({"a": [[1, 2]]}, ["r"], ["f"]), "ranges by formats"),
        (lambda: figures.errors_against_fp64({"a": ([1], [1])}, {}, [1]), "must be equal"),
        (
            lambda: figures.iterations_against_fp64({"a": [1, 2]}, {"a": [1]}, [1, 2]),
            "pass a vector of length 2",
        ),
        (lambda: figures.iterations_against_fp64({"a": []}, {"a": []}, []), "at least one"),
        (
            lambda: figures.iterations_against_fp64({"a": [1]}, {"a": [1]}, [1], ["x", "y"]),
            "2 groups; pass 1",
        ),
        (lambda: figures.kappa_distribution({"a": [0.5]}), "at least 1"),
        (lambda: figures.kappa_distribution({"a": [math.inf]}), "finite"),
        (lambda: figures.policy_map({"a": [["x"]]}, [1, 2], [1]), "by len"),
        (lambda: figures.policy_map({"a": [["x"]]}, [1], [1], order=["y"]), "not in order"),
        (lambda: figures.reward_landscape({"a": [1, 2]}, ["x"]), "length 1"),
        (lambda: figures.reward_landscape({"a": [1]}, ["x"], failed=[True] * 2), "pass one for"),
    ],
)
def test_figures_refuse_garbage(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reports_need_no_matplotlib_until_they_draw():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from roundwise_studies.report import Report, figures, format_html\n"
        "format_html(Report('t'))\n"
        "try: figures.kappa_distribution({'a': [1.0]})\n"
        "except ImportError as error: print(error)\n"
        "import roundwise; print('selenium' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        'matplotlib is needed here; pip install "roundwise[plot]"',
        "False",
    ]


def test_importing_roundwise_imports_no_report():
    code = (
        "import sys, roundwise; print([m for m in sys.modules if 'report' in m and 'round' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
