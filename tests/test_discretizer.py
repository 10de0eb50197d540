"""FeatureDiscretizer against brute force over its points."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roundwise.discretizer import FeatureDiscretizer

finite = st.floats(-1e6, 1e6)


@given(
    data=arrays(np.float64, (6, 2), elements=finite),
    new=arrays(np.float64, (8, 2), elements=st.floats(-2e6, 2e6)),
    bins=st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
def test_a_value_goes_to_the_nearest_point(data, new, bins):
    made = FeatureDiscretizer(bins).fit(data)
    states = made.transform(new)
    n1, n2 = made.bins_
    assert made.n_states_ == n1 * n2
    for row, state in zip(new, states, strict=True):
        assert made.coordinates(state) == (state // n2, state % n2)
        for j, index in enumerate(made.coordinates(state)):
            points = np.linspace(data[:, j].min(), data[:, j].max(), made.bins_[j])
            value = np.clip(row[j], points.min(), max(points.max(), data[:, j].max()))
            slack = 1e-9 * (np.ptp(points) + 1e-300) + 4e-16 * abs(value)
            assert abs(points[index] - value) <= np.abs(points - value).min() + slack


@given(
    data=arrays(np.float64, (5, 1), elements=st.floats(1e-9, 1e9)),
    new=arrays(np.float64, (8, 1), elements=st.floats(1e-12, 1e12)),
)
def test_log_bins_are_linear_bins_of_the_logarithm(data, new):
    log = FeatureDiscretizer(7, "log").fit(data)
    linear = FeatureDiscretizer(7).fit(np.log10(data))
    position = np.log10(np.clip(new, data.min(), data.max()))
    near_tie = False
    if linear.bins_ == (7,):
        step = np.ptp(np.log10(data)) / 6
        fraction = (position - np.log10(data).min()) / step % 1
        near_tie = step < 1e-12 or bool((abs(fraction - 0.5) < 1e-6).any())
    if not near_tie:
        np.testing.assert_array_equal(log.transform(new), linear.transform(np.log10(new)))


def test_paper_grid_by_hand():
    X = np.array([[1.0, 0.0], [8.0, 9.0]])
    made = FeatureDiscretizer((8, 10)).fit(X)
    assert made.n_states_ == 80
    # 3.4 is nearest to 3 (bin 2 of 1..8), 6.6 to 7 (bin 7 of 0..9).
    np.testing.assert_array_equal(made.transform([[3.4, 6.6], [1, 0], [8, 9]]), [27, 0, 79])
    np.testing.assert_array_equal(made.bin_centers_[0], np.arange(1.0, 9.0))


def test_half_way_goes_down():
    made = FeatureDiscretizer(5).fit([[0.0], [4.0]])
    np.testing.assert_array_equal(made.transform([[0.5], [1.5], [2.5], [3.5]]), [0, 1, 2, 3])


def test_clipping():
    made = FeatureDiscretizer(3).fit([[0.0, 0.0], [1.0, 2.0]])
    X = [[-5, 1], [0, 2], [1, 3], [np.inf, -np.inf], [0.5, 1]]
    np.testing.assert_array_equal(made.transform(X), [1, 2, 8, 6, 4])


def test_log_feature_below_the_range_is_clipped():
    made = FeatureDiscretizer(3, ["log", "linear"]).fit([[1.0, 0.0], [100.0, 1.0]])
    np.testing.assert_array_equal(
        made.transform([[-3, 0], [0, 0], [10, 0], [np.inf, 1]]), [0, 0, 3, 8]
    )
    np.testing.assert_allclose(made.bin_centers_[0], [1, 10, 100])


def test_constant_feature_has_one_bin():
    made = FeatureDiscretizer((4, 5)).fit([[2.0, 0.0], [2.0, 1.0]])
    assert made.bins_ == (1, 5)
    assert made.n_states_ == 5
    np.testing.assert_array_equal(made.transform([[2, 1], [99, 1], [-99, 0]]), [4, 4, 0])
    one_row = FeatureDiscretizer(10).fit([[3.0, 4.0]])
    assert one_row.n_states_ == 1


def test_states_are_monotone_in_a_single_feature():
    made = FeatureDiscretizer(9).fit([[-1.0], [1.0]])
    states = made.transform(np.linspace(-2, 2, 1001)[:, None])
    assert (np.diff(states) >= 0).all()
    assert set(states) == set(range(9))


@pytest.mark.parametrize("scale", ["linear", "log", ("log", "linear")])
def test_saved_discretizer_gives_the_same_states(scale):
    rng = np.random.default_rng(3)
    X, new = rng.uniform(1, 9, (30, 2)), rng.uniform(0.5, 12, (200, 2))
    made = FeatureDiscretizer((np.int64(6), 4), scale).fit(X)
    again = FeatureDiscretizer.from_dict(json.loads(json.dumps(made.to_dict())))
    np.testing.assert_array_equal(again.transform(new), made.transform(new))
    unfitted = FeatureDiscretizer.from_dict(FeatureDiscretizer(3).to_dict())
    with pytest.raises(ValueError, match="call fit"):
        unfitted.transform(X)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: FeatureDiscretizer().fit([[1.0, np.nan]]), r"X\[0, 1\] is NaN"),
        (lambda: FeatureDiscretizer().fit([[1.0], [2.0]]).transform([[np.nan]]), "is NaN"),
        (lambda: FeatureDiscretizer().fit([[1.0], [np.inf]]), "inf"),
        (lambda: FeatureDiscretizer().fit(np.empty((0, 2))), "no rows"),
        (lambda: FeatureDiscretizer().fit([1.0, 2.0]), "shape"),
        (lambda: FeatureDiscretizer().fit(np.empty((3, 0))), "shape"),
        (lambda: FeatureDiscretizer(0).fit([[1.0]]), "bins"),
        (lambda: FeatureDiscretizer((2.5, 3)).fit([[1.0, 2.0]]), "bins"),
        (lambda: FeatureDiscretizer((2, 3, 4)).fit([[1.0, 2.0]]), "pass 2 or one"),
        (lambda: FeatureDiscretizer(2, "cubic").fit([[1.0]]), "choose one of"),
        (lambda: FeatureDiscretizer(2, "log").fit([[0.0], [1.0]]), "linear"),
        (lambda: FeatureDiscretizer().fit([[-1e308], [1e308]]), "exceeds float64"),
        (lambda: FeatureDiscretizer().fit([[1.0]]).transform([[1.0, 2.0]]), "same features"),
        (lambda: FeatureDiscretizer().transform([[1.0]]), "call fit"),
        (lambda: FeatureDiscretizer.from_dict({"bins": 3}), "not a saved discretizer"),
    ],
)
def test_garbage(make, match):
    with pytest.raises(ValueError, match=match):
        make()
