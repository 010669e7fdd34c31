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
BLOCK_ENTRIES = 1 << 22
# Words at a smaller share of the positions are multiplied sparse.
DENSE_SHARE = 0.05


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
    The vocabulary is read in blocks, so no ``(n, V)`` dense array is made, and beside the result no other
    ``(n, n)`` one. The rows are centred on their mean before their Gram matrix is taken, and pairs that are
    still close are summed from differences: the usual ``sqrt(2 - 2 BC)`` loses every digit below 1e-8.

    Raises
    ------
    ValueError
        for a position without any weight (named), a negative, infinite or NaN weight, or another number of
        axes.
    """
    roots = _root_distributions(x)
    squared = _squared_distances(roots)
    return np.sqrt(squared, out=squared)


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
    return weights[:, np.flatnonzero(np.bincount(weights.indices, minlength=weights.shape[1]))]


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


def _rows(n: int):
    """Slices of rows whose blocks ``(rows, n)`` have ``BLOCK_ENTRIES`` entries."""
    height = max(1, BLOCK_ENTRIES // n)
    return (slice(start, min(start + height, n)) for start in range(0, n, height))


def _squared_distances(roots: csr_matrix) -> np.ndarray:
    n = roots.shape[0]
    squared = _gram(roots)
    norms = np.diagonal(squared).copy()
    closest = CLOSE * max(norms.mean(), np.finfo(float).tiny)
    for rows in _rows(n):
        block = squared[rows]
        block *= -2.0
        block += norms[rows, None]
        block += norms[None, :]
        i, j = np.nonzero(block <= closest)
        i += rows.start
        later = i < j
        squared[i[later], j[later]] = _from_differences(roots, i[later], j[later])
        np.clip(block, 0.0, 2.0, out=block)
    np.fill_diagonal(squared, 0.0)
    return _mirrored(squared)


def _gram(roots: csr_matrix) -> np.ndarray:
    """``roots @ roots.T`` up to a shift of the rows that distances do not see, ``(n, n)``.

    Words that stand at many positions are centred on their mean over positions, so that close rows keep their
    digits. Rare ones need no such care, since few pairs of positions share them, and are multiplied sparse.
    """
    n = roots.shape[0]
    columns = roots.tocsc()
    frequent = np.diff(columns.indptr) >= DENSE_SHARE * n
    gram = np.zeros((n, n))
    for block in _blocks(columns[:, frequent]):
        block -= block.mean(axis=0)
        for rows in _rows(n):
            gram[rows, rows.start :] += block[rows] @ block[rows.start :].T
    rare = columns[:, ~frequent].tocsr()
    transposed = rare.T.tocsr()
    for rows in _rows(n):
        gram[rows, rows.start :] += (rare[rows] @ transposed[:, rows.start :]).toarray()
    return _mirrored(gram)


def _mirrored(matrix: np.ndarray) -> np.ndarray:
    """``matrix`` with its upper triangle copied to the lower one, in place."""
    for rows in _rows(len(matrix)):
        matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T
        square = matrix[rows, rows]
        below = np.tril_indices(len(square), -1)
        square[below] = square.T[below]
    return matrix


def _from_differences(roots: csr_matrix, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """``sum_v (roots[i, v] - roots[j, v])**2`` for each pair, the difference taken first."""
    total = np.zeros(len(i))
    if not len(i):
        return total
    for block in _blocks(roots):
        chunk = max(1, BLOCK_ENTRIES // block.shape[1])
        for start in range(0, len(i), chunk):
            pairs = slice(start, start + chunk)
            difference = block[i[pairs]] - block[j[pairs]]
            total[pairs] += np.einsum("pv,pv->p", difference, difference)
    return total
