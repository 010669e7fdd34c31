"""Which texts to count: maximal phrases of a corpus of phrases, and texts cut to one length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posgeom import checks
from posgeom.counts import tokens

__all__ = ["balanced", "maximal_phrases"]


def maximal_phrases(ids: Sequence[np.ndarray]) -> np.ndarray:
    """Indices, ascending, of the texts that are not a contiguous part of another text.

    GLUE's SST-2 lists the phrases of a treebank: a sentence, its clauses, their words. Counting all of them
    counts the same words many times, so a claim about language keeps the maximal ones.

    Of equal texts the first stays. A text without tokens is a part of every other text.

    Parameters
    ----------
    ids
        N one-dimensional arrays (or lists) of token ids.

    Notes
    -----
    All suffixes of the corpus are sorted (prefix doubling, Manber and Myers 1993), to the length of the
    longest text. The suffixes that begin with a given text are then neighbours, so a text lies inside
    another one exactly if the suffix before or after its own begins with it.
    O(T log T log L) for T tokens in all and a longest text of L.
    """
    texts = [tokens.text_ids(text, index).astype(np.int64) for index, text in enumerate(ids)]
    first_of = {}
    for index, text in enumerate(texts):
        first_of.setdefault(text.tobytes(), index)
    kept = np.array([index for index in first_of.values() if texts[index].size], dtype=np.int64)
    if kept.size == 0:
        return np.arange(min(len(texts), 1))
    lengths = np.array([texts[index].size for index in kept])
    # What closes each text differs from every token, so no match runs across two texts.
    end = min(texts[index].min() for index in kept) - 1
    corpus = np.concatenate([np.append(texts[index], end) for index in kept])
    starts = np.cumsum(lengths + 1) - (lengths + 1)
    order = _sorted_suffixes(corpus, int(lengths.max()))
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    inside = np.zeros(kept.size, dtype=bool)
    for step in (-1, 1):
        neighbour = place[starts] + step
        exists = (neighbour >= 0) & (neighbour < order.size)
        other = order[np.clip(neighbour, 0, order.size - 1)]
        inside |= exists & _begins_with(corpus, other, starts, lengths)
    return np.sort(kept[~inside])


def _sorted_suffixes(corpus: np.ndarray, length: int) -> np.ndarray:
    """Starts of the suffixes of ``corpus``, sorted by their first ``length`` tokens at least."""
    rank = np.unique(corpus, return_inverse=True)[1]
    sorted_to = 1
    while sorted_to < length:
        # A suffix that ends is smaller than every longer one: rank -1, shifted to 0.
        following = np.zeros_like(rank)
        following[:-sorted_to] = rank[sorted_to:] + 1
        rank = np.unique(rank * (corpus.size + 1) + following, return_inverse=True)[1]
        sorted_to *= 2
    return np.argsort(rank, kind="stable")


def _begins_with(
    corpus: np.ndarray, other: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """For each text: are the tokens from ``other`` on equal to its own?"""
    row = np.repeat(np.arange(starts.size), lengths)
    offset = np.arange(row.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # Past the end of the corpus there is no match: its last entry equals no token.
    equal = corpus[np.minimum(other[row] + offset, corpus.size - 1)] == corpus[starts[row] + offset]
    return np.logical_and.reduceat(equal, np.cumsum(lengths) - lengths)


def balanced(ids: Sequence[np.ndarray], n: int) -> np.ndarray:
    """The first ``n`` tokens of every text that has ``n``: ``(M, n)``, so that each position has all M texts.

    With fewer texts at far positions, these would look distant by sampling alone.

    Raises
    ------
    ValueError
        when no text has ``n`` tokens, with the length of the longest.
    """
    n = checks.positive_int(n, "n")
    texts = [tokens.text_ids(text, index) for index, text in enumerate(ids)]
    lengths = [text.size for text in texts]
    rows = [text[:n] for text in texts if text.size >= n]
    if not rows:
        raise ValueError(
            f"no text has n = {n} tokens: the longest has {max(lengths, default=0)}; choose a smaller n"
        )
    return np.stack(rows)
