"""Maps of a table of action values: what is in them, and what is refused."""

import numpy as np
import pytest

from roundwise.actions import list_space
from roundwise.policies import TabularQ
from roundwise.policies.maps import TITLES, maps_of

pytest.importorskip("matplotlib").use("Agg")
SPACE = list_space(["factor"], ["bf16", "fp32", "fp64"])


@pytest.fixture
def policy():
    """Two features; two states were met, one of them with one action only."""
    made = TabularQ(alpha=1.0)
    made.start([[0.0, 0.0], [9.0, 4.0]], SPACE)
    first, second = made.encode([[0.0, 0.0], [9.0, 4.0]])
    for action, reward in ((0, 1.0), (1, 3.5), (1, 3.5)):
        made.update(first, action, reward)
    made.update(second, 2, -2.0)
    return made


def test_maps_have_values_visits_and_margins(policy):
    best, visits, margin = maps_of(policy)
    assert best.shape == (10, 10)
    assert (best[0, 0], visits[0, 0], margin[0, 0]) == (3.5, 3, 2.5)
    assert (best[9, 9], visits[9, 9]) == (-2.0, 1)
    assert np.isnan(margin[9, 9])  # one action alone was tried
    for found in (best, visits):
        assert np.isfinite(found).sum() == 2


def test_plot_draws_three_maps(policy):
    figure = policy.plot(["kappa", "norm"])
    titled = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in titled] == list(TITLES)
    assert {ax.get_xlabel() for ax in titled} == {"kappa"}
    left, right, *_ = titled[0].images[0].get_extent()
    assert (left, right) == pytest.approx((-0.5, 9.5))  # half a bin beyond the end points


@pytest.mark.parametrize("contexts", [[[1.0], [2.0]], [[1.0], [1.0]], [[1.0, 3.0], [2.0, 3.0]]])
def test_one_feature_or_a_constant_one_is_drawn(contexts):
    policy = TabularQ()
    policy.start(contexts, SPACE)
    policy.update(next(iter(policy.encode(contexts))), 0, 1.0)
    assert policy.plot().axes


def test_more_features_untrained_tables_and_wrong_names_are_refused(policy):
    three = TabularQ()
    three.start([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], SPACE)
    with pytest.raises(ValueError, match="train a policy on two"):
        three.plot()
    with pytest.raises(ValueError, match="name each"):
        policy.plot(["kappa"])
    with pytest.raises(ValueError, match="start"):
        TabularQ().plot()
