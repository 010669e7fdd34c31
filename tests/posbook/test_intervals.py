from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from posbook.experiments.intervals import mean_and_interval


def test_by_hand():
    # Mean 2, s = 1, t(0.975, 2 degrees of freedom) = 4.302653: half width 4.302653 / sqrt(3).
    mean, low, high = mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert high - mean == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert mean - low == pytest.approx(high - mean)


def test_agrees_with_scipys_t_test_column_by_column():
    values = np.random.default_rng(0).normal(size=(7, 4))
    mean, low, high = mean_and_interval(values, level=0.9)
    other = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    np.testing.assert_allclose(low, other.low)
    np.testing.assert_allclose(high, other.high)
    assert mean.shape == (4,)


def test_covers_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(3.0, 2.0, size=(4, 20_000))
    _, low, high = mean_and_interval(draws)
    assert np.mean((low <= 3) & (3 <= high)) == pytest.approx(0.95, abs=0.006)


@pytest.mark.parametrize(
    ("values", "level", "says"),
    [
        ([1.0], 0.95, "two rows"),
        (1.0, 0.95, "two rows"),
        ([1.0, np.nan], 0.95, "finite"),
        ([1, 2], 1, "level"),
    ],
)
def test_bad_input_is_named(values, level, says):
    with pytest.raises(ValueError, match=says):
        mean_and_interval(values, level=level)
