"""Laws with a known geometry, and samplers that follow them."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from posgeom.corpora.synthetic import blocks, independent, smooth, stationary, without_order
from posgeom.geometry.distances import hellinger_distances
from posgeom.geometry.mds import classical_mds

LAWS = {
    "stationary": stationary(12, window=5),
    "ring": stationary(12, window=5, circular=True),
    "smooth": smooth(12, 8, length_scale=3, rng=0),
    "blocks": blocks(12, 8, n_blocks=3, rng=0),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_samples_follow_the_law(law):
    mu, sample = law
    np.testing.assert_allclose(mu.sum(axis=1), 1)
    n_texts = 40_000
    ids = sample(n_texts, rng=1)
    assert ids.shape == (n_texts, 12)
    observed = np.stack([np.bincount(column, minlength=mu.shape[1]) for column in ids.T]) / n_texts
    standard_error = np.sqrt(mu * (1 - mu) / n_texts)
    assert (np.abs(observed - mu) <= 5 * standard_error + 1e-12).all()
    assert (observed[mu == 0] == 0).all()
    # independent across positions
    assert abs(np.corrcoef(ids[:, 0], ids[:, 7])[0, 1]) < 5 / np.sqrt(n_texts)
    np.testing.assert_array_equal(sample(10, rng=3), sample(10, rng=3))
    assert (sample(10, rng=3) != sample(10, rng=4)).any()


def test_sliding_window_distances_are_linear_in_the_lag_when_squared():
    squared = hellinger_distances(stationary(20, window=8).distributions) ** 2
    lag = np.abs(np.arange(20)[:, None] - np.arange(20))
    np.testing.assert_allclose(squared, 2 * np.minimum(lag, 8) / 8, atol=1e-14)


def test_ring_distances_are_circulant():
    D = hellinger_distances(stationary(15, window=4, circular=True).distributions)
    np.testing.assert_allclose(D, np.roll(D, (1, 1), axis=(0, 1)), atol=1e-14)
    assert D[0, 14] == pytest.approx(D[0, 1])


def test_blocks_have_zero_distance_inside_and_rank_one_less_than_their_number():
    D = hellinger_distances(blocks(17, 30, n_blocks=4, rng=2).distributions)
    block = np.arange(17) * 4 // 17
    assert (D[block[:, None] == block] == 0).all() and (D[block[:, None] != block] > 0.1).all()
    assert classical_mds(D).rank == 3


def test_smoother_laws_move_less_from_one_position_to_the_next():
    steps = [
        np.diag(hellinger_distances(smooth(60, 50, length_scale=s, rng=3).distributions), 1).mean()
        for s in (2, 6, 20)
    ]
    assert steps[0] > 2 * steps[1] > 4 * steps[2]
    assert hellinger_distances(smooth(10, 50, length_scale=3, strength=0, rng=3).distributions).max() < 1e-7


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: independent([[0.5, 0.6]]), "row 0 is no distribution"),
        (lambda: independent([[1.0, 0.0], [1.5, -0.5]]), "row 1 is no distribution"),
        (lambda: stationary(5, window=6, circular=True), "does not fit on a ring"),
        (lambda: smooth(5, 5, length_scale=0, rng=0), "length_scale"),
        (lambda: blocks(5, 5, n_blocks=6, rng=0), "n_blocks = 6"),
        (lambda: LAWS["smooth"].sample(0, 1), "n_texts must be at least 1"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_without_order_keeps_the_totals_and_draws_every_position_from_the_pooled_law():
    counts = np.array([[4000, 0, 0, 0], [0, 6000, 2000, 0], [0, 0, 0, 0]])
    drawn = without_order(counts, 0)
    assert drawn.shape == counts.shape and np.issubdtype(drawn.dtype, np.integer)
    drawn = drawn.toarray()
    np.testing.assert_array_equal(drawn.sum(axis=1), [4000, 8000, 0])
    pooled = np.array([1, 1.5, 0.5, 0]) / 3
    for row in drawn[:2]:
        np.testing.assert_allclose(row / row.sum(), pooled, atol=0.03)
    np.testing.assert_array_equal(without_order(csr_matrix(counts), 0).toarray(), drawn)
    assert (without_order(counts, 1).toarray() != drawn).any()


@pytest.mark.parametrize("counts", [[[0.5, 1]], [[-1, 2]]])
def test_without_order_refuses_weights(counts):
    with pytest.raises(ValueError, match="whole numbers"):
        without_order(counts, 0)


def test_without_order_refuses_a_corpus_without_tokens():
    with pytest.raises(ValueError, match="no token"):
        without_order(np.zeros((2, 3)), 0)
