"""Distances between positions: of a corpus (Hellinger, Fisher-Rao) and of an encoding (Euclidean)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, issparse
from scipy.spatial.distance import pdist, squareform

from posgeom import checks

__all__ = ["euclidean_distances", "fisher_rao_distances", "hellinger_distances"]

# Squared distances below this share of the mean squared spread are summed from differences: there the
# Gram form 'a.a + b.b - 2 a.b' would have fewer than about twelve digits left.
CLOSE = 1e-3
BLOCK_ENTRIES = 1 << 20


def hellinger_distances(x) -> np.ndarray:
    """Hellinger distances between the rows of ``x``, without the factor 1/sqrt(2) (the paper's convention).

    .. math:: d_H(i, j) = \\lVert \\sqrt{\\mu_i} - \\sqrt{\\mu_j} \\rVert_2

    Parameters
    ----------
    x
        ``(n, V)`` non-negative weights, dense or sparse, one row a position (each row is normalised to a
        distribution), or an object with such a matrix in ``.counts`` (``PositionalCounts``).

    Returns
    -------
    ``(n, n)`` float64, symmetric, zero diagonal, in [0, sqrt(2)]. Equal distributions are at distance exactly
    0.

    Notes
    -----
    The vocabulary is read in blocks, so no ``(n, V)`` dense array is made. The rows are centred on their mean
    before their Gram matrix is taken, and pairs that are still close are summed from differences: the usual
    ``sqrt(2 - 2 BC)`` loses every digit below 1e-8.

    Raises
    ------
    ValueError
        for a position without any weight (named), a negative, infinite or NaN weight, or another number of
        axes.
    """
    roots = _root_distributions(x)
    squared = _squared_distances(roots)
    return np.sqrt(squared)


def fisher_rao_distances(x) -> np.ndarray:
    """Geodesic distances between the rows of ``x`` on the statistical manifold of all distributions.

    .. math:: d_{FR}(i, j) = 2 \\arccos \\sum_v \\sqrt{\\mu_{iv} \\mu_{jv}} = 4 \\arcsin\\bigl(d_H(i, j) /
    2\\bigr)

    The second form is the one computed: it keeps its digits for close rows. Arguments and errors as for
    :func:`hellinger_distances`. Range [0, pi]: the arc, where the Hellinger distance is the chord.
    """
    return np.minimum(4.0 * np.arcsin(hellinger_distances(x) / 2.0), np.pi)


def euclidean_distances(P: np.ndarray) -> np.ndarray:
    """``E[i, j] = ||p_i - p_j||`` for ``P`` of shape ``(n, d)``; ``(n, n)`` float64 with zero diagonal.

    Differences are taken before they are squared, so equal rows are at distance exactly 0.
    ``ValueError`` when ``P`` is no matrix of finite numbers.
    """
    return squareform(pdist(checks.points(P)), checks=False)


def _root_distributions(x) -> csr_matrix:
    """``sqrt(x / row sums)`` as CSR float64, columns that no row uses left out."""
    weights = getattr(x, "counts", x)
    if issparse(weights):
        if weights.ndim != 2:
            raise ValueError(f"x must be a matrix (2 axes), not an array of shape {weights.shape}")
        weights = csr_matrix(weights, dtype=np.float64, copy=True)
        weights.sum_duplicates()
    else:
        weights = csr_matrix(checks.finite_matrix(weights, "x"))
    if not np.isfinite(weights.data).all():
        raise ValueError(
            f"x holds a weight not finite at {_first_position(weights, ~np.isfinite(weights.data))}"
        )
    if (weights.data < 0).any():
        raise ValueError(f"x holds a negative weight at {_first_position(weights, weights.data < 0)}")
    if weights.shape[0] == 0:
        raise ValueError("x has no rows: it needs one row for each position")
    # Dividing by the largest weight first keeps the sums of very large or very small weights finite.
    largest = (
        np.asarray(weights.max(axis=1).todense()).ravel() if weights.shape[1] else np.zeros(weights.shape[0])
    )
    empty = np.flatnonzero(largest == 0)
    if empty.size:
        raise ValueError(
            f"position {empty[0]} has no weight, so it has no distribution: {empty.size} of "
            f"{weights.shape[0]} positions are empty; use fewer positions, or texts that reach them"
        )
    lengths = np.diff(weights.indptr)
    weights.data /= np.repeat(largest, lengths)
    totals = np.asarray(weights.sum(axis=1)).ravel()
    weights.data = np.sqrt(weights.data / np.repeat(totals, lengths))
    return weights[:, np.unique(weights.indices)]


def _first_position(weights: csr_matrix, bad: np.ndarray) -> str:
    where = int(np.flatnonzero(bad)[0])
    position = int(np.searchsorted(weights.indptr, where, side="right")) - 1
    return f"position {position}, word {weights.indices[where]}"


def _blocks(roots: csr_matrix):
    """Dense ``(n, block)`` pieces of ``roots``, one after the other."""
    columns: csc_matrix = roots.tocsc()
    width = max(1, BLOCK_ENTRIES // roots.shape[0])
    for start in range(0, roots.shape[1], width):
        yield columns[:, start : start + width].toarray()


def _squared_distances(roots: csr_matrix) -> np.ndarray:
    n = roots.shape[0]
    gram = np.zeros((n, n))
    for block in _blocks(roots):
        block -= block.mean(axis=0)
        gram += block @ block.T
    norms = np.diagonal(gram)
    squared = norms[:, None] + norms[None, :] - 2.0 * gram
    close = np.triu(squared <= CLOSE * max(norms.mean(), np.finfo(float).tiny), 1)
    if close.any():
        i, j = np.nonzero(close)
        squared[i, j] = _from_differences(roots, i, j)
    squared = np.triu(np.clip(squared, 0.0, 2.0), 1)
    return squared + squared.T


def _from_differences(roots: csr_matrix, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """``sum_v (roots[i, v] - roots[j, v])**2`` for each pair, the difference taken first."""
    total = np.zeros(len(i))
    for block in _blocks(roots):
        chunk = max(1, BLOCK_ENTRIES // block.shape[1])
        for start in range(0, len(i), chunk):
            pairs = slice(start, start + chunk)
            difference = block[i[pairs]] - block[j[pairs]]
            total[pairs] += np.einsum("pv,pv->p", difference, difference)
    return total
