"""Distances with the sampling floor subtracted, and what of them is signal.

Squares less their floor may be negative; projected on the axes above the noise they are the distances of
points.
"""

from __future__ import annotations

import numpy as np

from posgeom import checks
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.noise.floor import Tables, counted_words, floor_of
from posgeom.noise.nulls import (
    centred_gram,
    count_matrix,
    edge_of,
    over_positions,
    relabel,
    spectra_of,
    within_texts,
)

__all__ = [
    "corrected_squared_distances",
    "corrected_distances",
    "projected_distances",
]


def corrected_squared_distances(counts, *, allocation: str = "binomial") -> np.ndarray:
    """Squared Hellinger distances less the sampling floor, ``(n, n)``: about 0 where nothing differs.

    .. math:: D^2_{c,ij} = D^2_{ij} - F_{ij}
              = \\frac{2}{\\sqrt{N_i N_j}} \\sum_v \\bigl( h(c_v) - \\sqrt{X_{iv} X_{jv}} \\bigr)

    Symmetric with zero diagonal, in [-2, 2]: an estimate of zero is below it about as often as above. Its
    mean is 0 when the tokens of i and j are exchangeable (exactly so with ``allocation="hypergeometric"`` and
    independent tokens); it is not exactly unbiased where the two laws differ, does not see differences
    between words too rare to be drawn twice, and takes repeated texts for evidence: deduplicate first.
    Arguments and errors as for :func:`sampling_floor`.
    """
    words, totals = counted_words(counts)
    squared = hellinger_distances(words.T) ** 2
    return squared - floor_of(words, Tables(totals, allocation))


def corrected_distances(
    counts,
    *,
    rank: str | int | None = None,
    tokens: np.ndarray | None = None,
    n_null: int = 99,
    rng: np.random.Generator | int = 0,
    allocation: str = "binomial",
) -> np.ndarray:
    """Hellinger distances without their sampling noise, ``(n, n)``, zero diagonal.

    Parameters
    ----------
    counts, allocation
        as for :func:`sampling_floor`.
    rank
        ``None``: ``sqrt(max(D2c, 0))`` pair by pair, noisy but unsmoothed. An int r >= 0: the distances along
        the first r axes of classical scaling of ``D2c`` (as many of them as have a positive eigenvalue), for
        scores such as stress that the noise of single pairs would spoil. ``"edge"``: r is the number of
        eigenvalues above the edge of the noise, as in :func:`signal_rank`.
    tokens
        for ``"edge"``: the ``(M, n)`` texts behind ``counts``, whose tokens are shuffled within texts.
        Without them the null shuffles all counted tokens over all positions, the totals kept, for which the
        counts are enough. It does not know which tokens share a text, and so takes the noise for slightly
        larger than it is.
    n_null, rng
        for ``"edge"``: how many shuffles, and what draws them.

    Raises
    ------
    ValueError
        as :func:`sampling_floor`; for a ``rank`` of another kind; for ``tokens`` whose counts are not
        ``counts``.
    """
    if not (rank is None or rank == "edge"):
        if isinstance(rank, str):
            raise ValueError(f"rank must be None, 'edge' or an integer >= 0, not {rank!r}")
        rank = checks.positive_int(rank, "rank", minimum=0)
    words, totals = counted_words(counts)
    squared = corrected_squared_distances(counts, allocation=allocation)
    if rank is None:
        return np.sqrt(np.maximum(squared, 0.0))
    if rank == "edge":
        counted = words.toarray()
        draw = over_positions(counted) if tokens is None else within_texts(*_matching(tokens, counted))
        edge = edge_of(spectra_of(draw, Tables(totals, allocation), n_null, rng)[:, 0])
        rank = int(np.count_nonzero(np.linalg.eigvalsh(centred_gram(squared)) > edge))
    return projected_distances(squared, rank)


def projected_distances(squared: np.ndarray, rank: int) -> np.ndarray:
    """Distances along the first ``rank`` axes of classical scaling of squared dissimilarities, ``(n, n)``.

    ``squared`` is ``(n, n)`` symmetric and may be negative, as :func:`corrected_squared_distances` are: its
    positive eigenvalues alone make axes, so at most that many are used. Rank 0 gives zeros. ``ValueError``
    for another matrix, or a ``rank`` that is no integer >= 0.
    """
    rank = checks.positive_int(rank, "rank", minimum=0)
    eigenvalues, vectors = np.linalg.eigh(centred_gram(squared))
    kept = np.flatnonzero(eigenvalues > 0)[::-1][:rank]
    if not kept.size:
        return np.zeros(vectors.shape)
    return euclidean_distances(vectors[:, kept] * np.sqrt(eigenvalues[kept]))


def _matching(tokens: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, int]:
    """Relabelled ``tokens``, after a check that they are the texts that were counted."""
    relabelled, vocab_size = relabel(tokens)
    if not np.array_equal(count_matrix(relabelled, vocab_size), words):
        raise ValueError(
            "tokens are not the texts behind counts: counting them gives other counts; pass the (M, n) "
            "array that was counted, or leave tokens out"
        )
    return relabelled, vocab_size
