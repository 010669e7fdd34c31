"""Positional counts: how often each token stands at each position; under every distance of the book."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from posgeom import checks
from posgeom.counts import tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["COUNTS", "PositionalCounts", "load_counts", "shuffled"]

# Tokens counted at once: what is held beside the counts does not grow with the corpus.
BLOCK_TOKENS = 1 << 21

# name -> file of posgeom/data
COUNTS = {"sst2": "sst2_counts.npz", "b_sst2": "b_sst2_counts.npz"}


def shuffled(
    ids: Sequence[np.ndarray] | np.ndarray, rng: np.random.Generator | int
) -> list[np.ndarray] | np.ndarray:
    """Each text with its own tokens in a random order: the exchangeable null.

    Every text keeps its length and its words, so positional distributions differ by sampling alone.
    Leave special tokens out (``special_tokens="drop"``), or they are shuffled with the words.

    Parameters
    ----------
    ids
        N one-dimensional arrays of token ids, or an ``(M, n)`` array.
    rng
        generator or integer seed.

    Returns
    -------
    new ids of the same kind: a list of N arrays, or an ``(M, n)`` array.
    """
    rng = checks.generator(rng)
    if isinstance(ids, np.ndarray) and ids.dtype != object:
        if ids.ndim != 2:
            raise ValueError(f"ids must be (M, n) or a list of texts, not an array of shape {ids.shape}")
        return rng.permuted(ids, axis=1)
    return [rng.permutation(tokens.text_ids(text, index)) for index, text in enumerate(ids)]


class PositionalCounts:
    """Counts of tokens by position: row ``i`` holds how often each of V tokens stands at position ``i``.

    Made by :meth:`from_ids`, :meth:`from_texts`, :meth:`load`, or from an ``(n, V)`` matrix of non-negative
    integers, dense or sparse. Immutable. Two are equal if their counts are.

    Attributes
    ----------
    counts
        ``(n, V)`` CSR matrix, int64, without explicit zeros.
    totals
        ``(n,)`` int64, read-only: N_i, the number of texts that reach position i.
    n, vocab_size
        number of positions and of tokens.
    """

    __slots__ = ("_counts", "_totals")

    def __init__(self, counts) -> None:
        if not sparse.issparse(counts):
            counts = np.asarray(counts)
        if counts.ndim != 2 or 0 in counts.shape:
            raise ValueError(f"counts must be (n, V) with n, V >= 1, not of shape {counts.shape}")
        if not np.issubdtype(counts.dtype, np.integer):
            raise ValueError(f"counts must be integers, not {counts.dtype}")
        matrix = sparse.csr_matrix(counts, dtype=np.int64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if matrix.nnz and matrix.data.min() < 0:
            where = int(np.argmin(matrix.data))
            position = int(np.searchsorted(matrix.indptr, where, side="right")) - 1
            raise ValueError(
                f"counts[{position}, {matrix.indices[where]}] is {matrix.data[where]}: a count is at least 0"
            )
        self._counts = matrix
        self._totals = np.asarray(matrix.sum(axis=1)).ravel()
        for array in (matrix.data, matrix.indices, matrix.indptr, self._totals):
            array.flags.writeable = False

    @classmethod
    def from_ids(
        cls, ids: Iterable[Sequence[int]] | np.ndarray, *, n: int | None = None, vocab_size: int
    ) -> PositionalCounts:
        """Count ids by position.

        .. math:: X_{iv} = \\#\\{\\text{texts } x : x_i = v\\}

        Parameters
        ----------
        ids
            ``(M, n)`` integer array, or any iterable of one-dimensional texts of different lengths.
        n
            positions to count; a longer text is cut, and positions that no text reaches stay empty.
            ``None``: the length of the longest text.
        vocab_size
            V; ids are 0 … V−1.

        Raises
        ------
        ValueError
            for an id outside the vocabulary (text and position named), a text that is not a row of integers
            (named), no text, or ``n=None`` with texts that are all empty.
        """
        vocab_size = checks.positive_int(vocab_size, "vocab_size")
        if n is not None:
            n = checks.positive_int(n, "n")
        total = None
        for first, flat, lengths in _blocks(ids):
            counted = _count_block(flat, lengths, first, n, vocab_size)
            total = counted if total is None else _padded_sum(total, counted)
        if total is None:
            raise ValueError("ids holds no text")
        if total.shape[0] == 0:
            raise ValueError("every text of ids is empty, so there is no position to count")
        return cls(total)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], tokenizer: Tokenizer, *, n: int, special_tokens: str
    ) -> PositionalCounts:
        """Tokenise and count the first ``n`` positions, a batch of texts at a time.

        A text is cut so that it fills at most ``n`` positions with the special tokens that stay
        (:func:`posgeom.counts.tokens.encode` with ``max_len`` = n + the number of dropped ones): the paper's
        n = 65 on SST-2 is ``"drop_cls"`` at maximal length 66.

        Raises
        ------
        ValueError
            when no text reaches position n−1, with the length of the longest; and as
            :func:`posgeom.counts.tokens.encode`.
        """
        n = checks.positive_int(n, "n")
        if hasattr(texts, "__len__") and len(texts) == 0:
            raise ValueError("texts holds no text")
        max_len = n + tokens.dropped(special_tokens)
        if max_len < 3:
            raise ValueError(
                f"n = {n} leaves no room for text with special_tokens={special_tokens!r}: "
                f"use n >= {n + 3 - max_len}"
            )
        batches = tokens.encode_batches(texts, tokenizer, max_len, special_tokens)
        vocab_size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        counts = cls.from_ids((ids for batch in batches for ids in batch), n=n, vocab_size=vocab_size)
        reached = np.flatnonzero(counts.totals)
        if reached.size < n:
            raise ValueError(
                f"no text reaches position {n - 1} (n = {n}): the longest has {reached.size} tokens with "
                f"special_tokens={special_tokens!r}; choose a smaller n"
            )
        return counts

    @property
    def counts(self) -> sparse.csr_matrix:
        # A new matrix over the same read-only arrays: assigning to it cannot reach this object.
        own = self._counts
        matrix = sparse.csr_matrix((own.data, own.indices, own.indptr), shape=own.shape, copy=False)
        matrix.has_canonical_format = True
        return matrix

    @property
    def totals(self) -> np.ndarray:
        return self._totals

    @property
    def n(self) -> int:
        return self._counts.shape[0]

    @property
    def vocab_size(self) -> int:
        return self._counts.shape[1]

    def distributions(self) -> sparse.csr_matrix:
        """mu_i = X_i / N_i: ``(n, V)`` CSR matrix, float64, each row sums to 1.

        Raises
        ------
        ValueError
            for a position that no text reaches (named): it has no distribution.
        """
        empty = np.flatnonzero(self._totals == 0)
        if empty.size:
            raise ValueError(
                f"position {empty[0]} has no distribution: no text reaches it ({empty.size} of {self.n} "
                "positions are empty); count fewer positions, or trim(1)"
            )
        own = self._counts
        weights = own.data / np.repeat(self._totals, np.diff(own.indptr))
        return sparse.csr_matrix((weights, own.indices.copy(), own.indptr.copy()), shape=own.shape)

    def __add__(self, other: PositionalCounts) -> PositionalCounts:
        """Counts of two corpora together; the shorter one is padded with empty positions."""
        if not isinstance(other, PositionalCounts):
            return NotImplemented
        if self.vocab_size != other.vocab_size:
            raise ValueError(
                f"cannot merge counts over {self.vocab_size} tokens with counts over {other.vocab_size}: "
                "both must come from the same tokenizer"
            )
        return PositionalCounts(_padded_sum(self._counts, other._counts))

    def __radd__(self, other: object) -> PositionalCounts:
        # sum(parts) starts from 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def trim(self, min_count: int) -> PositionalCounts:
        """The longest run of positions from 0 on with at least ``min_count`` texts each.

        ``ValueError`` when position 0 has fewer.
        """
        min_count = checks.positive_int(min_count, "min_count")
        short = np.flatnonzero(self._totals < min_count)
        n = int(short[0]) if short.size else self.n
        if n == 0:
            raise ValueError(f"min_count = {min_count}, but position 0 has only {self._totals[0]} texts")
        return PositionalCounts(self._counts[:n])

    def save(self, path: str | os.PathLike) -> None:
        """Write an ``.npz`` file without pickles, readable by ``scipy.sparse.load_npz`` too.

        The file takes its place at the end in one step: a run that is interrupted leaves the old file whole.
        Equal counts give equal arrays in the file.
        """
        path = Path(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with open(part, "wb") as file:
                sparse.save_npz(file, self._counts)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike) -> PositionalCounts:
        """Read what :meth:`save` wrote; ``ValueError`` naming the file if it is anything else."""
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"path must be the path of a file of counts, not {path!r}")
        try:
            matrix = sparse.load_npz(path)
            matrix.check_format(full_check=True)
            return cls(matrix)
        except OSError as error:
            what = error.strerror or error
            raise ValueError(f"{os.fspath(path)} cannot be read as a file of counts: {what}") from error
        except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"{os.fspath(path)} is not a file of positional counts: {error}") from error

    shuffled = staticmethod(shuffled)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionalCounts):
            return NotImplemented
        mine, theirs = self._counts, other._counts
        return mine.shape == theirs.shape and all(
            np.array_equal(getattr(mine, part), getattr(theirs, part))
            for part in ("indptr", "indices", "data")
        )

    def __hash__(self) -> int:
        return hash((self._counts.shape, self._totals.tobytes()))

    def __repr__(self) -> str:
        return (
            f"PositionalCounts(n={self.n}, V={self.vocab_size:,}, texts {self._totals[0]:,} at position 0 "
            f"and {self._totals[-1]:,} at position {self.n - 1})"
        )


def load_counts(name: str) -> PositionalCounts:
    """Counts that come with the package, so that SST-2's geometry needs no text.

    ``"sst2"``: the paper's setting (67,349 phrases, maximal length 66, [CLS] dropped, [SEP] kept, n = 65).
    ``"b_sst2"``: the balanced set (maximal phrases of at least 20 tokens, the first 20, no special tokens).
    ``tools/make_counts.py`` writes both.
    """
    if name not in COUNTS:
        raise ValueError(f"unknown counts {name!r}: choose from {', '.join(map(repr, COUNTS))}")
    with resources.as_file(resources.files("posgeom") / "data" / COUNTS[name]) as path:
        return PositionalCounts.load(path)


def _blocks(ids: Iterable[Sequence[int]] | np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Texts by blocks: index of the first text, their ids one after the other, their lengths."""
    if isinstance(ids, np.ndarray) and ids.dtype != object:
        if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"ids must be an (M, n) array of integers or a list of texts, "
                f"not {ids.dtype} of shape {ids.shape}"
            )
        rows = max(1, BLOCK_TOKENS // max(1, ids.shape[1]))
        for first in range(0, ids.shape[0], rows):
            block = ids[first : first + rows]
            yield first, block.ravel(), np.full(block.shape[0], block.shape[1])
        return
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise ValueError(
            f"ids must be an (M, n) array of integers or a list of texts, not {type(ids).__name__}"
        )
    block: list[np.ndarray] = []
    first = size = 0
    for index, text in enumerate(ids):
        block.append(tokens.text_ids(text, index))
        size += block[-1].size
        if size >= BLOCK_TOKENS:
            yield first, np.concatenate(block), np.array([text.size for text in block])
            block, first, size = [], index + 1, 0
    if block:
        yield first, np.concatenate(block), np.array([text.size for text in block])


def _count_block(
    flat: np.ndarray, lengths: np.ndarray, first: int, n: int | None, vocab_size: int
) -> sparse.csr_matrix:
    if flat.size and (flat.min() < 0 or flat.max() >= vocab_size):
        where = int(np.argmax((flat < 0) | (flat >= vocab_size)))
        ends = np.cumsum(lengths)
        text = int(np.searchsorted(ends, where, side="right"))
        raise ValueError(
            f"text {first + text}, position {where - ends[text] + lengths[text]}: id {flat[where]} is "
            f"outside the vocabulary, 0 … {vocab_size - 1}"
        )
    rows = int(lengths.max()) if n is None else n
    # Cells in one number each: sorted, the equal ones lie side by side.
    whole = np.int32 if max(rows * vocab_size, flat.size) <= np.iinfo(np.int32).max else np.int64
    starts = (np.cumsum(lengths) - lengths).astype(whole)
    cells = np.arange(flat.size, dtype=whole)
    cells -= np.repeat(starts, lengths)
    counted = cells < rows
    cells = cells[counted]
    cells *= whole(vocab_size)
    cells += flat[counted].astype(whole, copy=False)
    cells.sort()
    found = np.flatnonzero(np.diff(cells, prepend=whole(-1)))
    times = np.diff(found, append=len(cells))
    cells = cells[found]
    indptr = np.searchsorted(cells, np.arange(rows + 1, dtype=np.int64) * vocab_size)
    return sparse.csr_matrix((times, cells % whole(vocab_size), indptr), shape=(rows, vocab_size))


def _padded_sum(a: sparse.csr_matrix, b: sparse.csr_matrix) -> sparse.csr_matrix:
    rows = max(a.shape[0], b.shape[0])
    return _with_rows(a, rows) + _with_rows(b, rows)


def _with_rows(matrix: sparse.csr_matrix, rows: int) -> sparse.csr_matrix:
    indptr = np.append(
        matrix.indptr, np.full(rows - matrix.shape[0], matrix.indptr[-1], dtype=matrix.indptr.dtype)
    )
    return sparse.csr_matrix((matrix.data, matrix.indices, indptr), shape=(rows, matrix.shape[1]))
