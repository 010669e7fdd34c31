"""Corpora whose positional law is known, so that an estimate can be held against the truth.

Each function returns a :class:`Law`: the true ``(n, V)`` distributions and a sampler of texts. It unpacks,
``distributions, sample = smooth(...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from posgeom import checks

__all__ = ["Law", "blocks", "independent", "smooth", "stationary", "without_order"]


class Law(NamedTuple):
    """``distributions``: ``(n, V)``, rows sum to 1. ``sample(n_texts, rng)``: ``(n_texts, n)`` token ids,
    drawn from them.
    """

    distributions: np.ndarray
    sample: Callable[[int, np.random.Generator | int], np.ndarray]


def independent(distributions: np.ndarray) -> Law:
    """The law of texts whose tokens are independent, the one at position i from row i of ``distributions``
    ``(n, V)``.

    ``ValueError`` unless the entries are finite and non-negative and each row sums to 1 (to 1e-9).
    """
    distributions = checks.finite_matrix(distributions, "distributions")
    bad = (distributions < 0).any(axis=1) | (np.abs(distributions.sum(axis=1) - 1) > 1e-9)
    if bad.any() or distributions.size == 0:
        where = f"row {int(np.flatnonzero(bad)[0])}" if bad.any() else "the empty matrix"
        raise ValueError(f"distributions: {where} is no distribution; entries must be >= 0 and sum to 1")
    cumulative = np.cumsum(distributions, axis=1)
    cumulative /= cumulative[:, -1:]

    def sample(n_texts: int, rng: np.random.Generator | int) -> np.ndarray:
        n_texts = checks.positive_int(n_texts, "n_texts")
        uniform = checks.generator(rng).random((len(cumulative), n_texts))
        return np.stack(
            [np.searchsorted(row, u, side="right") for row, u in zip(cumulative, uniform, strict=True)],
            axis=1,
        )

    return Law(distributions, sample)


def stationary(n: int, *, window: int, circular: bool = False) -> Law:
    """A law whose *distances* are stationary: ``d_H(i, j)`` depends on the lag only.

    Position i draws evenly from the ``window`` words ``i, ..., i + window - 1`` of a long list, so that
    positions at lag l share ``window - l`` of them and ``d_H^2 = 2 min(l, window) / window``: linear in the
    lag up to the window. With ``circular`` the list is a ring of n words, and the distance matrix is
    circulant.

    The law has ``n + window - 1`` words (n, if circular). ``ValueError`` for a ``window`` below 1, or above n
    on the ring.
    """
    n, window = checks.positive_int(n, "n"), checks.positive_int(window, "window")
    if circular and window > n:
        raise ValueError(f"window = {window} does not fit on a ring of n = {n} words")
    words = np.arange(n)[:, None] + np.arange(window)[None, :]
    distributions = np.zeros((n, n if circular else n + window - 1))
    distributions[np.arange(n)[:, None], words % distributions.shape[1]] = 1.0 / window
    return independent(distributions)


def smooth(
    n: int, vocab_size: int, *, length_scale: float, strength: float = 1.0, rng: np.random.Generator | int
) -> Law:
    """A law that drifts smoothly: softmax of independent Gaussian processes over the positions, one a word.

    Parameters
    ----------
    n, vocab_size
        positions and words, >= 1.
    length_scale
        of the squared-exponential kernel ``exp(-(i - j)^2 / (2 length_scale^2))``, in positions, > 0.
    strength
        standard deviation of the logits, >= 0; at 0 every position is uniform.
    rng
        draws the processes.
    """
    n, vocab_size = checks.positive_int(n, "n"), checks.positive_int(vocab_size, "vocab_size")
    if not (np.isfinite(length_scale) and length_scale > 0):
        raise ValueError(f"length_scale must be a finite number > 0, not {length_scale!r}")
    if not (np.isfinite(strength) and strength >= 0):
        raise ValueError(f"strength must be a finite number >= 0, not {strength!r}")
    lag = np.arange(n)[:, None] - np.arange(n)[None, :]
    eigenvalues, vectors = np.linalg.eigh(np.exp(-0.5 * (lag / length_scale) ** 2))
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    logits = strength * (root @ checks.generator(rng).standard_normal((n, vocab_size)))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return independent(weights / weights.sum(axis=1, keepdims=True))


def blocks(
    n: int, vocab_size: int, *, n_blocks: int, concentration: float = 1.0, rng: np.random.Generator | int
) -> Law:
    """A law in sections: ``n_blocks`` runs of positions, as even as possible, that share one distribution
    each.

    The distributions are drawn from a symmetric Dirichlet law with parameter ``concentration`` > 0: small
    values give sections with few words in common. Within a block every distance is exactly 0, so the Gram
    matrix has rank at most ``n_blocks - 1``.
    """
    n, vocab_size = checks.positive_int(n, "n"), checks.positive_int(vocab_size, "vocab_size")
    n_blocks = checks.positive_int(n_blocks, "n_blocks")
    if n_blocks > n:
        raise ValueError(f"n_blocks = {n_blocks} is more than the n = {n} positions")
    if not (np.isfinite(concentration) and concentration > 0):
        raise ValueError(f"concentration must be a finite number > 0, not {concentration!r}")
    sections = checks.generator(rng).dirichlet(np.full(vocab_size, concentration), size=n_blocks)
    return independent(sections[np.arange(n) * n_blocks // n])


def without_order(counts, rng: np.random.Generator | int) -> csr_matrix:
    """Counts of a corpus as large as ``counts`` at every position, but with one law for all positions.

    Row i is a multinomial draw of as many tokens as row i of ``counts`` has, from the words of all positions
    together. Whatever geometry such counts show is sampling noise.

    Parameters
    ----------
    counts
        ``(n, V)`` whole numbers >= 0, CSR or dense, or an object with such a matrix in ``.counts``.
    rng
        draws the tokens.

    Returns
    -------
    ``(n, V)`` CSR, int64. ``ValueError`` for counts that are no whole numbers, or hold no token.
    """
    counts = csr_matrix(getattr(counts, "counts", counts))
    if not np.array_equal(counts.data, np.floor(counts.data)) or (counts.data < 0).any():
        raise ValueError("counts must be whole numbers >= 0: tokens are drawn, not weights")
    totals = np.asarray(counts.sum(axis=1)).ravel().astype(np.int64)
    pooled = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
    words = np.flatnonzero(pooled)
    if not words.size:
        raise ValueError("counts hold no token, so there is no law to draw from")
    drawn = checks.generator(rng).multinomial(totals, pooled[words] / pooled[words].sum())
    rows, columns = np.nonzero(drawn)
    return csr_matrix((drawn[rows, columns], (rows, words[columns])), shape=counts.shape)
