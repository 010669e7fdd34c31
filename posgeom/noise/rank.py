"""How many directions of a corpus's geometry are more than noise."""

from __future__ import annotations

import numpy as np

from posgeom import checks
from posgeom.noise.floor import Tables
from posgeom.noise.nulls import count_matrix, edge_of, relabel, spectra_of, spectrum_of, within_texts

__all__ = [
    "signal_rank",
    "split_half_squared_distances",
]


def signal_rank(
    tokens: np.ndarray, *, method: str = "edge", n_null: int = 99, rng: np.random.Generator | int
) -> int:
    """In how many directions the positional laws differ by more than noise, in 0 .. n - 1.

    Parameters
    ----------
    tokens
        ``(M, n)`` token ids >= 0, one row a text (:func:`balanced`).
    method
        ``"edge"``: the eigenvalues of the Gram matrix of ``D2c`` above the 95th percentile, over ``n_null``
        shuffles of the tokens within each text, of the *largest* eigenvalue. ``"split"``, without
        shuffles: the texts are halved at random, and the eigenvalues of the symmetric part of the halves'
        cross-Gram matrix are counted that exceed the absolute value of its most negative one, since noise has
        no sign there.
    n_null
        for ``"edge"``; the percentile is an order statistic, so 19 shuffles are the fewest that make a
        test of level 0.05 (the largest of them is then the edge).
    rng
        draws the shuffles, or the halves.

    Notes
    -----
    Parallel analysis (Horn 1965) compares the k-th eigenvalue with the k-th of the null. Once a real
    direction has taken the first place, the largest eigenvalue of the noise is compared with the second of
    the null, and so on down: much of the noise is counted.

    Raises
    ------
    ValueError
        for tokens of another shape or kind, fewer than 2 positions (or 2 texts, for ``"split"``), another
        ``method``.
    """
    tokens, vocab_size = relabel(tokens)
    if method == "split":
        eigenvalues = np.linalg.eigvalsh(cross_gram_of_halves(tokens, vocab_size, checks.generator(rng)))
        return int(np.count_nonzero(eigenvalues > max(-eigenvalues[0], 0.0)))
    if method != "edge":
        raise ValueError(f"method must be 'edge' or 'split', not {method!r}")
    tables = Tables(np.full(tokens.shape[1], len(tokens)), "binomial")
    null = spectra_of(within_texts(tokens, vocab_size), tables, n_null, rng)
    return int(np.count_nonzero(spectrum_of(count_matrix(tokens, vocab_size), tables) > edge_of(null[:, 0])))


def split_half_squared_distances(tokens: np.ndarray, *, rng: np.random.Generator | int) -> np.ndarray:
    """Squared distances with each factor from its own half of the texts, ``(n, n)``, zero diagonal.

    .. math:: D^2_{s,ij} = \\langle a_i - a_j, \\; b_i - b_j \\rangle, \\qquad
              a_i = \\sqrt{\\hat\\mu_i^{(A)}}, \\quad b_i = \\sqrt{\\hat\\mu_i^{(B)}}

    The errors of the halves are independent, so none is squared: the mean is the squared distance between the
    *mean* roots of M/2 tokens, exactly 0 where two laws are equal. Those mean roots are smaller than the true
    ones for rare words, so it falls short of the truth. ``tokens`` ``(M, n)``, M >= 2; ``rng`` draws
    the halves.
    """
    tokens, vocab_size = relabel(tokens)
    cross = cross_gram_of_halves(tokens, vocab_size, checks.generator(rng))
    own = np.diagonal(cross)
    return own[:, None] + own[None, :] - 2.0 * cross


def cross_gram_of_halves(tokens: np.ndarray, vocab_size: int, rng: np.random.Generator) -> np.ndarray:
    """Symmetric part of the Gram matrix between the centred roots of two random halves of the texts."""
    order = rng.permutation(len(tokens))
    first, second = (
        np.sqrt(count_matrix(half, vocab_size) / len(half)) for half in np.array_split(tokens[order], 2)
    )
    gram = (first - first.mean(axis=1, keepdims=True)).T @ (second - second.mean(axis=1, keepdims=True))
    return (gram + gram.T) / 2.0
