"""Hellinger, Fisher-Rao and Euclidean distances against hand-derived values, invariances and SciPy."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csr_matrix, random_array
from scipy.spatial.distance import pdist, squareform

from posgeom.geometry import distances
from posgeom.geometry.distances import euclidean_distances, fisher_rao_distances, hellinger_distances

weights = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 7)),
    elements=st.floats(0, 1e6, allow_subnormal=False),
).filter(lambda x: (x.max(axis=1) > 1e-300).all())


def naive_hellinger(x):
    p = np.asarray(x, dtype=float)
    p = p / p.sum(axis=1, keepdims=True)
    return squareform(pdist(np.sqrt(p)))


def test_hellinger_by_hand():
    # sqrt(.25) = 1/2 and sqrt(.36), sqrt(.64) = .6, .8: every root is rational.
    x = [[1, 0, 0], [9, 16, 0], [0, 0, 5]]
    expected = np.array([[0, np.sqrt(0.16 + 0.64), np.sqrt(2)], [0, 0, np.sqrt(2)], [0, 0, 0]])
    np.testing.assert_allclose(hellinger_distances(x), expected + expected.T, atol=1e-15)


def test_hellinger_reaches_root_two_without_the_factor_one_over_root_two():
    assert hellinger_distances(np.eye(3)).max() == pytest.approx(np.sqrt(2), abs=1e-15)


def test_one_entry_among_30522_changed_by_a_millionth():
    x = np.ones((2, 30_522))
    x[1, 7] *= 1 + 1e-6
    # d^2 ~ (1e-6/2)^2 (1 - 1/V)/V
    expected = 0.5e-6 * np.sqrt((1 - 1 / 30_522) / 30_522)
    D = hellinger_distances(x)
    assert D[0, 1] == pytest.approx(expected, rel=1e-5)
    assert f"{D[0, 1]:.2e}" == "2.86e-09"


def test_equal_rows_give_exactly_zero():
    rng = np.random.default_rng(0)
    row = rng.integers(0, 5, 1000)
    x = np.stack([row, row, 3 * row, rng.integers(0, 5, 1000)])
    D = hellinger_distances(x)
    assert (D[:3, :3] == 0).all() and (D[3, :3] > 0.1).all()


@given(weights)
def test_hellinger_agrees_with_the_definition(x):
    D = hellinger_distances(x)
    np.testing.assert_allclose(D, naive_hellinger(x), atol=1e-12)
    assert (D == D.T).all() and (np.diag(D) == 0).all() and D.max() <= np.sqrt(2)


@given(weights, st.randoms(use_true_random=False))
def test_hellinger_ignores_scale_and_names_of_words(x, random):
    order = list(range(x.shape[1]))
    random.shuffle(order)
    np.testing.assert_allclose(hellinger_distances(7.0 * x[:, order]), hellinger_distances(x), atol=1e-12)


@given(weights.filter(lambda x: len(x) >= 3))
def test_hellinger_obeys_the_triangle_inequality(x):
    D = hellinger_distances(x)
    assert (D[:, None, :] <= D[:, :, None] + D[None, :, :] + 1e-12).all()


def test_sparse_dense_and_counts_objects_agree():
    x = random_array((9, 300), density=0.2, rng=np.random.default_rng(1), format="csr")
    x = csr_matrix(x) + csr_matrix((np.ones(9), (np.arange(9), np.arange(9))), shape=(9, 300))

    class Counts:
        counts = x

    dense = hellinger_distances(x.toarray())
    np.testing.assert_array_equal(hellinger_distances(x), dense)
    np.testing.assert_array_equal(hellinger_distances(Counts()), dense)
    before = x.copy()
    hellinger_distances(x)
    assert (x != before).nnz == 0


def test_close_rows_keep_their_digits_beside_far_ones():
    rng = np.random.default_rng(2)
    base = rng.random(500) + 0.5
    x = np.stack([base, base * (1 + 1e-7 * rng.standard_normal(500)), rng.random(500) ** 8])
    p = (x / x.sum(axis=1, keepdims=True)).astype(np.longdouble)
    exact = float(np.sqrt(((np.sqrt(p[0]) - np.sqrt(p[1])) ** 2).sum()))
    assert hellinger_distances(x)[0, 1] == pytest.approx(exact, rel=1e-6)


def test_no_dense_matrix_is_made_for_512_positions_and_30522_words():
    x = random_array((512, 30_522), density=0.02, rng=np.random.default_rng(3), format="csr")
    tracemalloc.start()
    hellinger_distances(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 512 * 30_522 * 8


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[1, 2], [0, 0], [3, 1]], "position 1 has no weight"),
        (csr_matrix((3, 5)), "position 0 has no weight"),
        ([[1, -2], [1, 1]], "negative weight at position 0, word 1"),
        ([[1, 2], [np.nan, 1]], r"x\[1, 0\] is nan"),
        (csr_matrix([[1.0, 2.0], [np.inf, 1.0]]), "not finite at position 1, word 0"),
        ([1, 2, 3], "2 axes"),
        (coo_array([1.0, 2.0, 3.0]), "2 axes"),
        ([["a", "b"]], "real numbers"),
    ],
)
def test_bad_weights_are_named(x, words):
    with pytest.raises(ValueError, match=words):
        hellinger_distances(x)


def test_fisher_rao_is_the_arc_over_the_chord():
    x = np.array([[1.0, 0], [1, 1], [0, 1]])
    # BC = 1/sqrt(2): arc 2 * pi/4; disjoint: 2 * pi/2.
    np.testing.assert_allclose(
        fisher_rao_distances(x),
        [[0, np.pi / 2, np.pi], [np.pi / 2, 0, np.pi / 2], [np.pi, np.pi / 2, 0]],
        rtol=1e-14,
    )


def test_fisher_rao_never_exceeds_pi():
    assert fisher_rao_distances(np.eye(3)).max() == np.pi


@given(weights)
def test_fisher_rao_agrees_with_its_definition_and_exceeds_hellinger(x):
    p = x / x.sum(axis=1, keepdims=True)
    coefficient = np.clip(np.sqrt(p) @ np.sqrt(p).T, 0, 1)
    np.testing.assert_allclose(np.cos(fisher_rao_distances(x) / 2), coefficient, atol=1e-9)
    assert (fisher_rao_distances(x) >= 2 * hellinger_distances(x) - 1e-12).all()


def test_euclidean_by_hand_and_without_columns():
    np.testing.assert_array_equal(euclidean_distances([[0, 0], [3, 4]]), [[0, 5], [5, 0]])
    np.testing.assert_array_equal(euclidean_distances(np.zeros((3, 0))), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"P\[0, 1\] is nan"):
        euclidean_distances([[0, np.nan]])


def test_blocks_of_the_vocabulary_do_not_change_the_answer(monkeypatch):
    rng = np.random.default_rng(4)
    x = rng.random((5, 400))
    x[1] = x[0] * (1 + 1e-6 * rng.random(400))
    x[2, :200], x[3, 200:] = 0, 0
    whole = hellinger_distances(x)
    monkeypatch.setattr(distances, "BLOCK_ENTRIES", 100)
    np.testing.assert_allclose(hellinger_distances(x), whole, rtol=1e-12)
    assert whole[0, 1] == pytest.approx(naive_hellinger(x)[0, 1], rel=1e-6)


def test_disjoint_rows_never_exceed_root_two():
    x = np.kron(np.eye(40), np.random.default_rng(5).random((1, 37)))
    assert hellinger_distances(x).max() <= np.sqrt(2)
    np.testing.assert_allclose(hellinger_distances(x), np.sqrt(2) * (1 - np.eye(40)), rtol=1e-14)


def zipf_counts(n, vocab_size, texts, seed):
    """Counts with words at every position and words at a few only, close rows among them."""
    rng = np.random.default_rng(seed)
    law = 1.0 / np.arange(1, vocab_size + 1)
    x = rng.multinomial(texts, law / law.sum(), size=n)
    x[n // 2] = x[0]
    x[n // 2, 0] += 1
    return x


@pytest.mark.parametrize("share", [0.0, 0.05, 1.1])
def test_frequent_and_rare_words_go_different_ways_to_one_answer(monkeypatch, share):
    x = zipf_counts(90, 700, 400, seed=3)
    expected = naive_hellinger(x)
    frequent = np.count_nonzero(x, axis=0)[x.any(axis=0)] >= 0.05 * len(x)
    assert frequent.any() and not frequent.all()
    monkeypatch.setattr(distances, "DENSE_SHARE", share)
    # 7 rows at a time: the last block is smaller than the others.
    monkeypatch.setattr(distances, "BLOCK_ENTRIES", 7 * len(x))
    D = hellinger_distances(x)
    np.testing.assert_allclose(D, expected, atol=1e-13)
    assert D[0, 45] == pytest.approx(expected[0, 45], rel=1e-11)
    assert np.array_equal(D, D.T)


def test_a_thousand_positions_take_little_beside_the_result(monkeypatch):
    monkeypatch.setattr(distances, "BLOCK_ENTRIES", 1 << 17)
    x = csr_matrix(zipf_counts(1000, 3000, 200, seed=4))
    hellinger_distances(x[:3])
    tracemalloc.start()
    D = hellinger_distances(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The counts and blocks of 1 MB come on top; two more (n, n) matrices do not.
    assert peak < 2.2 * D.nbytes
