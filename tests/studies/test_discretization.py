"""Proposition 1: slopes, widths and losses where they are known."""

import numpy as np
import pytest

from roundwise_studies.discretization import hindsight_loss, slopes, widest

X = np.stack([np.linspace(0.0, 4.0, 81), np.zeros(81)], axis=1)
LINEAR = np.stack([2.0 * X[:, 0], 4.0 - X[:, 0]], axis=1)  # two actions that cross at 4/3


def test_slopes_of_linear_rewards_are_their_constants():
    found = slopes(X, LINEAR)
    assert found.max() == pytest.approx(2.0)
    assert found.min() == pytest.approx(1.0)


@pytest.mark.parametrize("bins", [5, 10, 20, 40])
def test_the_loss_stays_below_the_bound(bins):
    delta = widest(X, bins)
    assert delta <= 0.5 * 4.0 / (bins - 1) + 1e-9
    mean, worst, used = hindsight_loss(X, LINEAR, bins)
    assert 0 <= mean <= worst <= 2 * 2.0 * delta
    assert used == bins


def test_one_system_in_each_bin_loses_nothing():
    mean, worst, used = hindsight_loss(X[::20], LINEAR[::20], 5)
    assert (mean, worst, used) == (0.0, 0.0, 5)
