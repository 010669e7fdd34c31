"""The factored Gram matrix against the dense one, and the diagnosis of many positions against that of few."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import binom

from posgeom.diagnosis import measures as diagnostic
from posgeom.diagnosis.measures import diagnose
from posgeom.encodings.formulas import power_line
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.laws.power_line import fit_power_line
from posgeom.noise.correction import corrected_squared_distances
from posgeom.noise.factored import FactoredGram, cross_gram, excess, leading, leading_above, shared
from posgeom.noise.nulls import centred_gram


def drifting_texts(texts, n, vocab_size, seed):
    """``(texts, n)`` ids of a Zipf law whose words change places near the beginning."""
    rng = np.random.default_rng(seed)
    law = 1 / (np.arange(vocab_size) + 2.7)
    ids = rng.choice(vocab_size, size=(texts, n), p=law / law.sum())
    changed = rng.random((texts, n)) < 0.8 / (1 + np.arange(n) / 8)
    return np.where(changed, (7 * ids + 3) % vocab_size, ids)


def drifting_counts(texts, n, vocab_size, seed):
    ids = drifting_texts(texts, n, vocab_size, seed)
    return csr_matrix(np.stack([np.bincount(ids[:, i], minlength=vocab_size) for i in range(n)]))


# --- the functions --------------------------------------------------------------------------------------


def test_excess_by_hand_and_by_its_definition():
    # One token: the root of 0. Two: 1 - 1/2. Four: 2 less (8 sqrt(3) + 12) / 16.
    by_hand = [0, 1 / 2, 1 / 2, 3 / 2 - 3 * np.sqrt(2) / 4, 2 - (8 * np.sqrt(3) + 12) / 16]
    np.testing.assert_allclose(excess(np.arange(5)), by_hand, atol=1e-15)
    for c in (17, 250, 600, 601, 1500, 4000):
        k = np.arange(c + 1)
        h = binom.pmf(k, c, 0.5) @ np.sqrt(k * (c - k))
        # The difference from c/2 loses digits, the function under test does not.
        assert excess(np.array(c)) == pytest.approx(c / 2 - h, abs=1e-12 * c)
    assert abs(excess(np.array(601)) - excess(np.array(600))) < 1e-6


def test_what_two_counts_share_is_nothing_where_one_is_zero():
    counts = np.arange(50)
    assert np.abs(shared(counts, np.array([0]))).max() == 0
    assert shared(np.array([1]), np.array([1]))[0, 0] == 0.5


# Above counts of 300 sampling_floor takes its closed form, and this has more digits.
@pytest.mark.parametrize("texts, atol", [(60, 1e-13), (1000, 1e-12), (8000, 5e-7)])
def test_factored_gram_is_the_dense_one(texts, atol):
    counts = drifting_counts(texts, 70, 300, seed=texts)
    assert (counts.max() > 300) == (texts == 8000)
    squared = corrected_squared_distances(counts)
    gram, dense = FactoredGram(counts), centred_gram(squared)
    np.testing.assert_allclose(gram @ np.eye(70), dense, atol=atol)
    pairs = np.triu_indices(70, 1)
    assert gram.mean_corrected == pytest.approx(squared[pairs].mean(), abs=10 * atol)
    plug_in = hellinger_distances(counts)[pairs] ** 2
    assert gram.mean_plug_in == pytest.approx(plug_in.mean(), rel=1e-12)


def test_leading_eigenvalues_are_those_of_the_full_spectrum():
    counts = drifting_counts(200, 400, 300, seed=1)
    gram = FactoredGram(counts)
    full = np.linalg.eigvalsh(centred_gram(corrected_squared_distances(counts)))[::-1]
    values, vectors = leading(gram, 6)
    np.testing.assert_allclose(values, full[:6], rtol=1e-10)
    np.testing.assert_allclose(gram @ vectors, vectors * values, atol=1e-8)
    assert leading(gram, 1, tol=1e-6)[0][0] == pytest.approx(full[0], rel=1e-9)
    # From a tenth of the spectrum on it is decomposed in full.
    np.testing.assert_allclose(leading(gram, 90)[0], full[:90], atol=1e-11)
    level = (full[20] + full[21]) / 2
    above = leading_above(gram, level, 5)[0]
    assert np.count_nonzero(above > level) == 21 and len(above) < 400
    assert len(leading_above(gram, -10.0, 5)[0]) == 400


def test_cross_gram_is_that_of_the_halves():
    halves = [drifting_counts(100, 30, 50, seed=seed).sqrt() / 10 for seed in (2, 3)]
    centred = [half.toarray() - half.toarray().mean(axis=0) for half in halves]
    product = centred[0] @ centred[1].T
    np.testing.assert_allclose(cross_gram(*halves) @ np.eye(30), (product + product.T) / 2, atol=1e-14)


@pytest.mark.parametrize("counts", [[[1, 2], [2, 2]], [[3, 1]], [[0, 0], [0, 0]]])
def test_uneven_totals_are_refused(counts):
    with pytest.raises(ValueError, match="the same number of tokens, at least 1"):
        FactoredGram(np.array(counts))


# --- the diagnosis --------------------------------------------------------------------------------------


def test_a_diagnosis_by_factors_is_the_dense_one(monkeypatch):
    texts = [" ".join(f"w{word}" for word in row) for row in drifting_texts(300, 80, 500, seed=5)]
    dense = diagnose(texts, tokenizer="whitespace", n=80)
    monkeypatch.setattr(diagnostic, "FACTORED_FROM", 3)
    monkeypatch.setattr(diagnostic, "LEADING", 4)
    monkeypatch.setattr("posgeom.laws.power_line.MOMENTS_FROM", 3)
    factored = diagnose(texts, tokenizer="whitespace", n=80)
    assert factored.rank == dense.rank > 0 and factored.split_rank == dense.split_rank > 0
    assert len(factored.eigenvalues) < 80
    np.testing.assert_allclose(
        factored.eigenvalues, dense.eigenvalues[: len(factored.eigenvalues)], rtol=1e-8
    )
    np.testing.assert_allclose(factored.corrected, dense.corrected, atol=1e-8)
    # The same law of shuffles, drawn in another way.
    assert factored.edge == pytest.approx(dense.edge, rel=0.15)
    np.testing.assert_allclose(factored.noise_share, dense.noise_share, atol=1e-9)
    np.testing.assert_allclose(factored.exponent, dense.exponent, atol=1e-5)
    by_name = {row.scheme: row for row in dense.table}
    assert len(factored.table) == len(by_name)
    for row in factored.table:
        other = by_name[row.scheme]
        np.testing.assert_allclose(row.corrected, other.corrected, atol=1e-7)
        assert row.spearman == pytest.approx(other.spearman, abs=1e-7, nan_ok=True)
    assert factored.first_share == pytest.approx(dense.eigenvalues[0] / dense.eigenvalues.sum(), rel=1e-8)


def test_texts_without_order_have_no_rank_by_factors(monkeypatch):
    monkeypatch.setattr(diagnostic, "FACTORED_FROM", 3)
    ids = np.random.default_rng(6).integers(0, 40, (200, 50))
    found = diagnose([" ".join(map(str, row)) for row in ids], tokenizer="whitespace", n=50)
    assert (
        found.rank == 0 and not found.corrected.any() and found.noise_share.value == pytest.approx(1, abs=0.1)
    )


def test_distances_of_many_positions_stay_out_of_the_json(monkeypatch):
    texts = [" ".join(f"w{word}" for word in row) for row in drifting_texts(30, 12, 50, seed=7)]
    assert len(diagnose(texts, tokenizer="whitespace", n=12).as_dict()["distances"]["plug_in"]) == 12
    monkeypatch.setattr(diagnostic, "DISTANCES_UP_TO", 11)
    assert diagnose(texts, tokenizer="whitespace", n=12).as_dict()["distances"] is None


def test_a_power_line_by_moments_is_the_one_by_pairs(monkeypatch):
    rng = np.random.default_rng(8)
    D = power_line(60, -0.4) + 0.1 * euclidean_distances(rng.standard_normal((60, 3)))
    for first in (0, 5):
        pairs = fit_power_line(D, first=first)
        monkeypatch.setattr("posgeom.laws.power_line.MOMENTS_FROM", 3)
        moments = fit_power_line(D, first=first)
        monkeypatch.undo()
        assert moments.exponent == pytest.approx(pairs.exponent, abs=1e-6)
        assert moments.scale == pytest.approx(pairs.scale, rel=1e-5)
        assert moments.stress == pytest.approx(pairs.stress, abs=1e-13)
