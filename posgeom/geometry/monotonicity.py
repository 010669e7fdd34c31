"""Does distance grow with lag? The share of position triples that say no."""

from __future__ import annotations

import numpy as np

from posgeom import checks

__all__ = ["violation_rate"]

# Entries of the rows that are counted together: they stay in the cache.
ENTRIES_AT_ONCE = 1 << 17


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
    inversions of that sequence. The two positions at one lag are put in rising order, so that they count
    neither for nor against. Memory beside ``E``: some rows at a time.
    """
    E = checks.square_dissimilarity(E, "E")
    n = len(E)
    if n < 3:
        raise ValueError(f"E has {n} positions: a triple of distinct positions needs at least 3")
    violations = 0
    rows = max(1, ENTRIES_AT_ONCE // n)
    for start in range(0, n, rows):
        violations += _inversions(_by_lag(E, np.arange(start, min(start + rows, n))))
    return violations / _triples(n)


def _triples(n: int) -> int:
    """Ordered-lag triples: for each i, the pairs of other positions less the pairs that share a lag."""
    i = np.arange(n)
    return int(n * ((n - 1) * (n - 2) // 2) - np.minimum(i, n - 1 - i).sum())


def _by_lag(E: np.ndarray, i: np.ndarray) -> np.ndarray:
    """Row by row ``E[i, others]`` in order of lag, rising within a lag; ``(len(i), n - 1)``."""
    n = len(E)
    rows = np.empty((len(i), n - 1))
    for position, row in zip(i, rows, strict=True):
        before, after = E[position, :position][::-1], E[position, position + 1 :]
        both = min(len(before), len(after))
        np.minimum(before[:both], after[:both], out=row[: 2 * both : 2])
        np.maximum(before[:both], after[:both], out=row[1 : 2 * both : 2])
        row[2 * both :] = (before if len(before) > both else after)[both:]
    return rows


def _inversions(rows: np.ndarray) -> int:
    """Pairs a < b with ``row[a] > row[b]``, summed over the rows.

    They are the inversions of the places that the entries take when sorted. Those are counted bit by bit, the
    highest first: within a group that agrees in all higher bits, a zero at place p that is the r-th zero has
    p - r ones before it. Summed over the zeros only their places remain, because a group holds every number
    with its higher bits once, so half of it are zeros. Then zeros and ones, in order, are the next groups.
    """
    order = np.argsort(rows, axis=1, kind="stable")
    bits = (rows.shape[1] - 1).bit_length()
    places = np.empty((len(rows), 1 << bits), np.min_scalar_type((1 << bits) - 1))
    places[:, : rows.shape[1]] = order
    places[:, rows.shape[1] :] = np.arange(rows.shape[1], 1 << bits)
    places, count = places.ravel(), 0
    for half in (1 << bit for bit in reversed(range(bits))):
        is_one = (places & places.dtype.type(half)).astype(bool)
        zeros, ones = np.flatnonzero(~is_one), np.flatnonzero(is_one)
        count += int((zeros & (2 * half - 1)).sum()) - len(zeros) // half * (half * (half - 1) // 2)
        groups = [places[part].reshape(-1, 1, half) for part in (zeros, ones)]
        places = np.concatenate(groups, axis=1).ravel()
    return count
