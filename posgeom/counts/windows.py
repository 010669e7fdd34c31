"""Other ways to read the same texts: from a random place, with sentences moved, with sentences of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posgeom import checks
from posgeom.counts import tokens

__all__ = ["from_sentences", "random_windows", "sentences", "shuffled_sentences", "windows_inside"]


def random_windows(
    ids: Sequence[np.ndarray], n: int, n_windows: int, *, rng: np.random.Generator | int
) -> np.ndarray:
    """Windows of ``n`` tokens that start anywhere in the texts, joined to one stream: ``(n_windows, n)``.

    The stream is read as a ring, so that every token is equally likely at every position of a window. This is
    how language models read their training text. ``ValueError`` for a stream shorter than ``n``.
    """
    n, n_windows = checks.positive_int(n, "n"), checks.positive_int(n_windows, "n_windows")
    texts = [tokens.text_ids(text, index) for index, text in enumerate(ids)]
    stream = np.concatenate(texts) if texts else np.empty(0, dtype=np.int64)
    if stream.size < n:
        raise ValueError(f"the texts have {stream.size} tokens together: too few for a window of n = {n}")
    starts = checks.generator(rng).integers(0, stream.size, n_windows)
    return stream[(starts[:, None] + np.arange(n)) % stream.size]


def windows_inside(ids: Sequence[np.ndarray], n: int, *, rng: np.random.Generator | int) -> np.ndarray:
    """One window of ``n`` tokens inside each text that has as many, at a random place of it: ``(M, n)``.

    A text of exactly ``n`` tokens leaves no choice: the less room texts have, the more often a window begins
    where a text does. ``ValueError`` when no text has ``n`` tokens.
    """
    n, rng = checks.positive_int(n, "n"), checks.generator(rng)
    texts = [tokens.text_ids(text, index) for index, text in enumerate(ids)]
    long = [text for text in texts if text.size >= n]
    if not long:
        longest = max((text.size for text in texts), default=0)
        raise ValueError(f"no text has n = {n} tokens: the longest has {longest}; choose a smaller n")
    starts = rng.integers(0, [text.size - n + 1 for text in long])
    return np.stack([text[start : start + n] for text, start in zip(long, starts, strict=True)])


def sentences(text: np.ndarray, ends: Sequence[int]) -> list[np.ndarray]:
    """A text cut after each run of end marks (full stop, question mark ...): arrays that join to the text.

    ``ends`` are the ids of the marks. What follows the last mark is a sentence too. A full stop after an
    abbreviation ends one as well: the cut knows marks, not grammar.
    """
    text = tokens.text_ids(text, 0)
    if not text.size:
        return []
    mark = np.isin(text, np.asarray(ends))
    return np.split(text, np.flatnonzero(mark[:-1] & ~mark[1:]) + 1)


def shuffled_sentences(
    ids: Sequence[np.ndarray], ends: Sequence[int], *, rng: np.random.Generator | int
) -> list[np.ndarray]:
    """Each text with its own sentences in a random order: sentences stay whole, what they build does not."""
    rng = checks.generator(rng)
    shuffled = []
    for text in ids:
        parts = sentences(text, ends)
        shuffled.append(
            np.concatenate([parts[k] for k in rng.permutation(len(parts))]) if parts else np.asarray(text)
        )
    return shuffled


def from_sentences(
    pool: Sequence[np.ndarray],
    n: int,
    n_texts: int,
    *,
    openings: Sequence[np.ndarray] | None = None,
    rng: np.random.Generator | int,
) -> np.ndarray:
    """Texts of ``n`` tokens from sentences that are drawn from a pool, one after the other: ``(n_texts, n)``.

    Sentences begin at the times of a renewal process: their lengths are independent and have one law.

    Parameters
    ----------
    pool
        sentences, each with at least one token.
    openings
        ``n_texts`` of them, with which the texts begin; ``None``: the first sentence comes from the pool too.
    """
    n, n_texts = checks.positive_int(n, "n"), checks.positive_int(n_texts, "n_texts")
    rng = checks.generator(rng)
    lengths = np.array([len(sentence) for sentence in pool], dtype=np.int64)
    if not lengths.size or lengths.min() < 1:
        raise ValueError("pool must hold at least one sentence, and none without tokens")
    if openings is not None and len(openings) != n_texts:
        raise ValueError(f"openings holds {len(openings)} texts, but n_texts is {n_texts}: one for each text")
    texts = np.empty((n_texts, n), dtype=np.int64)
    for row in range(n_texts):
        parts = [] if openings is None else [np.asarray(openings[row])]
        filled = sum(map(len, parts))
        while filled < n:
            k = rng.integers(lengths.size)
            parts.append(pool[k])
            filled += lengths[k]
        texts[row] = np.concatenate(parts)[:n]
    return texts
