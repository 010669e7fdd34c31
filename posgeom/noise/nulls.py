"""Spectra of corpora in which position means nothing, and the edge below which an eigenvalue is noise.

The tokens of each text are shuffled, or words dealt out over positions; the eigenvalues of the corrected Gram
matrix of such a corpus show what chance alone can make.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from posgeom import checks
from posgeom.counts.positions import shuffled
from posgeom.noise.floor import Tables, table_sums

__all__ = [
    "null_spectra",
    "centred_gram",
]

EDGE_LEVEL = 0.95


def null_spectra(tokens: np.ndarray, *, n_null: int = 99, rng: np.random.Generator | int) -> np.ndarray:
    """Eigenvalues of the Gram matrix of ``D2c`` after shuffling the tokens within each text.

    ``(n_null, n)``, descending in each row: what corrected distances look like where order means nothing.
    ``tokens`` and errors as for :func:`signal_rank`.
    """
    tokens, vocab_size = relabel(tokens)
    tables = Tables(np.full(tokens.shape[1], len(tokens)), "binomial")
    return spectra_of(within_texts(tokens, vocab_size), tables, n_null, rng)


def centred_gram(squared: np.ndarray) -> np.ndarray:
    """``-1/2 J S J`` for a symmetric ``(n, n)`` matrix S of squared dissimilarities that may be negative.

    ``posgeom.geometry.mds.gram_matrix`` is the same for dissimilarities, which have no negative squares.
    """
    squared = checks.finite_matrix(squared, "squared")
    if squared.shape[0] != squared.shape[1] or not np.allclose(squared, squared.T, rtol=0, atol=1e-8):
        raise ValueError(
            f"squared must be symmetric, (n, n), and this matrix of shape {squared.shape} is not"
        )
    row = squared.mean(axis=0)
    return -0.5 * (squared - row[:, None] - row[None, :] + row.mean())


def spectra_of(
    draw: Callable[[np.random.Generator], np.ndarray],
    tables: Tables,
    n_null: int,
    rng: np.random.Generator | int,
) -> np.ndarray:
    n_null = checks.positive_int(n_null, "n_null")
    rng = checks.generator(rng)
    return np.stack([spectrum_of(draw(rng), tables) for _ in range(n_null)])


def spectrum_of(words: np.ndarray, tables: Tables) -> np.ndarray:
    """Eigenvalues of the Gram matrix of ``D2c``, descending, ``(n,)``.

    The distances are taken in the form ``h(c) - sqrt(X_i X_j)``: for an eigenvalue its digits suffice.
    """
    roots = np.sqrt(words, dtype=np.float64)
    sums = table_sums(words, tables) - roots.T @ roots
    squared = 2.0 * sums / np.sqrt(np.outer(tables.totals, tables.totals))
    np.fill_diagonal(squared, 0.0)
    return np.linalg.eigvalsh(centred_gram(squared))[::-1]


def edge_of(largest: np.ndarray) -> float:
    """The 95th percentile as an order statistic: the smallest draw that enough draws do not exceed."""
    return float(np.quantile(largest, EDGE_LEVEL, method="higher"))


def within_texts(tokens: np.ndarray, vocab_size: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Draws the counts of texts whose tokens have changed places within each text."""
    return lambda rng: count_matrix(shuffled(tokens, rng), vocab_size)


def over_positions(words: np.ndarray) -> Callable[[np.random.Generator], np.ndarray]:
    """Draws counts with these totals of words and of positions: all tokens change places, texts forgotten."""
    vocab_size, n = words.shape
    tokens = np.repeat(np.arange(vocab_size, dtype=np.int32), words.sum(axis=1))
    ends = np.cumsum(words.sum(axis=0))[:-1]

    def draw(rng: np.random.Generator) -> np.ndarray:
        parts = np.split(rng.permutation(tokens), ends)
        return np.stack([np.bincount(part, minlength=vocab_size) for part in parts], axis=1).astype(np.int32)

    return draw


def relabel(tokens: np.ndarray) -> tuple[np.ndarray, int]:
    """Texts with the words in use numbered from 0, and how many words those are."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(
            f"tokens must be an (M, n) array of token ids, not {tokens.dtype} of shape {tokens.shape}; "
            "balanced(ids, n) makes one from texts of different lengths"
        )
    texts, n = tokens.shape
    if texts < 2 or n < 2:
        raise ValueError(f"tokens has shape {tokens.shape}: it needs at least 2 texts and 2 positions")
    if tokens.min() < 0:
        text, position = np.argwhere(tokens < 0)[0]
        raise ValueError(f"tokens[{text}, {position}] is {tokens[text, position]}: a token id is at least 0")
    found, relabelled = np.unique(tokens, return_inverse=True)
    return relabelled.reshape(tokens.shape).astype(np.int32), len(found)


def count_matrix(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """``(vocab_size, n)`` int32 counts of ``(M, n)`` texts."""
    n = tokens.shape[1]
    words = np.empty((n, vocab_size), np.int32)
    for position in range(n):
        words[position] = np.bincount(tokens[:, position], minlength=vocab_size)
    return np.ascontiguousarray(words.T)
