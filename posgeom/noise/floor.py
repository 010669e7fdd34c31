"""How large the squared Hellinger distance of two samples of one law is on average: the sampling floor.

The tokens of two positions are dealt out at random, as if one law had made both; each word then has a mean
distance of its own, computed exactly where it is rare and from tables where it is not.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.sparse import csr_matrix, issparse
from scipy.special import gammaln

from posgeom import checks

__all__ = [
    "sampling_floor",
]

# Above this count, and only where both shares of it are as large as at even totals, h has its closed form.
TABLE_TO = 600
# Step of the interpolation between tables, in log odds of the two totals: relative error of h below 1e-9.
LOG_ODDS_STEP = 0.04
TABLES_KEPT = 4096
TERMS_AT_ONCE = 1 << 20
# Counts (words times positions) that are dense at one time: a floor looks up each word of a position in all
# the others.
WORDS_AT_ONCE = 1 << 24


def sampling_floor(counts, *, allocation: str = "binomial") -> np.ndarray:
    """The mean squared Hellinger distance between positions if their tokens were exchangeable.

    .. math:: F_{ij} = 2 - \\frac{2}{\\sqrt{N_i N_j}} \\sum_v h(c_v), \\qquad c_v = X_{iv} + X_{jv}, \\qquad
              h(c) = E \\sqrt{H (c - H)}

    Given the pooled counts ``c_v`` of two positions of one law, the ``N_i`` tokens of the first are a random
    choice from all ``N_i + N_j``; H is how many of the ``c_v`` copies of word v they hold.

    Parameters
    ----------
    counts
        ``(n, V)`` whole numbers >= 0, dense or sparse, one row a position, or an object with such a matrix in
        ``.counts`` (``PositionalCounts``). The totals N_i, the row sums, need not be equal.
    allocation
        the law of H. ``"binomial"``: ``Binomial(c, N_i / (N_i + N_j))``; above c = 600 the closed form
        ``c s - 1 / (8 s)`` with ``s^2 = pi (1 - pi)`` and pi the share of N_i, where ``c s^2 > 150`` (at
        equal totals the same bound; for very unequal totals the form fails there, and the sum goes on).
        ``"hypergeometric"``: without replacement, which is exact for independent tokens. The binomial
        floor is higher: by about ``(1 / N_i + 1 / N_j) / 4`` where words are frequent, by up to one and a
        half times that for words with c near 4, and by nothing for c = 1; 3e-4 on a Zipf law at N = 1000. It
        is the exact one when tokens change places within a text and no text has a word at both positions.

    Returns
    -------
    ``(n, n)`` float64, symmetric, zero diagonal, in [0, 2].

    Notes
    -----
    At equal totals one table of h serves every pair. At unequal totals with more than a few distinct shares,
    ``log h`` is interpolated by a cubic spline in the log odds (relative error below 1e-9);
    ``"hypergeometric"`` has no such short cut and sums a table for each pair of totals, which is slow beyond
    some dozens of positions. Memory: 64 MB of counts at a time, and two matrices as large as the result.

    Raises
    ------
    ValueError
        for a position without tokens (named), a count that is negative or no whole number, another number of
        axes, or another ``allocation``.
    """
    words, totals = counted_words(counts)
    return floor_of(words, Tables(totals, allocation))


def counted_words(counts) -> tuple[csr_matrix, np.ndarray]:
    """Counts as ``(words in use, n)`` CSR int32 and the totals ``(n,)``."""
    counts = getattr(counts, "counts", counts)
    if issparse(counts):
        matrix = csr_matrix(counts, copy=True)
        matrix.sum_duplicates()
    else:
        matrix = csr_matrix(checks.finite_matrix(counts, "counts"))
    values = matrix.data
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise ValueError(f"counts must hold whole numbers, not {values.dtype}")
    bad = ~((values >= 0) & (values <= np.iinfo(np.int32).max // 2) & (values == np.floor(values)))
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        position = int(np.searchsorted(matrix.indptr, where, side="right")) - 1
        raise ValueError(
            f"counts holds {values[where]:g} at position {position}, word {matrix.indices[where]}: "
            "a count is a whole number of tokens >= 0, so pass counts and not distributions"
        )
    if matrix.shape[0] == 0:
        raise ValueError("counts has no rows: it needs one row for each position")
    matrix = csr_matrix((values.astype(np.int32), matrix.indices, matrix.indptr), shape=matrix.shape)
    matrix.eliminate_zeros()
    totals = np.asarray(matrix.sum(axis=1, dtype=np.int64)).ravel()
    empty = np.flatnonzero(totals == 0)
    if empty.size:
        raise ValueError(
            f"position {empty[0]} has no tokens, so it has no distribution: {empty.size} of {len(totals)} "
            "positions are empty; use fewer positions, or texts that reach them"
        )
    used = np.unique(matrix.indices)
    return matrix[:, used].T.tocsr(), totals


class Tables:
    """``h(c)`` for every pair of positions and every c from 0 to ``largest``."""

    def __init__(self, totals: np.ndarray, allocation: str) -> None:
        if allocation not in ("binomial", "hypergeometric"):
            raise ValueError(f"allocation must be 'binomial' or 'hypergeometric', not {allocation!r}")
        self.totals = np.asarray(totals, dtype=np.int64)
        self.allocation = allocation
        self.largest = int(min(TABLE_TO, 2 * self.totals.max()))
        distinct = np.unique(self.totals)
        self.even = len(distinct) == 1
        # Three steps beyond each end: a cubic spline is least exact there.
        steps = np.arange(-3, int(np.ceil(np.log(distinct[-1] / distinct[0]) / LOG_ODDS_STEP)) + 4)
        interpolate = allocation == "binomial" and len(distinct) ** 2 > 2 * len(steps)
        self._spline = self._interpolated(LOG_ODDS_STEP * steps) if interpolate else None

    def after(self, i: int) -> np.ndarray:
        """``h`` of i with each later position, ``(n - 1 - i, largest + 1)``, or one row that serves all."""
        own, others = int(self.totals[i]), self.totals[i + 1 :]
        if self.even:
            return _row(own, own, self.largest, self.allocation)[None]
        if self._spline is None:
            sizes = [sorted((own, int(other))) for other in others]
            return np.stack([_row(*pair, self.largest, self.allocation) for pair in sizes])
        table = np.zeros((len(others), self.largest + 1))
        table[:, 2:] = np.exp(self._spline(np.abs(np.log(others / own))))
        return table

    def _interpolated(self, nodes: np.ndarray) -> CubicSpline:
        c, log_odds = np.meshgrid(np.arange(2, self.largest + 1), nodes)
        odds = np.exp(log_odds.ravel())
        # Only the share matters to the binomial law, so totals stand for it that are no whole numbers.
        h = _mean_root(c.ravel(), odds, np.ones_like(odds), "binomial")
        return CubicSpline(nodes, np.log(h).reshape(c.shape))


@lru_cache(TABLES_KEPT)
def _row(first: int, second: int, largest: int, allocation: str) -> np.ndarray:
    c = np.arange(min(largest, first + second) + 1)
    h = _mean_root(c, np.full(len(c), first), np.full(len(c), second), allocation)
    row = np.pad(h, (0, largest + 1 - len(c)))
    row.flags.writeable = False
    return row


def floor_of(words: np.ndarray | csr_matrix, tables: Tables) -> np.ndarray:
    floor = table_sums(words, tables)
    totals = tables.totals.astype(np.float64)
    for row, total in zip(floor, totals, strict=True):
        row /= np.sqrt(total * totals)
    floor *= -2.0
    floor += 2.0
    np.fill_diagonal(floor, 0.0)
    return np.maximum(floor, 0.0, out=floor)


def table_sums(words: np.ndarray | csr_matrix, tables: Tables) -> np.ndarray:
    """``sum_v h(X_iv + X_jv)`` for every pair of positions, ``(n, n)`` symmetric with diagonal 0.

    The words of position i are added to those of the others. For a word that i lacks ``c_v`` is ``X_jv``: the
    sum over those is the sum over all words of j less that over the words of i.
    """
    n = words.shape[1]
    sums = np.zeros((n, n))
    height = max(1, WORDS_AT_ONCE // n)
    for start in range(0, words.shape[0], height):
        block = words[start : start + height]
        block = block.toarray() if issparse(block) else block
        # Two counts up to half of the table's end never leave the table.
        beyond = block.max(axis=1) > tables.largest // 2
        add = _add_even_sums if tables.even else _add_uneven_sums
        add(sums, block[~beyond], block[beyond], tables)
    sums += np.triu(sums, 1).T
    return sums


def _add_even_sums(sums: np.ndarray, few: np.ndarray, many: np.ndarray, tables: Tables) -> None:
    n = len(sums)
    if n < 2:
        return
    (h,) = tables.after(0)
    counts = np.arange(few.max(initial=0) + 1)
    alone = h[few].sum(axis=0)
    # What a words of i add to b of another position, at place a * len(counts) + b.
    added = (h[np.add.outer(counts, counts)] - h[counts]).ravel()
    for i in range(n - 1):
        own = np.flatnonzero(few[:, i])
        at = few[own, i + 1 :] + (few[own, i] * len(counts))[:, None]
        sums[i, i + 1 :] += alone[i + 1 :] + added.take(at).sum(axis=0)
        sums[i, i + 1 :] += _many_sums(many[:, i, None] + many[:, i + 1 :], tables, h[None], i)


def _add_uneven_sums(sums: np.ndarray, few: np.ndarray, many: np.ndarray, tables: Tables) -> None:
    histograms = np.stack([np.bincount(column, minlength=tables.largest + 1) for column in few.T])
    for i in range(len(sums) - 1):
        table = tables.after(i)
        # Every pair of positions reads its own row of the table.
        start = np.arange(len(table)) * table.shape[1]
        entries = table.ravel()
        own = np.flatnonzero(few[:, i])
        at = few[own, i + 1 :] + start
        pair_sums = (histograms[i + 1 :] * table).sum(axis=1) - entries[at].sum(axis=0)
        at += few[own, i, None]
        pair_sums += entries[at].sum(axis=0)
        sums[i, i + 1 :] += pair_sums + _many_sums(many[:, i, None] + many[:, i + 1 :], tables, table, i)


def _many_sums(c: np.ndarray, tables: Tables, table: np.ndarray, i: int) -> np.ndarray:
    """``sum_v h(c_v)`` over words that may be too frequent for the table; c is ``(words, n - 1 - i)``."""
    pair = np.broadcast_to(np.arange(c.shape[1]), c.shape)
    row = pair if len(table) > 1 else np.zeros_like(pair)
    inside = c <= tables.largest
    h = np.empty(c.shape)
    h[inside] = table[row[inside], c[inside]]
    first, second = tables.totals[i], tables.totals[i + 1 :][pair[~inside]]
    h[~inside] = _mean_root(c[~inside], np.full(len(second), first), second, tables.allocation)
    return h.sum(axis=0)


def _mean_root(c: np.ndarray, first: np.ndarray, second: np.ndarray, allocation: str) -> np.ndarray:
    """``h(c)``, entry by entry: c tokens of a word among ``first + second`` of two positions."""
    share = first / (first + second)
    variance = c * share * (1.0 - share)
    left = 1.0
    if allocation == "hypergeometric":
        left = (first + second - c) / (first + second - 1.0)
    spread = np.sqrt(share * (1.0 - share))
    h = c * spread - left / (8.0 * spread)
    summed = np.flatnonzero((c <= TABLE_TO) | (variance <= TABLE_TO / 4))
    # Nine standard deviations and thirty more on either side leave out less than 1e-16.
    reach = 9.0 * np.sqrt(variance) + 30.0
    lowest, highest = np.zeros_like(c), c
    if allocation == "hypergeometric":
        lowest, highest = np.maximum(c - second, 0), np.minimum(c, first)
    lowest = np.maximum(lowest, np.floor(c * share - reach)).astype(np.int64)
    highest = np.minimum(highest, np.ceil(c * share + reach)).astype(np.int64)
    terms = highest[summed] - lowest[summed] + 1
    for part in np.split(summed, _chunks(terms)):
        if not part.size:
            continue
        number = highest[part] - lowest[part] + 1
        starts = np.cumsum(number) - number
        of = np.repeat(part, number)
        k = np.arange(len(of)) + np.repeat(lowest[part] - starts, number)
        rest = c[of] - k
        if allocation == "hypergeometric":
            log_weight = _log_choose(first[of], k) + _log_choose(second[of], rest)
        else:
            log_weight = _log_choose(c[of], k) + k * np.log(share[of]) + rest * np.log1p(-share[of])
        peak = np.maximum.reduceat(log_weight, starts)
        weight = np.exp(log_weight - np.repeat(peak, number))
        roots = weight * np.sqrt(k.astype(np.float64) * rest)
        h[part] = np.add.reduceat(roots, starts) / np.add.reduceat(weight, starts)
    return h


def _chunks(terms: np.ndarray) -> np.ndarray:
    """Where to split, so that no part holds many more than ``TERMS_AT_ONCE`` terms."""
    parts = np.cumsum(terms) // TERMS_AT_ONCE
    return np.flatnonzero(np.diff(parts)) + 1


def _log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
