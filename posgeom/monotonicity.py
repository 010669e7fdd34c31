"""Does distance grow with lag? The share of position triples that say no."""

from __future__ import annotations

import numpy as np

from posgeom import checks

__all__ = ["violation_rate"]

ROWS_AT_ONCE = 1 << 21


def violation_rate(E: np.ndarray) -> float:
    """The share of triples in which the nearer position is farther away.

    Over all triples of distinct i, j, k with ``|i - j| < |i - k|``, the share with ``E[i, j] > E[i, k]``.
    Equal dissimilarities are no violation. 0 for every increasing function of ``|i - j|``; 1/2 in expectation
    for an exchangeable encoding without ties.

    Parameters
    ----------
    E
        ``(n, n)`` dissimilarity, n >= 3.

    Notes
    -----
    Exact, in O(n^2 log n): for each i the other positions are put in order of lag, and the violations are the
    inversions of that sequence, counted while merging. The two positions at one lag are put in rising order,
    so that they count neither for nor against.
    """
    E = checks.square_dissimilarity(E, "E")
    n = len(E)
    if n < 3:
        raise ValueError(f"E has {n} positions: a triple of distinct positions needs at least 3")
    violations = 0
    rows = max(1, ROWS_AT_ONCE // n)
    for start in range(0, n, rows):
        violations += _inversions(_by_lag(E, np.arange(start, min(start + rows, n))))
    return violations / _triples(n)


def _triples(n: int) -> int:
    """Ordered-lag triples: for each i, the pairs of other positions less the pairs that share a lag."""
    i = np.arange(n)
    return int(n * ((n - 1) * (n - 2) // 2) - np.minimum(i, n - 1 - i).sum())


def _by_lag(E: np.ndarray, i: np.ndarray) -> np.ndarray:
    """Row by row ``E[i, others]`` in order of lag, rising within a lag; ``(len(i), n - 1)``."""
    lag = np.abs(np.arange(len(E)) - i[:, None])
    order = np.lexsort((E[i], lag), axis=1)
    return np.take_along_axis(E[i], order, axis=1)[:, 1:]


def _inversions(rows: np.ndarray) -> int:
    """Pairs a < b with ``row[a] > row[b]``, summed over the rows, by merging sorted halves.

    In a stable merge the right-hand entry of rank r that lands at place p has p - r entries of the left half
    before it, so ``w - (p - r)`` of them exceed it; summed over r = 0 .. w - 1 only the places remain.
    """
    width = 1 << (rows.shape[1] - 1).bit_length()
    padded = np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=np.inf)
    count, half = 0, 1
    while half < width:
        halves = padded.reshape(-1, 2 * half)
        order = np.argsort(halves, axis=1, kind="stable")
        places = np.count_nonzero(order >= half, axis=0) @ np.arange(2 * half)
        count += len(halves) * (half * half + half * (half - 1) // 2) - int(places)
        padded = np.take_along_axis(halves, order, axis=1)
        half *= 2
    return count
