"""The sampling floor against its definition, against enumeration, and on laws that are known."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from scipy.stats import binom, hypergeom, t

from posgeom import noise
from posgeom.corpora import synthetic
from posgeom.counts import phrases
from posgeom.counts.positions import PositionalCounts
from posgeom.geometry.distances import hellinger_distances
from posgeom.geometry.mds import classical_mds, gram_matrix
from posgeom.noise.correction import corrected_distances, corrected_squared_distances, projected_distances
from posgeom.noise.floor import sampling_floor
from posgeom.noise.nulls import centred_gram, null_spectra
from posgeom.noise.rank import signal_rank, split_half_squared_distances
from posgeom.noise.resampling import jackknife

ALLOCATIONS = ("binomial", "hypergeometric")


def zipf(vocab_size, shift=2.7):
    weights = 1.0 / (np.arange(vocab_size) + shift)
    return weights / weights.sum()


def mean_root(c, first, second, allocation):
    """h(c) as it is defined, from SciPy's probabilities."""
    k = np.arange(c + 1)
    if allocation == "binomial":
        probability = binom.pmf(k, c, first / (first + second))
    else:
        probability = hypergeom.pmf(k, first + second, c, first)
    return float(probability @ np.sqrt(k * (c - k)))


def floor_by_definition(counts, allocation):
    counts = np.asarray(counts)
    totals, floor = counts.sum(axis=1), np.zeros((len(counts), len(counts)))
    for i, j in itertools.permutations(range(len(counts)), 2):
        h = sum(mean_root(c, totals[i], totals[j], allocation) for c in counts[i] + counts[j])
        floor[i, j] = 2.0 - 2.0 * h / np.sqrt(totals[i] * totals[j])
    return floor


def tilted_roots(n, directions, sizes, vocab_size=400):
    """Distributions whose roots lie in a space of ``len(sizes)`` directions around one centre."""
    root = np.sqrt(zipf(vocab_size))
    places = np.linspace(-1, 1, n)[:, None] ** np.arange(1, len(sizes) + 1)
    moves = np.zeros((len(sizes), vocab_size))
    for k in range(len(sizes)):
        words = np.arange(2 * k * directions, 2 * (k + 1) * directions)
        moves[k, words] = np.where(np.arange(len(words)) % 2, -1.0, 1.0) * root[words]
    roots = root + (places * np.asarray(sizes)) @ moves
    return roots**2 / (roots**2).sum(axis=1, keepdims=True)


# --- the definition -------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("shape, most", [((4, 6), 4), ((3, 8), 60)])
def test_floor_is_its_definition(allocation, shape, most):
    counts = np.random.default_rng(0).integers(0, most, shape)
    counts[:, 0] += 1
    np.testing.assert_allclose(
        sampling_floor(counts, allocation=allocation), floor_by_definition(counts, allocation), atol=1e-13
    )


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_floor_of_two_tokens_by_hand(allocation):
    # One token each, two words: c = (1, 1), and sqrt(H (1 - H)) is 0 either way.
    assert sampling_floor([[1, 0], [0, 1]], allocation=allocation)[0, 1] == pytest.approx(2.0)
    # Two tokens each, one word: h(4) under the binomial law is (2 * 4 sqrt(3) + 6 * 2) / 16.
    by_hand = 2 - (8 * np.sqrt(3) + 12) / 16 if allocation == "binomial" else 0.0
    assert sampling_floor([[2], [2]], allocation=allocation)[0, 1] == pytest.approx(by_hand, abs=1e-15)


def test_even_counts_above_600_have_the_closed_form():
    counts = np.array([[700, 300], [400, 600]])
    h = (1100 / 2 - 1 / 4) + (900 / 2 - 1 / 4)
    floor = sampling_floor(counts)[0, 1]
    assert floor == pytest.approx(2 - 2 * h / 1000, abs=1e-15)
    assert floor == pytest.approx(floor_by_definition(counts, "binomial")[0, 1], abs=2e-6)


def test_frequent_words_without_replacement():
    # 1100 of 2000 tokens are one word: the share of it that either position has varies by 900/1999 less.
    counts = np.array([[700, 300], [400, 600]])
    h = (1100 / 2 - 900 / 1999 / 4) + (900 / 2 - 1100 / 1999 / 4)
    floor = sampling_floor(counts, allocation="hypergeometric")[0, 1]
    assert floor == pytest.approx(2 - 2 * h / 1000, abs=1e-15)
    assert floor == pytest.approx(floor_by_definition(counts, "hypergeometric")[0, 1], abs=2e-6)


def test_the_table_reaches_exactly_to_600():
    for c, atol in ((600, 1e-13), (601, 2e-6)):
        counts = np.array([[300, 200], [c - 300, 800 - c]])
        exact = floor_by_definition(counts, "binomial")[0, 1]
        assert sampling_floor(counts)[0, 1] == pytest.approx(exact, abs=atol)
    assert abs(sampling_floor(counts)[0, 1] - exact) > 1e-9


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_very_unequal_totals_are_summed_where_the_closed_form_fails(allocation):
    counts = np.array([[2, 1, 0], [9000, 20000, 3000]])
    expected = floor_by_definition(counts, allocation)[0, 1]
    assert sampling_floor(counts, allocation=allocation)[0, 1] == pytest.approx(expected, abs=1e-11)
    share = 3 / 32003
    spread = np.sqrt(share * (1 - share))
    closed = 2 - 2 * sum(c * spread - 1 / (8 * spread) for c in (9002, 20001, 3000)) / np.sqrt(3 * 32000)
    assert abs(closed - expected) > 0.01


def test_many_totals_are_interpolated_to_nine_digits():
    rng = np.random.default_rng(1)
    totals = np.unique(np.geomspace(4, 60_000, 60).astype(int))
    counts = np.stack([rng.multinomial(total, zipf(300)) for total in totals])
    together = sampling_floor(counts)
    pairs = [(0, 1), (0, 58), (3, 40), (20, 21), (30, 55), (57, 58)]
    alone = [sampling_floor(counts[list(pair)])[0, 1] for pair in pairs]
    np.testing.assert_allclose([together[pair] for pair in pairs], alone, atol=1e-9)


def test_corrected_is_plug_in_less_floor():
    counts = np.random.default_rng(2).integers(0, 9, (5, 40))
    expected = hellinger_distances(counts) ** 2 - sampling_floor(counts)
    np.testing.assert_allclose(corrected_squared_distances(counts), expected, atol=1e-14)


# --- no bias --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool, first", [("aabbc", 2), ("aaabcd", 3), ("aaaaab", 1), ("abcdd", 3)])
def test_exactly_unbiased_over_all_allocations(pool, first):
    """Every way to share out the pooled tokens counts alike: the mean is 0 without sampling error."""
    values = []
    for chosen in itertools.combinations(range(len(pool)), first):
        one = "".join(pool[k] for k in chosen)
        other = "".join(pool[k] for k in range(len(pool)) if k not in chosen)
        counts = [[text.count(word) for word in sorted(set(pool))] for text in (one, other)]
        values.append(corrected_squared_distances(counts, allocation="hypergeometric")[0, 1])
    assert np.mean(values) == pytest.approx(0.0, abs=1e-14)
    assert np.ptp(values) > 0.1


def test_binomial_is_exact_for_swaps_within_texts():
    """Two positions, no text with a word twice: swapping within texts shares each word out by fair coins."""
    texts = ["ab", "ca", "ad", "bc", "ea"]
    values = []
    for swaps in itertools.product((False, True), repeat=len(texts)):
        swapped = [text[::-1] if swap else text for text, swap in zip(texts, swaps, strict=True)]
        columns = ["".join(column) for column in zip(*swapped, strict=True)]
        counts = [[column.count(word) for word in "abcde"] for column in columns]
        values.append(corrected_squared_distances(counts)[0, 1])
    assert np.mean(values) == pytest.approx(0.0, abs=1e-14)
    assert np.ptp(values) > 0.1


@pytest.mark.parametrize("totals", [(1000, 1000), (1000, 4000), (20_000, 20_000), (2000, 50_000)])
@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_zero_mean_where_the_laws_are_equal(totals, allocation):
    rng = np.random.default_rng(3)
    mu = zipf(3000)
    values = []
    for _ in range(10):
        counts = np.stack([rng.multinomial(total, mu) for total in totals * 20])
        corrected = corrected_squared_distances(counts, allocation=allocation)
        values.extend(corrected[np.arange(0, 40, 2), np.arange(1, 40, 2)])
    values = np.array(values)
    assert len(values) == 200
    assert abs(values.mean()) < 3 * values.std(ddof=1) / np.sqrt(len(values))
    # The plug-in distance is far from that.
    assert (hellinger_distances(counts)[0, 1] ** 2) > 20 * values.std(ddof=1)


@pytest.mark.parametrize("totals", [(1000, 1000), (1000, 5000), (11_111, 11_111)])
def test_the_two_allocations_agree(totals):
    rng = np.random.default_rng(4)
    counts = np.stack([rng.multinomial(total, zipf(3000)) for total in totals])
    excess = sampling_floor(counts)[0, 1] - sampling_floor(counts, allocation="hypergeometric")[0, 1]
    assert 0 < excess < 5e-4
    assert excess == pytest.approx((1 / totals[0] + 1 / totals[1]) / 4, rel=0.5)


def test_a_known_distance_is_found():
    mu = tilted_roots(2, 30, [0.25])
    truth = hellinger_distances(mu)[0, 1] ** 2
    rng = np.random.default_rng(5)
    values = [
        corrected_squared_distances(np.stack([rng.multinomial(3000, row) for row in mu]))[0, 1]
        for _ in range(20)
    ]
    assert truth > 0.1
    assert np.mean(values) == pytest.approx(truth, rel=0.03)


# --- invariances ----------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    counts=arrays(np.int64, (4, 7), elements=st.integers(0, 30)).filter(lambda x: (x.sum(axis=1) > 0).all()),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_floor_does_not_know_the_names_of_words_or_the_order_of_positions(allocation, counts, seed):
    rng = np.random.default_rng(seed)
    floor = sampling_floor(counts, allocation=allocation)
    assert np.array_equal(floor, floor.T)
    assert not np.diagonal(floor).any()
    assert 0 <= floor.min() and floor.max() <= 2
    words, positions = rng.permutation(7), rng.permutation(4)
    np.testing.assert_allclose(sampling_floor(counts[:, words], allocation=allocation), floor, atol=1e-13)
    elsewhere = sampling_floor(counts[positions], allocation=allocation)
    np.testing.assert_allclose(elsewhere, floor[np.ix_(positions, positions)], atol=1e-13)


def test_every_kind_of_counts_gives_the_same():
    counts = np.random.default_rng(6).integers(0, 5, (4, 50))
    expected = sampling_floor(counts)
    wide = np.concatenate([counts, np.zeros((4, 3), int)], axis=1)
    for same in (counts.astype(float), csr_matrix(counts), PositionalCounts(counts), wide, counts.tolist()):
        assert np.array_equal(sampling_floor(same), expected)


def test_entries_given_in_parts_are_added():
    parts = csr_matrix((np.array([0.5, 1.5, 3.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert np.array_equal(sampling_floor(parts), sampling_floor([[2, 0], [0, 3]]))


def test_arguments_are_left_as_they_were():
    counts = csr_matrix(np.random.default_rng(7).integers(0, 5, (4, 50)))
    before = counts.copy()
    corrected_distances(counts, rank=2)
    assert (counts != before).nnz == 0


def test_a_repeated_corpus_is_taken_for_evidence():
    """The limit that the documentation states: every text twice raises the corrected distance."""
    rng = np.random.default_rng(8)
    counts = np.stack([rng.multinomial(2000, zipf(3000)) for _ in range(2)])
    once, twice = (corrected_squared_distances(k * counts)[0, 1] for k in (1, 2))
    assert abs(once) < 0.05
    assert twice > 0.2


# --- size -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equal", [True, False])
def test_254_positions_of_30522_words_in_seconds_and_little_memory(equal):
    rng = np.random.default_rng(9)
    totals = np.full(254, 11_111) if equal else np.arange(25_000, 25_000 - 254 * 50, -50)
    counts = csr_matrix(np.stack([rng.multinomial(total, zipf(30_522)) for total in totals]))
    tracemalloc.start()
    started = time.process_time()
    floor = sampling_floor(counts)
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6
    assert seconds < 20
    assert sampling_floor(counts[[10, 200]])[0, 1] == pytest.approx(floor[10, 200], abs=1e-9)


# --- corrected distances and ranks ----------------------------------------------------------------------


def test_corrected_distances_without_a_rank_are_roots():
    counts = np.random.default_rng(10).multinomial(300, zipf(200), size=6)
    squared = corrected_squared_distances(counts)
    D = corrected_distances(counts)
    assert (squared < -1e-3).any()
    np.testing.assert_allclose(D**2, np.maximum(squared, 0), atol=1e-14)


def test_corrected_distances_of_a_rank_are_classical_scaling():
    mu = tilted_roots(8, 20, [0.3, 0.2])
    counts = np.round(1e6 * mu).astype(int)
    counts[:, 0] += 1_000_000 - counts.sum(axis=1)
    D = corrected_distances(counts, rank=2)
    assert np.linalg.matrix_rank(gram_matrix(D), tol=1e-6) == 2
    expected = classical_mds(corrected_distances(counts), 2)
    np.testing.assert_allclose(gram_matrix(D), expected.points @ expected.points.T, atol=1e-4)
    assert not corrected_distances(counts, rank=0).any()


def test_no_more_axes_than_positive_eigenvalues():
    counts = np.random.default_rng(20).multinomial(300, zipf(200), size=6)
    squared = corrected_squared_distances(counts)
    eigenvalues, vectors = np.linalg.eigh(centred_gram(squared))
    assert eigenvalues[0] < -1e-3
    positive = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
    for rank in (6, 99):
        np.testing.assert_allclose(gram_matrix(projected_distances(squared, rank)), positive, atol=1e-12)
    assert np.array_equal(projected_distances(squared, 2), corrected_distances(counts, rank=2))
    with pytest.raises(ValueError, match="rank must be at least 0"):
        projected_distances(squared, -1)


@pytest.mark.parametrize("sizes, rank", [([0.35], 1), ([0.35, 0.3], 2), ([], 0)])
def test_ranks_of_laws_with_a_known_rank(sizes, rank):
    mu = tilted_roots(30, 25, sizes) if sizes else np.tile(zipf(400), (30, 1))
    texts = synthetic.independent(mu).sample(2500, 11)
    assert signal_rank(texts, n_null=39, rng=12) == rank
    assert signal_rank(texts, method="split", rng=12) in (rank, rank + 1)
    counts = PositionalCounts.from_ids(texts, vocab_size=400)
    from_texts = corrected_distances(counts, rank="edge", tokens=texts, n_null=39, rng=12)
    from_counts = corrected_distances(counts, rank="edge", n_null=39, rng=12)
    np.testing.assert_allclose(from_texts, corrected_distances(counts, rank=rank), atol=1e-12)
    np.testing.assert_allclose(from_counts, from_texts, atol=1e-12)


def test_rank_by_rank_analysis_counts_noise():
    texts = synthetic.independent(tilted_roots(30, 25, [0.35])).sample(2500, 13)
    counts = PositionalCounts.from_ids(texts, vocab_size=400)
    observed = np.linalg.eigvalsh(centred_gram(corrected_squared_distances(counts)))[::-1]
    null = null_spectra(texts, n_null=39, rng=14)
    assert null.shape == (39, 30)
    assert (np.diff(null, axis=1) <= 0).all()
    assert (observed > np.quantile(null[:, 0], 0.95)).sum() == 1
    assert (observed > np.quantile(null, 0.95, axis=0)).sum() > 5


def test_the_edge_is_exceeded_by_chance_at_its_level():
    law = synthetic.independent(np.tile(zipf(100), (5, 1)))
    false = [signal_rank(law.sample(200, seed), n_null=19, rng=seed) > 0 for seed in range(60)]
    # Binomial(60, 0.05): more than 9 happens twice in a thousand.
    assert sum(false) <= 9


def test_results_repeat_with_the_seed():
    texts = synthetic.independent(tilted_roots(8, 20, [0.2])).sample(400, 15)
    assert np.array_equal(null_spectra(texts, n_null=3, rng=1), null_spectra(texts, n_null=3, rng=1))
    assert not np.array_equal(null_spectra(texts, n_null=3, rng=1), null_spectra(texts, n_null=3, rng=2))
    assert np.array_equal(
        split_half_squared_distances(texts, rng=1), split_half_squared_distances(texts, rng=1)
    )


def test_null_keeps_the_words_of_every_text():
    """Texts of one word each are the same after a shuffle, so their null has no spread at all."""
    texts = np.repeat(np.arange(40)[:, None], 5, axis=1)
    spectra = null_spectra(texts, n_null=4, rng=0)
    np.testing.assert_allclose(spectra, np.tile(spectra[0], (4, 1)), atol=1e-14)


def test_split_halves_by_hand_and_without_bias():
    # Two texts: each half is one of them, and the differences of their roots are multiplied.
    two = split_half_squared_distances(np.array([[0, 1, 1], [0, 1, 2]]), rng=0)
    expected = np.array([[0, 2, 1], [2, 0, 0], [1, 0, 0]])
    np.testing.assert_allclose(two, expected, atol=1e-15)
    law = synthetic.independent(np.tile(zipf(500), (2, 1)))
    values = np.array([split_half_squared_distances(law.sample(400, s), rng=s)[0, 1] for s in range(200)])
    assert abs(values.mean()) < 3 * values.std(ddof=1) / np.sqrt(200)


def test_centred_gram_agrees_with_that_of_distances():
    D = hellinger_distances(np.random.default_rng(16).integers(1, 9, (6, 20)))
    np.testing.assert_allclose(centred_gram(D**2), gram_matrix(D), atol=1e-14)
    np.testing.assert_allclose(centred_gram(-(D**2)), -gram_matrix(D), atol=1e-14)


# --- jackknife ------------------------------------------------------------------------------------------


def test_jackknife_of_a_mean_is_the_textbook_error():
    docs = np.random.default_rng(17).normal(size=(24, 3))
    result = jackknife(lambda part: part[:, 0].mean(), docs, groups=24)
    assert result.estimate == docs[:, 0].mean()
    assert result.standard_error == pytest.approx(docs[:, 0].std(ddof=1) / np.sqrt(24))
    reach = t.ppf(0.975, 23) * result.standard_error
    assert (result.low, result.high) == pytest.approx((result.estimate - reach, result.estimate + reach))


def test_jackknife_over_groups_is_that_of_their_means():
    docs = np.random.default_rng(18).normal(size=(40, 2))
    means = np.array([docs[k::8].mean(axis=0) for k in range(8)])
    result = jackknife(lambda part: part.mean(axis=0), docs, groups=8)
    np.testing.assert_allclose(result.standard_error, means.std(axis=0, ddof=1) / np.sqrt(8))
    assert result.replicates.shape == (8, 2)
    np.testing.assert_allclose(result.replicates[3], np.delete(docs, np.s_[3::8], axis=0).mean(axis=0))


def test_jackknife_of_uneven_groups():
    """Delete-m_j pseudo-values of a mean are the group means, weighted by 1 / (r - 1)."""
    docs = np.random.default_rng(19).normal(size=(11, 1))
    labels = np.array(list("aabbbccccdd"))
    result = jackknife(lambda part: part.mean(), docs, labels)
    groups = [docs[labels == label].mean() for label in "abcd"]
    inverse = [11 / (labels == label).sum() for label in "abcd"]
    expected = np.mean([(g - docs.mean()) ** 2 / (r - 1) for g, r in zip(groups, inverse, strict=True)])
    assert result.standard_error == pytest.approx(np.sqrt(expected))


def test_jackknife_of_a_corrected_distance_covers_the_spread_of_fresh_corpora():
    law = synthetic.independent(tilted_roots(2, 30, [0.2]))

    def score(part):
        return corrected_squared_distances(PositionalCounts.from_ids(part, vocab_size=400))[0, 1]

    spread = np.std([score(law.sample(1600, seed)) for seed in range(50)], ddof=1)
    errors = [jackknife(score, law.sample(1600, 100 + seed), groups=8).standard_error for seed in range(12)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.35)


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counts, words",
    [
        ([[1, 2], [0, 0]], "position 1 has no tokens"),
        ([[0.5, 0.5], [0.2, 0.8]], "position 0, word 0.*not distributions"),
        ([[1, 2], [3, -1]], "-1 at position 1, word 1"),
        (csr_matrix([[1, 2], [3, -1]]), "-1 at position 1, word 1"),
        ([[1.0, np.nan]], "counts\\[0, 1\\]"),
        ([1, 2, 3], "counts must be a matrix"),
        (np.zeros((0, 3)), "counts has no rows"),
        ([["a", "b"]], "counts must hold real numbers"),
    ],
)
@pytest.mark.parametrize("function", [sampling_floor, corrected_squared_distances, corrected_distances])
def test_faulty_counts_are_named(function, counts, words):
    with pytest.raises(ValueError, match=words):
        function(counts)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"rank": "best"}, "rank must be None, 'edge' or an integer >= 0, not 'best'"),
        ({"rank": -1}, "rank must be at least 0"),
        ({"rank": 1.5}, "rank must be an integer"),
        ({"allocation": "poisson"}, "allocation must be"),
        ({"rank": "edge", "rng": None}, "rng is None"),
        ({"rank": "edge", "n_null": 0}, "n_null must be at least 1"),
        ({"rank": "edge", "tokens": np.array([[0, 1], [1, 0]])}, "tokens are not the texts behind counts"),
        ({"rank": "edge", "tokens": [0, 1]}, "tokens must be an \\(M, n\\) array"),
    ],
)
def test_faulty_ways_to_correct_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        corrected_distances([[3, 1], [2, 2]], **arguments)


@pytest.mark.parametrize(
    "tokens, words",
    [
        ([[0.5, 1.0], [1.0, 2.0]], "tokens must be an"),
        ([0, 1, 2], "tokens must be an"),
        ([[0, 1, 2]], "at least 2 texts"),
        ([[0], [1]], "at least 2 texts and 2 positions"),
        ([[0, 1], [2, -5]], "tokens\\[1, 1\\] is -5"),
    ],
)
def test_faulty_tokens_are_named(tokens, words):
    with pytest.raises(ValueError, match=words):
        signal_rank(tokens, rng=0)
    with pytest.raises(ValueError, match=words):
        split_half_squared_distances(tokens, rng=0)


def test_faulty_method_and_missing_rng_are_named():
    texts = np.array([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(ValueError, match="method must be 'edge' or 'split', not 'horn'"):
        signal_rank(texts, method="horn", rng=0)
    for method in ("edge", "split"):
        with pytest.raises(ValueError, match="rng is None"):
            signal_rank(texts, method=method, rng=None)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"groups": 1}, "groups must be at least 2"),
        ({"groups": 7}, "groups is 7, but there are only 6 documents"),
        ({"groups": [0, 1]}, "groups must be a number or 6 labels"),
        ({"groups": np.zeros(6)}, "groups has the one label"),
        ({"level": 1.0}, "level must be in"),
        ({"score": lambda part: np.nan}, "score is not finite for all documents"),
        ({"score": lambda part: part[:, 0]}, "another shape"),
    ],
)
def test_faulty_jackknives_are_named(arguments, words):
    arguments = {"score": np.mean, "docs": np.arange(12).reshape(6, 2), "groups": 3} | arguments
    with pytest.raises(ValueError, match=words):
        jackknife(**arguments)


def test_centred_gram_refuses_what_is_not_symmetric():
    with pytest.raises(ValueError, match="squared must be symmetric"):
        centred_gram(np.array([[0.0, 1.0], [2.0, 0.0]]))


def test_choice_of_texts_is_that_of_phrases():
    assert noise.balanced is phrases.balanced
    assert noise.maximal_phrases is phrases.maximal_phrases
