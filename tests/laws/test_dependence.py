"""Mutual information: by hand, against scikit-learn, on chains whose law is known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from posgeom.laws.dependence import common_words, fit_bias, lag_information, mutual_information


def test_mutual_information_by_hand():
    assert mutual_information(np.outer([1, 2, 3], [4, 5])) == pytest.approx(0, abs=1e-12)
    assert mutual_information(np.diag([1, 1, 1, 1])) == pytest.approx(np.log(4))
    p = 3 / 4
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    assert mutual_information([[3, 1], [1, 3]]) == pytest.approx(np.log(2) - entropy)


def test_mutual_information_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 400)
    y = (x + rng.integers(0, 3, 400)) % 6
    table = np.zeros((5, 6))
    np.add.at(table, (x, y), 1)
    assert mutual_information(table) == pytest.approx(mutual_info_score(x, y))
    assert mutual_information(7 * table.T) == pytest.approx(mutual_info_score(x, y))


def test_common_words_by_hand():
    assert common_words(np.array([[7, 7, 9], [4, 9, 7]]), 2).tolist() == [[0, 0, 1], [2, 1, 0]]
    assert common_words(np.array([[7, 9]]), 10).tolist() == [[0, 1]]


def flipping(n_texts, n, flip, rng):
    """Two symbols, changed with probability ``flip`` at each step, from a fair start."""
    steps = rng.random((n_texts, n)) < flip
    steps[:, 0] = rng.random(n_texts) < 0.5
    return np.cumsum(steps, axis=1) % 2


def entropy(p):
    return -p * np.log(p) - (1 - p) * np.log(1 - p)


def test_information_of_a_chain_is_the_known_one():
    windows = flipping(800, 60, 0.1, np.random.default_rng(0))
    result = lag_information(windows, [1, 2, 5, 20], rng=1)
    same = (1 + 0.8**result.lags) / 2
    expected = np.log(2) - entropy(same)
    assert (np.abs(result.information - expected) < 4 * result.standard_error + 1e-4).all()
    assert result.replicates.shape == (8, 4)


def test_what_the_lag_has_no_part_in_survives_the_shuffle():
    """Texts of two topics, words independent within: the same information at every lag, shuffled or not."""
    rng = np.random.default_rng(0)
    rate = np.where(rng.random(1500) < 0.5, 0.2, 0.8)
    windows = (rng.random((1500, 40)) < rate[:, None]).astype(np.int64)
    joint = 0.5 * np.outer([0.8, 0.2], [0.8, 0.2]) + 0.5 * np.outer([0.2, 0.8], [0.2, 0.8])
    result = lag_information(windows, [1, 7, 30], rng=1)
    np.testing.assert_allclose(result.information, mutual_information(joint), atol=0.01)
    np.testing.assert_allclose(result.shuffled, mutual_information(joint), atol=0.01)


def test_unrelated_tokens_have_none_although_the_plug_in_says_so():
    windows = np.random.default_rng(0).integers(0, 60, (400, 30))
    result = lag_information(windows, [1, 10], rng=1)
    assert (result.null > 0.05).all()
    assert (np.abs(result.information) < 4 * result.standard_error).all()


@pytest.mark.parametrize(
    "bias, slope", [(np.arange(1.0, 41), 0.3), (np.log(np.arange(1.0, 41)), 1.4), (np.arange(40) // 4, 0.8)]
)
def test_a_bias_is_found_again(bias, slope):
    information = 0.7 * np.exp(-slope * (bias - bias[0])) + 0.01
    fit = fit_bias(information, bias)
    assert fit.slope == pytest.approx(slope, rel=0.03)
    assert fit.amplitude == pytest.approx(0.7, rel=0.03) and fit.plateau == pytest.approx(0.01, rel=0.05)
    assert fit.misfit < 0.02
    np.testing.assert_allclose(fit.curve, information, rtol=0.06)


def test_power_and_exponential_are_told_apart():
    lags = np.arange(1.0, 60)
    for information, better, worse in (
        (lags**-1.5 + 0.002, np.log(lags), lags),
        (np.exp(-lags / 5) + 0.002, lags, np.log(lags)),
    ):
        assert fit_bias(information, better).misfit < 0.25 * fit_bias(information, worse).misfit


def test_misfit_is_the_relative_root_mean_square():
    lags = np.arange(1.0, 21)
    information = lags**-1.0 * np.where(np.arange(20) % 2, 1.1, 0.9)
    fit = fit_bias(information, np.log(lags))
    assert fit.misfit == pytest.approx(np.sqrt(np.mean((fit.curve / information - 1) ** 2)))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: mutual_information(np.zeros((2, 2))), "counts"),
        (lambda: mutual_information([[1, -1], [0, 1]]), "counts"),
        (lambda: lag_information(np.zeros((40, 5), int), [5], rng=0), "lags"),
        (lambda: lag_information(np.zeros((9, 5), int), [1], rng=0), "windows"),
        (lambda: lag_information(np.zeros((40, 5)), [1], rng=0), "symbols"),
        (lambda: fit_bias([1.0, 0.5, 0.2, 0.0], [1, 2, 3, 4]), "positive"),
        (lambda: fit_bias([1.0, 0.5, 0.2, 0.1], [1, 1, 1, 1]), "bias"),
    ],
)
def test_errors_name_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()
