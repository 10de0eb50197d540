"""`Tuner.plot`: what its curves show, with and without rewards, for tables and for others."""

import numpy as np
import pytest

import roundwise as rw
from roundwise.policies import LinearUCB, TabularQ

pytest.importorskip("matplotlib").use("Agg")
PROBLEMS = [rw.problems.randsvd(8, 10.0**k, rng=k) for k in range(1, 4)]


def fitted(**options):
    return rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=7, **options).fit(PROBLEMS)


def titles(figure):
    return [ax.get_title() for ax in figure.axes if ax.get_title()]


def test_curves_and_maps_of_a_table():
    tuner = fitted()
    figure = tuner.plot()
    assert titles(figure)[:2] == ["learning curve", "regret curve"]
    assert len(titles(figure)) == 5
    learning, regret, *_ = figure.axes
    reward = learning.lines[0].get_ydata()
    assert np.array_equal(reward, tuner.curves_.reward)
    best = tuner.rewards_.max(axis=1).mean()
    assert regret.lines[0].get_ydata() == pytest.approx(best - reward)
    assert (regret.lines[0].get_ydata() >= -1e-12).all()


def test_other_policies_have_curves_alone():
    assert titles(fitted(policy=LinearUCB()).plot()) == ["learning curve", "regret curve"]


def test_a_loaded_tuner_has_no_regret(tmp_path):
    fitted(policy=TabularQ()).save(tmp_path / "tuner.json")
    figure = rw.Tuner.load(tmp_path / "tuner.json").plot()
    assert "regret curve" not in titles(figure)
    assert titles(figure)[0] == "learning curve"


def test_an_unfitted_tuner_is_refused():
    with pytest.raises(ValueError, match="call fit"):
        rw.Tuner(rw.GmresIR.paper()).plot()
