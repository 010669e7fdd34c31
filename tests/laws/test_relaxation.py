"""Lines and decays: values by hand, exact recovery, agreement with the power line, laws that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posgeom.corpora.synthetic import independent
from posgeom.encodings.formulas import power_line
from posgeom.geometry.distances import hellinger_distances
from posgeom.laws.power_line import fit_power_line
from posgeom.laws.relaxation import deviations, fit_decay, fit_line, line_law, matched_deviations, places
from posgeom.noise.correction import corrected_squared_distances, projected_distances


def halves(n_texts):
    return np.arange(n_texts) % 2


# --- lines ----------------------------------------------------------------------------------------------


def test_places_by_hand():
    np.testing.assert_allclose(places("power", -1.0, [0, 1, 3]), [0, 1 / 2, 3 / 4])
    np.testing.assert_allclose(places("power", 0.0, [1, 3, 7]), np.log([1, 2, 4]))
    np.testing.assert_allclose(places("power", 1.0, [2, 3, 5]), [0, 1, 3])
    np.testing.assert_allclose(places("power", 2.0, [0, 1, 2]), [0, 3 / 2, 4])
    np.testing.assert_allclose(places("exponential", 2.0, [3, 5, 9]), [0, 1 - np.exp(-1), 1 - np.exp(-3)])


@given(exponent=st.floats(-3, 2), n=st.integers(2, 40))
@example(exponent=5e-324, n=2)
def test_places_of_the_power_are_the_power_line(exponent, n):
    g = places("power", exponent, np.arange(n))
    np.testing.assert_allclose(np.abs(g[:, None] - g), power_line(n, exponent), rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    family=st.sampled_from(["power", "exponential"]),
    at=st.floats(0.1, 0.9),
    first=st.integers(0, 6),
    squared=st.booleans(),
)
def test_a_line_is_found_again(family, at, first, squared):
    n = 24
    parameter = -2.5 + 4 * at if family == "power" else 0.7 + 30 * at**2
    g = places(family, parameter, np.arange(first, first + n))
    D = 1.7 * np.abs(g[:, None] - g)
    fit = fit_line(D**2 if squared else D, family, first=first, squared=squared)
    assert fit.parameter == pytest.approx(parameter, rel=1e-3, abs=1e-3)
    assert fit.scale == pytest.approx(1.7, rel=2e-3)
    assert fit.misfit < 1e-6 and not fit.at_bound


@pytest.mark.parametrize("first", [0, 3])
def test_fit_of_distances_is_that_of_the_power_line(first):
    points = np.random.default_rng(1).normal(size=(20, 2)).cumsum(axis=0)
    D = np.linalg.norm(points[:, None] - points, axis=2)
    ours, theirs = fit_line(D, "power", first=first), fit_power_line(D, first=first)
    assert ours.parameter == pytest.approx(theirs.exponent, abs=1e-4)
    assert ours.misfit == pytest.approx(theirs.stress, abs=1e-8)
    assert ours.scale == pytest.approx(theirs.scale, rel=1e-3)


def test_scale_changes_the_scale_alone():
    D = hellinger_distances(np.random.default_rng(0).dirichlet(np.ones(8), size=12))
    for family in ("power", "exponential"):
        one, ten = fit_line(D**2, family, squared=True), fit_line(100 * D**2, family, squared=True)
        assert ten.parameter == pytest.approx(one.parameter, rel=1e-6)
        assert ten.scale == pytest.approx(10 * one.scale) and ten.misfit == pytest.approx(one.misfit)


def test_a_straight_line_is_at_the_bound_of_the_exponential_and_inside_for_the_power():
    D = power_line(20, 1.0)
    assert fit_line(D, "exponential").at_bound
    power = fit_line(D, "power")
    assert power.parameter == pytest.approx(1.0, abs=1e-5) and not power.at_bound


def test_errors_of_mean_zero_leave_the_squared_fit_at_the_truth_but_axes_of_noise_bend_the_other():
    """The reason for the squared fit."""
    truth = power_line(40, -0.8)
    truth /= truth.max()
    noise = np.random.default_rng(3).normal(0, 0.05, truth.shape)
    noisy = truth**2 + (np.triu(noise, 1) + np.triu(noise, 1).T)
    assert fit_line(noisy, "power", squared=True).parameter == pytest.approx(-0.8, abs=0.1)
    assert fit_line(projected_distances(noisy, 1), "power").parameter == pytest.approx(-0.8, abs=0.1)
    assert fit_line(projected_distances(noisy, 5), "power").parameter > -0.5


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: fit_line(np.zeros((4, 4)), "power"), "zero for every pair"),
        (lambda: fit_line(power_line(2, 1.0), "power"), "3 positions"),
        (lambda: fit_line(power_line(4, 1.0), "logarithm"), "family"),
        (lambda: fit_line(np.arange(16.0).reshape(4, 4), "power", squared=True), "symmetric"),
        (lambda: fit_line(power_line(4, 1.0), "power", first=-1), "first"),
        (lambda: places("exponential", 0.0, [0, 1]), "time constant"),
        (lambda: places("power", 1.0, [-1, 1]), "positions"),
        (lambda: line_law(np.linspace(0, 2, 5), 50, rng=0), "span"),
        (lambda: line_law(np.linspace(0, 0.5, 5), 1, rng=0), "vocab_size"),
    ],
)
def test_errors_name_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_line_law_has_the_distances_that_it_names():
    line = np.array([0.0, 0.1, 0.35, 0.8])
    law = line_law(line + 5, 500, rng=0)
    np.testing.assert_allclose(law.distributions.sum(axis=1), 1)
    expected = 2 * np.sin(np.abs(line[:, None] - line) / 2)
    np.testing.assert_allclose(hellinger_distances(law.distributions), expected, atol=1e-12)
    assert law.sample(7, 1).shape == (7, 4)


def test_line_law_refuses_a_line_that_would_need_a_negative_root():
    with pytest.raises(ValueError, match="negative"):
        line_law(np.linspace(0, 1, 3), 4, rng=2)


# --- deviations -----------------------------------------------------------------------------------------


def test_deviations_are_assembled_from_corrected_squares():
    rng = np.random.default_rng(0)
    texts, reference = rng.integers(0, 6, (40, 3)), rng.integers(0, 6, (40, 5))
    half = halves(40)
    squared, products = deviations(texts, reference, half)
    expected_r2, expected_01 = [], []
    for own, other in ((0, 1), (1, 0)):
        counts = [np.bincount(texts[half == own, i], minlength=6) for i in range(3)]
        counts.append(np.bincount(reference[half == other].ravel(), minlength=6))
        D2 = corrected_squared_distances(np.array(counts))
        expected_r2.append(D2[:3, 3])
        expected_01.append((D2[0, 3] + D2[1, 3] - D2[0, 1]) / 2)
    np.testing.assert_allclose(squared, np.mean(expected_r2, axis=0))
    assert products[0, 1] == pytest.approx(np.mean(expected_01))
    np.testing.assert_allclose(np.diagonal(products), squared, atol=1e-12)
    np.testing.assert_allclose(products, products.T, atol=1e-12)


def test_deviations_find_sizes_and_directions_of_a_known_law():
    """Positions on a line, the last of them the reference: one direction, lengths as built."""
    line = np.array([0.8, 0.4, 0.2, 0.0])
    law = line_law(line, 300, rng=0)
    texts = law.sample(20_000, 1)
    squared, products = deviations(texts[:, :3], texts[:, 3:], halves(len(texts)))
    np.testing.assert_allclose(np.sqrt(squared), 2 * np.sin(line[:3] / 2), atol=0.02)
    cosine = products[0, 2] / np.sqrt(squared[0] * squared[2])
    # The chord of an arc turns by half of the angle between its ends.
    assert cosine == pytest.approx(np.cos((0.8 - 0.2) / 2), abs=0.04)


def test_deviations_of_a_stationary_law_vanish():
    law = independent(np.tile(np.random.default_rng(0).dirichlet(np.ones(200)), (6, 1)))
    texts = law.sample(4000, 1)
    assert np.abs(deviations(texts[:, :3], texts[:, 3:], halves(4000)).squared).max() < 0.004


def test_matched_deviations_compare_position_with_position():
    line = np.array([0.8, 0.4, 0.0])
    texts = line_law(line, 300, rng=0).sample(20_000, 1)
    others = texts[:, ::-1]
    expected = (2 * np.sin(np.abs(line - line[::-1]) / 2)) ** 2
    np.testing.assert_allclose(matched_deviations(texts, others, halves(20_000)), expected, atol=0.02)


def test_matched_deviations_are_corrected_squares_of_pairs():
    rng = np.random.default_rng(0)
    texts, others, half = rng.integers(0, 5, (30, 19)), rng.integers(0, 5, (30, 19)), halves(30)
    found = matched_deviations(texts, others, half)
    for position in range(19):
        expected = []
        for own, other in ((0, 1), (1, 0)):
            pair = texts[half == own, position], others[half == other, position]
            counts = np.array([np.bincount(x, minlength=5) for x in pair])
            expected.append(corrected_squared_distances(counts)[0, 1])
        assert found[position] == pytest.approx(np.mean(expected))


def test_a_reference_may_have_rows_of_different_lengths():
    rng = np.random.default_rng(0)
    texts, reference = rng.integers(0, 6, (40, 3)), rng.integers(0, 6, (40, 5))
    rows = [row[: 1 + k % 5] for k, row in enumerate(reference)]
    ragged = deviations(texts, rows, halves(40)).squared
    assert not np.allclose(ragged, deviations(texts, reference, halves(40)).squared)
    np.testing.assert_array_equal(
        deviations(texts, list(reference), halves(40)).squared,
        deviations(texts, reference, halves(40)).squared,
    )
    pooled = [np.concatenate([rows[k] for k in range(half, 40, 2)]) for half in (0, 1)]
    counts = [np.bincount(texts[::2, 0], minlength=6), np.bincount(pooled[1], minlength=6)]
    other = [np.bincount(texts[1::2, 0], minlength=6), np.bincount(pooled[0], minlength=6)]
    expected = sum(corrected_squared_distances(np.array(pair))[0, 1] / 2 for pair in (counts, other))
    assert ragged[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    "texts, partner, half, words",
    [
        (np.zeros((4, 2), int), np.zeros((5, 2), int), [0, 1, 0, 1], "agree"),
        (np.zeros((4, 2), int), np.zeros((4, 2), int), [0, 1, 0], "one row"),
        (np.zeros((4, 2), int), np.zeros((4, 2), int), [0, 0, 0, 0], "half"),
        (np.zeros((4, 2), int), np.zeros((4, 3), int), [0, 1, 0, 1], "agree"),
    ],
)
def test_texts_that_do_not_belong_together(texts, partner, half, words):
    with pytest.raises(ValueError, match=words):
        matched_deviations(texts, partner, half)


# --- decays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, parameter", [("power", -0.45), ("power", -1.6), ("exponential", 6.0)])
@pytest.mark.parametrize("reference", [None, np.arange(40, 80)])
@pytest.mark.parametrize("first", [0, 2])
def test_a_decay_is_found_again(family, parameter, reference, first):
    i = np.arange(first, 40)
    g = (1.0 + i) ** parameter if family == "power" else np.exp(-i / parameter)
    if reference is not None:
        far = (1.0 + reference) ** parameter if family == "power" else np.exp(-reference / parameter)
        g = g - far.mean()
    fit = fit_decay(0.3 * g**2, np.full(i.size, 0.01), family, first=first, reference=reference)
    assert fit.parameter == pytest.approx(parameter, rel=1e-3)
    assert fit.size == pytest.approx(np.sqrt(0.3) * g[0], rel=1e-3)
    assert fit.misfit < 1e-3 and not fit.at_bound
    np.testing.assert_allclose(fit.curve, 0.3 * g**2, atol=1e-5)


def test_against_a_reference_exponents_pass_through_the_logarithm():
    i, reference = np.arange(40), np.arange(40, 80)
    for exponent in (-0.02, 0.0, 0.4):
        g = places("power", exponent, np.arange(80))
        squared = (g[:40] - g[40:].mean()) ** 2
        fit = fit_decay(squared, np.full(i.size, 0.01), "power", reference=reference)
        assert fit.parameter == pytest.approx(exponent, abs=1e-3) and not fit.at_bound


def test_misfit_of_a_right_fit_is_about_the_number_of_positions():
    rng = np.random.default_rng(0)
    truth = 0.5 * (1.0 + np.arange(200)) ** -1.0
    misfits = [
        fit_decay(truth + rng.normal(0, 0.01, 200), np.full(200, 0.01), "power").misfit for _ in range(20)
    ]
    assert np.mean(misfits) == pytest.approx(198, abs=4 * np.sqrt(2 * 198 / 20))


def test_a_small_error_is_raised_to_the_median():
    squared = 0.5 * (1.0 + np.arange(20)) ** -1.0
    squared[5] += 0.2
    errors = np.full(20, 0.01)
    trusted = errors.copy()
    trusted[5] = 1e-9
    assert fit_decay(squared, trusted, "power").parameter == fit_decay(squared, errors, "power").parameter


@pytest.mark.parametrize(
    "squared, errors, words",
    [([1.0, 0.5], [1.0, 1.0], "n >= 3"), ([1.0, 0.5, 0.2], [1.0, 0.0, 1.0], "> 0")],
)
def test_decays_refuse(squared, errors, words):
    with pytest.raises(ValueError, match=words):
        fit_decay(squared, errors, "power")
