"""What results show in a notebook: HTML that nests and is escaped, and figures."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from outline import Outline

import roundwise as rw
from roundwise.notebook import cards
from roundwise.outcomes.progress import in_notebook, progress_bar
from roundwise.solver.trust.knowledge import ErrorEstimate, Knowledge

EVIL = "<script>alert('x')</script> & \"quoted\""


def conditioned(n, kappa, seed=0):
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return U * np.logspace(0, -math.log10(kappa), n) @ V


@pytest.fixture(scope="module")
def escalated():
    """FP32 cannot do: the condition number is far above 1 / u."""
    found = rw.solve(conditioned(200, 1e12), np.ones(200), policy="fp32", full_output=True)
    assert found.status == "escalated"
    return found


@pytest.fixture(scope="module")
def least_squares():
    rng = np.random.default_rng(1)
    return rw.lstsq(rng.standard_normal((60, 20)), np.ones(60), full_output=True)


@pytest.fixture(scope="module")
def solver():
    found = rw.Solver()
    n = max(300, rw.solver.default_policy().express_below)
    for seed in range(6):  # a shape gets a line of its own after five solves
        found.solve(np.random.default_rng(seed).standard_normal((n, n)), np.ones(n))
    return found


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def checked(html):
    """The text of HTML that nests, runs and loads nothing, and styles nothing but itself."""
    outline = Outline(html)
    assert not outline.faults
    tags = {tag for tag, _ in outline.found}
    assert tags <= {"div", "span", "b", "table", "tr", "th", "td", "svg", "polyline"}
    for _, attributes in outline.found:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href")]
    assert "url(" not in html
    return " ".join("".join(outline.text).split())


def test_a_solution_shows_every_attempt_and_the_gate(escalated):
    html = escalated._repr_html_()
    shown = checked(html)
    assert len(escalated.attempts) > 1
    for attempt in escalated.attempts:
        assert (f"{attempt.nbe:.1e}" if np.isfinite(attempt.nbe) else attempt.reason) in shown
        assert attempt.action.partition(":")[2] in shown
    assert html.count("<tr") == 1 + len(escalated.attempts)
    assert f"{escalated.tolerance:.1e}" in shown
    assert escalated.decision in shown
    for name in escalated.timings:
        assert name in shown
    assert html.count(cards.BAD + ";border-radius") == len(escalated.attempts) - 1
    assert html.count(cards.GOOD + ";border-radius") == 1


def test_a_least_squares_solution_does_too(least_squares):
    shown = checked(least_squares._repr_html_())
    assert "LeastSquaresSolution: accepted, x of 20" in shown
    assert "rank 20" in shown
    for attempt in least_squares.attempts:
        assert attempt.action.partition(":")[2] in shown


def test_words_are_escaped(escalated):
    attempt = replace(escalated.attempts[0], reason=EVIL, nbe=math.inf)
    timings = {EVIL: 1.0, "factor": 0.0}
    knowledge = Knowledge.known(ErrorEstimate(1e-3, False, EVIL, 1.0))
    facts = {"decision": EVIL, "attempts": (attempt,), "timings": timings}
    odd = replace(escalated, knowledge=knowledge, **facts)
    html = odd._repr_html_()
    shown = checked(html)  # which knows no script
    assert "alert(" not in re.sub(r"&lt;script&gt;alert\(", "", html)
    assert shown.count(EVIL) == 4  # decision, reason, source and the name of a time
    assert "no answer" in shown


def test_bars_are_as_long_as_errors_are_small():
    widths = {}
    for error in (math.nan, math.inf, 2.0, 1.0, 1e-9, 1e-18, 1e-30, 0.0):
        html = cards.error_bar(error, 1e-15, True)
        assert not Outline(html).faults
        widths[error] = float(re.search(r"width:([\d.]+)%", html)[1])
        assert float(re.search(r"left:([\d.]+)%", html)[1]) == pytest.approx(1500 / 18, abs=0.1)
    assert list(widths.values()) == [0, 0, 0, 0, 50, 100, 100, 100]


def test_parts_of_the_time_fill_the_bar():
    html = cards.time_bar({"a": 1.0, "b": 3.0})
    assert re.findall(r"width:([\d.]+)%", html) == ["25.00", "75.00"]
    assert not Outline(cards.time_bar({"a": 0.0})).faults
    assert not Outline(cards.time_bar({})).faults


def test_a_solver_shows_what_it_has_learned(solver):
    shown = checked(solver._repr_html_())
    learned = solver._learner.learned()
    assert learned.rows
    for words, arms in learned.rows.items():
        assert words in shown
        for arm in arms.values():
            assert f"{arm.relative_time:.2f} ({arm.count})" in shown
    assert "nothing yet" in checked(rw.Solver()._repr_html_())
    assert "does not learn" in checked(rw.Solver(learn=False)._repr_html_())


def test_a_tuner_shows_its_settings_and_then_its_training():
    tuner = rw.Tuner(rw.GmresIR.paper(), ("fp32", "fp64"), episodes=5)
    assert "not fitted yet" in checked(tuner._repr_html_())
    tuner.fit([rw.problems.randsvd(10, 10.0**k, rng=k) for k in (1, 5)])
    html = tuner._repr_html_()
    shown = checked(html)
    assert "on 2 problems" in shown
    assert all(name in shown for name in tuner.space_.names)
    assert html.count("<polyline") == 1
    assert len(re.search(r'points="([^"]*)"', html)[1].split()) == 5


def test_a_plot_has_a_line_for_every_attempt_and_one_for_the_gate(escalated, pyplot):
    ax = escalated.plot()
    ax.figure.canvas.draw()
    *attempts, gate = ax.lines
    for line, attempt in zip(attempts, escalated.attempts, strict=True):
        shown = attempt.nbe if np.isfinite(attempt.nbe) else np.nan  # of no x there is no error
        np.testing.assert_equal(line.get_ydata()[-1], shown)
        assert len(line.get_ydata()) == len(attempt.history) + 1
    assert set(gate.get_ydata()) == {escalated.tolerance}
    assert ax.get_yscale() == "log"


def test_a_plot_goes_where_it_is_told(escalated, least_squares, solver, pyplot):
    for one in (escalated, least_squares, solver):
        _, ax = pyplot.subplots()
        assert one.plot(ax) is ax
        ax.figure.canvas.draw()


def test_errors_of_zero_and_failures_are_drawn(escalated, pyplot):
    failed, last = escalated.attempts[0], escalated.attempts[-1]
    failed = replace(failed, nbe=math.inf, history=())
    ax = replace(escalated, attempts=(failed, replace(last, nbe=0.0))).plot()
    ax.figure.canvas.draw()
    assert "(failed)" in ax.lines[0].get_label()
    assert 0 < ax.lines[1].get_ydata()[-1] < 1e-18


def test_the_plot_of_a_solver_has_a_dot_for_every_cell(solver, pyplot):
    ax = solver.plot()
    learned = solver._learner.learned()
    dots = sum(len(drawn.get_offsets()) for drawn in ax.collections)
    assert dots == sum(map(len, learned.rows.values()))
    labels = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
    assert labels == list(learned.rows)
    with pytest.raises(ValueError, match="solve with it"):
        rw.Solver().plot()
    with pytest.raises(ValueError, match="learn=True"):
        rw.Solver(learn=False).plot()


def test_without_matplotlib_the_extra_is_named(escalated, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=re.escape('pip install "roundwise[plot]"')):
        escalated.plot()


def test_importing_roundwise_loads_none_of_this():
    names = "'roundwise.notebook', 'matplotlib', 'tqdm', 'IPython'"
    code = f"import sys, roundwise; print([n for n in ({names},) if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("config", "expected"), [({"IPKernelApp": {}}, True), ({"TerminalIPythonApp": {}}, False)]
)
def test_a_notebook_is_told_from_a_terminal(monkeypatch, capsys, config, expected):
    shell = SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook() is expected
    progress = progress_bar("outcomes")
    progress(1, 1)
    assert ("outcomes: 100%" in capsys.readouterr().err) is expected  # a bar; no line so soon


def test_outside_of_ipython_there_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()
