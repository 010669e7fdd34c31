"""Errors of a score by the jackknife over texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t

from posgeom import checks

__all__ = [
    "Jackknife",
    "jackknife",
]


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
