"""How much of a plug-in Hellinger distance is sampling noise, and what is left without it.

Two samples from one distribution are at a positive distance. The sampling floor is that distance: what the
squared Hellinger distance between two positions would be on average if their tokens came from one law.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.sparse import csr_matrix, issparse
from scipy.special import gammaln
from scipy.stats import t as student_t

from posgeom import checks
from posgeom.distances import euclidean_distances, hellinger_distances
from posgeom.phrases import balanced, maximal_phrases
from posgeom.positions import shuffled

__all__ = [
    "Jackknife",
    "balanced",
    "centred_gram",
    "corrected_distances",
    "corrected_squared_distances",
    "jackknife",
    "maximal_phrases",
    "null_spectra",
    "projected_distances",
    "sampling_floor",
    "signal_rank",
    "split_half_squared_distances",
]

# Above this count, and only where both shares of it are as large as at even totals, h has its closed form.
TABLE_TO = 600
# Step of the interpolation between tables, in log odds of the two totals: relative error of h below 1e-9.
LOG_ODDS_STEP = 0.04
EDGE_LEVEL = 0.95
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
    words, totals = _words(counts)
    return _floor(words, _Tables(totals, allocation))


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
    words, totals = _words(counts)
    squared = hellinger_distances(words.T) ** 2
    return squared - _floor(words, _Tables(totals, allocation))


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
    words, totals = _words(counts)
    squared = corrected_squared_distances(counts, allocation=allocation)
    if rank is None:
        return np.sqrt(np.maximum(squared, 0.0))
    if rank == "edge":
        counted = words.toarray()
        draw = _over_positions(counted) if tokens is None else _within_texts(*_matching(tokens, counted))
        edge = _edge(_spectra(draw, _Tables(totals, allocation), n_null, rng)[:, 0])
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
    tokens, vocab_size = _relabelled(tokens)
    if method == "split":
        eigenvalues = np.linalg.eigvalsh(_cross_gram(tokens, vocab_size, checks.generator(rng)))
        return int(np.count_nonzero(eigenvalues > max(-eigenvalues[0], 0.0)))
    if method != "edge":
        raise ValueError(f"method must be 'edge' or 'split', not {method!r}")
    tables = _Tables(np.full(tokens.shape[1], len(tokens)), "binomial")
    null = _spectra(_within_texts(tokens, vocab_size), tables, n_null, rng)
    return int(np.count_nonzero(_spectrum(_count(tokens, vocab_size), tables) > _edge(null[:, 0])))


def null_spectra(tokens: np.ndarray, *, n_null: int = 99, rng: np.random.Generator | int) -> np.ndarray:
    """Eigenvalues of the Gram matrix of ``D2c`` after shuffling the tokens within each text.

    ``(n_null, n)``, descending in each row: what corrected distances look like where order means nothing.
    ``tokens`` and errors as for :func:`signal_rank`.
    """
    tokens, vocab_size = _relabelled(tokens)
    tables = _Tables(np.full(tokens.shape[1], len(tokens)), "binomial")
    return _spectra(_within_texts(tokens, vocab_size), tables, n_null, rng)


def split_half_squared_distances(tokens: np.ndarray, *, rng: np.random.Generator | int) -> np.ndarray:
    """Squared distances with each factor from its own half of the texts, ``(n, n)``, zero diagonal.

    .. math:: D^2_{s,ij} = \\langle a_i - a_j, \\; b_i - b_j \\rangle, \\qquad
              a_i = \\sqrt{\\hat\\mu_i^{(A)}}, \\quad b_i = \\sqrt{\\hat\\mu_i^{(B)}}

    The errors of the halves are independent, so none is squared: the mean is the squared distance between the
    *mean* roots of M/2 tokens, exactly 0 where two laws are equal. Those mean roots are smaller than the true
    ones for rare words, so it falls short of the truth. ``tokens`` ``(M, n)``, M >= 2; ``rng`` draws
    the halves.
    """
    tokens, vocab_size = _relabelled(tokens)
    cross = _cross_gram(tokens, vocab_size, checks.generator(rng))
    own = np.diagonal(cross)
    return own[:, None] + own[None, :] - 2.0 * cross


def centred_gram(squared: np.ndarray) -> np.ndarray:
    """``-1/2 J S J`` for a symmetric ``(n, n)`` matrix S of squared dissimilarities that may be negative.

    ``posgeom.mds.gram_matrix`` is the same for dissimilarities, which have no negative squares.
    """
    squared = checks.finite_matrix(squared, "squared")
    if squared.shape[0] != squared.shape[1] or not np.allclose(squared, squared.T, rtol=0, atol=1e-8):
        raise ValueError(
            f"squared must be symmetric, (n, n), and this matrix of shape {squared.shape} is not"
        )
    row = squared.mean(axis=0)
    return -0.5 * (squared - row[:, None] - row[None, :] + row.mean())


class Jackknife(NamedTuple):
    """What :func:`jackknife` returns; each field has the shape of the score (a float where that is a number).

    ``estimate``: the score of all documents. ``standard_error``. ``low``, ``high``: the interval
    ``estimate -+ t * standard_error``. ``replicates``: ``(groups, ...)`` the scores without each group.
    """

    estimate: np.ndarray | float
    standard_error: np.ndarray | float
    low: np.ndarray | float
    high: np.ndarray | float
    replicates: np.ndarray


def jackknife(
    score: Callable[[np.ndarray], float | np.ndarray],
    docs: np.ndarray,
    groups: int | np.ndarray = 8,
    *,
    level: float = 0.95,
) -> Jackknife:
    """A score of a corpus with its standard error over documents, by leaving out one group at a time.

    .. math:: \\mathrm{se}^2 = \\frac1g \\sum_k \\frac{(\\tilde\\theta_k - \\bar\\theta)^2}{r_k - 1}, \\qquad
              \\tilde\\theta_k = r_k \\hat\\theta - (r_k - 1) \\hat\\theta_{(-k)}, \\qquad r_k = M / m_k

    with ``m_k`` documents in group k and ``theta_bar = g theta - sum_k (1 - 1/r_k) theta_(-k)`` (Busing,
    Meijer and van der Leeden 1999; for even groups Tukey's ``(g - 1)/g sum (theta_(-k) - mean)^2``).

    Parameters
    ----------
    score
        takes documents, an ``(m, n)`` part of ``docs`` with its rows in order, and returns a number or
        an array of them. A score of counts is written ``lambda part: f(PositionalCounts.from_ids(part,
        ...))``. It is called ``groups + 1`` times.
    docs
        ``(M, n)`` token ids, one row a document.
    groups
        how many, 2 .. M: document t goes to group ``t mod groups``, so that an order of the corpus (IMDB's is
        by label) does not make the groups differ. Or ``(M,)`` labels, where documents that belong together
        must leave together.
    level
        of the interval, in (0, 1); t has ``groups - 1`` degrees of freedom.

    Raises
    ------
    ValueError
        for docs without rows, groups that do not fit, a score that is not finite or changes its shape.
    """
    docs = np.asarray(docs)
    if docs.ndim < 1 or len(docs) < 2:
        raise ValueError(f"docs must hold at least 2 documents, one a row, not shape {docs.shape}")
    member = _groups(groups, len(docs))
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), not {level!r}")
    sizes = np.bincount(member)
    estimate = _score(score, docs, "all documents")
    left = [_score(score, docs[member != k], f"the documents without group {k}") for k in range(len(sizes))]
    if any(replicate.shape != estimate.shape for replicate in left):
        raise ValueError("score returned another shape without a group of documents than with all of them")
    replicates = np.stack(left)
    inverse = (len(docs) / sizes).reshape((-1,) + (1,) * estimate.ndim)
    pseudo = inverse * estimate - (inverse - 1) * replicates
    centre = (pseudo / inverse).sum(axis=0)
    error = np.sqrt(((pseudo - centre) ** 2 / (inverse - 1)).mean(axis=0))
    reach = student_t.ppf(0.5 + level / 2, len(sizes) - 1) * error
    fields = (estimate, error, estimate - reach, estimate + reach)
    return Jackknife(*(field if estimate.ndim else float(field) for field in fields), replicates)


def _groups(groups: int | np.ndarray, documents: int) -> np.ndarray:
    if np.ndim(groups) == 0:
        number = checks.positive_int(groups, "groups", minimum=2)
        if number > documents:
            raise ValueError(f"groups is {number}, but there are only {documents} documents to put in them")
        return np.arange(documents) % number
    labels = np.asarray(groups)
    if labels.shape != (documents,):
        raise ValueError(f"groups must be a number or {documents} labels, one a document, not {groups!r}")
    found, member = np.unique(labels, return_inverse=True)
    if len(found) < 2:
        raise ValueError(f"groups has the one label {found[0]} for every document: it needs at least two")
    return member


def _score(score: Callable, docs: np.ndarray, what: str) -> np.ndarray:
    value = np.asarray(score(docs), dtype=np.float64)
    if not np.isfinite(value).all():
        raise ValueError(f"score is not finite for {what}: {value!r}")
    return value


# Counts and texts


def _words(counts) -> tuple[csr_matrix, np.ndarray]:
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


def _relabelled(tokens: np.ndarray) -> tuple[np.ndarray, int]:
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


def _count(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """``(vocab_size, n)`` int32 counts of ``(M, n)`` texts."""
    n = tokens.shape[1]
    words = np.empty((n, vocab_size), np.int32)
    for position in range(n):
        words[position] = np.bincount(tokens[:, position], minlength=vocab_size)
    return np.ascontiguousarray(words.T)


def _matching(tokens: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, int]:
    """Relabelled ``tokens``, after a check that they are the texts that were counted."""
    relabelled, vocab_size = _relabelled(tokens)
    if not np.array_equal(_count(relabelled, vocab_size), words):
        raise ValueError(
            "tokens are not the texts behind counts: counting them gives other counts; pass the (M, n) "
            "array that was counted, or leave tokens out"
        )
    return relabelled, vocab_size


# The floor


class _Tables:
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


def _floor(words: np.ndarray | csr_matrix, tables: _Tables) -> np.ndarray:
    floor = _table_sums(words, tables)
    totals = tables.totals.astype(np.float64)
    for row, total in zip(floor, totals, strict=True):
        row /= np.sqrt(total * totals)
    floor *= -2.0
    floor += 2.0
    np.fill_diagonal(floor, 0.0)
    return np.maximum(floor, 0.0, out=floor)


def _table_sums(words: np.ndarray | csr_matrix, tables: _Tables) -> np.ndarray:
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


def _add_even_sums(sums: np.ndarray, few: np.ndarray, many: np.ndarray, tables: _Tables) -> None:
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


def _add_uneven_sums(sums: np.ndarray, few: np.ndarray, many: np.ndarray, tables: _Tables) -> None:
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


def _many_sums(c: np.ndarray, tables: _Tables, table: np.ndarray, i: int) -> np.ndarray:
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


# Spectra and halves


def _spectrum(words: np.ndarray, tables: _Tables) -> np.ndarray:
    """Eigenvalues of the Gram matrix of ``D2c``, descending, ``(n,)``.

    The distances are taken in the form ``h(c) - sqrt(X_i X_j)``: for an eigenvalue its digits suffice.
    """
    roots = np.sqrt(words, dtype=np.float64)
    sums = _table_sums(words, tables) - roots.T @ roots
    squared = 2.0 * sums / np.sqrt(np.outer(tables.totals, tables.totals))
    np.fill_diagonal(squared, 0.0)
    return np.linalg.eigvalsh(centred_gram(squared))[::-1]


def _within_texts(tokens: np.ndarray, vocab_size: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Draws the counts of texts whose tokens have changed places within each text."""
    return lambda rng: _count(shuffled(tokens, rng), vocab_size)


def _over_positions(words: np.ndarray) -> Callable[[np.random.Generator], np.ndarray]:
    """Draws counts with these totals of words and of positions: all tokens change places, texts forgotten."""
    vocab_size, n = words.shape
    tokens = np.repeat(np.arange(vocab_size, dtype=np.int32), words.sum(axis=1))
    ends = np.cumsum(words.sum(axis=0))[:-1]

    def draw(rng: np.random.Generator) -> np.ndarray:
        parts = np.split(rng.permutation(tokens), ends)
        return np.stack([np.bincount(part, minlength=vocab_size) for part in parts], axis=1).astype(np.int32)

    return draw


def _spectra(
    draw: Callable[[np.random.Generator], np.ndarray],
    tables: _Tables,
    n_null: int,
    rng: np.random.Generator | int,
) -> np.ndarray:
    n_null = checks.positive_int(n_null, "n_null")
    rng = checks.generator(rng)
    return np.stack([_spectrum(draw(rng), tables) for _ in range(n_null)])


def _edge(largest: np.ndarray) -> float:
    """The 95th percentile as an order statistic: the smallest draw that enough draws do not exceed."""
    return float(np.quantile(largest, EDGE_LEVEL, method="higher"))


def _cross_gram(tokens: np.ndarray, vocab_size: int, rng: np.random.Generator) -> np.ndarray:
    """Symmetric part of the Gram matrix between the centred roots of two random halves of the texts."""
    order = rng.permutation(len(tokens))
    first, second = (
        np.sqrt(_count(half, vocab_size) / len(half)) for half in np.array_split(tokens[order], 2)
    )
    gram = (first - first.mean(axis=1, keepdims=True)).T @ (second - second.mean(axis=1, keepdims=True))
    return (gram + gram.T) / 2.0
