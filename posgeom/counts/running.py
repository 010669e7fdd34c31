"""Counts of a stream of texts, in memory that does not grow with it, whole again after an interruption.

A diagnosis counts the first n tokens of every text that has n, and n is to be chosen when all lengths are
known. So the counts are kept by the length of the text: every candidate n can then be had from them, and
nothing is read twice. They are kept by group of texts too, for a jackknife without texts.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from posgeom import checks
from posgeom.counts.positions import PositionalCounts

__all__ = ["CANDIDATES", "DistinctTexts", "Layout", "Part", "Tally", "counts_digest", "digests"]

CANDIDATES = (3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
LENGTHS_KEPT = 1 << 15
BLOCK_CELLS = 1 << 21
FORMAT = 1
NUMBERS = ("texts", "tokens", "specials", "unknowns", "longest")


def digests(texts: Sequence[str]) -> np.ndarray:
    """128-bit digests of texts, ``(N, 2)`` uint64: what tells two texts apart."""
    joined = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts
    )
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2)


class DistinctTexts:
    """How many texts of a stream are repetitions of another one, in bounded memory.

    Exact up to ``room`` different texts. Beyond that the texts whose digest is small are watched, which are
    a random sample (Gibbons 2001, distinct sampling), and their repetitions are scaled up.
    """

    def __init__(self, room: int = 1 << 20) -> None:
        self.room = room
        self.bits = 0
        self.keys = np.empty(0, np.uint64)
        self.times = np.empty(0, np.int64)
        self._waiting: list[np.ndarray] = []

    def add(self, keys: np.ndarray) -> None:
        self._waiting.append(self._watched(np.asarray(keys, np.uint64)))
        if sum(map(len, self._waiting)) >= 1 << 16:
            self.settle()

    def settle(self) -> None:
        """Take in what waits."""
        if not self._waiting:
            return
        keys = np.concatenate([self.keys, *self._waiting])
        times = np.concatenate([self.times, np.ones(len(keys) - len(self.keys), np.int64)])
        self._waiting = []
        self.keys, where = np.unique(keys, return_inverse=True)
        self.times = np.bincount(where, weights=times, minlength=len(self.keys)).astype(np.int64)
        while len(self.keys) > self.room:
            self.bits += 1
            kept = self.keys < self._limit
            self.keys, self.times = self.keys[kept], self.times[kept]

    @property
    def exact(self) -> bool:
        self.settle()
        return self.bits == 0

    @property
    def repeated(self) -> int:
        """Texts that equal an earlier one."""
        self.settle()
        return int((self.times - 1).sum()) << self.bits

    @property
    def distinct(self) -> int:
        self.settle()
        return len(self.keys) << self.bits

    @property
    def _limit(self) -> np.uint64:
        return np.uint64(1 << (64 - self.bits))

    def _watched(self, keys: np.ndarray) -> np.ndarray:
        return keys if self.bits == 0 else keys[keys < self._limit]


@dataclass(frozen=True)
class Layout:
    """Where a token is counted: by length of its text, group of its text, and position.

    Attributes
    ----------
    lengths
        the candidates for n, ascending: a text counts towards the largest one that it reaches.
    groups
        text t of the stream belongs to group ``t mod groups``.
    vocab_size
        V; ids are 0 … V-1.
    special_ids, unknown_id
        tokens to be counted on the side.
    """

    lengths: tuple[int, ...]
    groups: int
    vocab_size: int
    special_ids: tuple[int, ...] = ()
    unknown_id: int | None = None

    def __post_init__(self) -> None:
        for length in self.lengths:
            checks.positive_int(length, "lengths")
        if not self.lengths or any(a >= b for a, b in zip(self.lengths, self.lengths[1:], strict=False)):
            raise ValueError(f"lengths must ascend and hold at least one, not {self.lengths!r}")
        checks.positive_int(self.groups, "groups")
        checks.positive_int(self.vocab_size, "vocab_size")

    @property
    def first_row(self) -> np.ndarray:
        """The row of position 0 for each pair of a length and a group, and the number of rows at the end."""
        return np.concatenate([[0], np.cumsum(np.repeat(self.lengths, self.groups))])

    @property
    def shape(self) -> tuple[int, int]:
        """Of the counts: a row for each length, group and position, a column for each word."""
        return int(self.first_row[-1]), self.vocab_size

    def count(self, ids: Sequence[np.ndarray], first: int) -> Part:
        """Count consecutive texts from the ids of each, the first of them being text ``first`` of the stream.

        ``ValueError`` for an id outside the vocabulary.
        """
        lengths = np.array([len(text) for text in ids], dtype=np.int64)
        flat = np.concatenate([np.empty(0, np.int32), *ids])
        if flat.size and (flat.min() < 0 or flat.max() >= self.vocab_size):
            where = int(np.argmax((flat < 0) | (flat >= self.vocab_size)))
            text = first + int(np.searchsorted(np.cumsum(lengths), where, side="right"))
            raise ValueError(
                f"text {text}: the tokenizer gives the id {flat[where]}, which is outside its vocabulary, "
                f"0 … {self.vocab_size - 1}"
            )
        group = (first + np.arange(len(lengths))) % self.groups
        # Texts shorter than the least candidate are in no class: -1.
        size = np.searchsorted(self.lengths, lengths, side="right") - 1
        counted = size >= 0
        members = np.zeros((len(self.lengths), self.groups), np.int64)
        np.add.at(members, (size[counted], group[counted]), 1)

        starts = np.cumsum(lengths) - lengths
        positions = np.arange(flat.size) - np.repeat(starts, lengths)
        inside = positions < np.repeat(np.where(counted, np.array(self.lengths)[size], 0), lengths)
        row = self.first_row[np.maximum(size * self.groups + group, 0)]
        rows = np.repeat(row, lengths)[inside] + positions[inside]
        special = [number for number in self.special_ids if number != self.unknown_id]
        return Part(
            first=first,
            texts=len(lengths),
            tokens=flat.size,
            longest=int(lengths.max(initial=0)),
            unknowns=0 if self.unknown_id is None else int(np.count_nonzero(flat == self.unknown_id)),
            specials=int(np.isin(flat, special).sum()) if special else 0,
            members=members,
            by_length=np.bincount(np.minimum(lengths, LENGTHS_KEPT), minlength=1),
            cells=_summed(rows, flat[inside], np.ones(len(rows), np.int64), self.shape).tocoo(),
        )


@dataclass(frozen=True)
class Part:
    """What consecutive texts add to a tally: small enough to travel, and it knows its place in the stream."""

    first: int
    texts: int
    tokens: int
    longest: int
    unknowns: int
    specials: int
    members: np.ndarray
    by_length: np.ndarray
    cells: sparse.coo_matrix


class Tally:
    """Counts by length of text, group of texts and position, and what else a report tells of a corpus."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.texts = self.tokens = self.specials = self.unknowns = self.longest = 0
        self.members = np.zeros((len(layout.lengths), layout.groups), np.int64)
        self.by_length = np.zeros(1, np.int64)
        self.distinct = DistinctTexts()
        self.chain = b"\0" * 32
        self._counts = sparse.csr_matrix(layout.shape, dtype=np.int64)
        self._waiting: list[sparse.coo_matrix] = []

    def add(self, part: Part, keys: np.ndarray) -> None:
        """Take in the part that follows, and the digest of each of its texts (:func:`digests`).

        ``ValueError`` for a part that does not follow: no text is counted twice or left out.
        """
        if part.first != self.texts or part.texts != len(keys):
            raise ValueError(
                f"the part of {part.texts} texts from text {part.first} with {len(keys)} digests does not "
                f"follow the {self.texts} texts that are counted"
            )
        for name in ("texts", "tokens", "specials", "unknowns"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.longest = max(self.longest, part.longest)
        self.members += part.members
        self.by_length = _longer_sum(self.by_length, part.by_length)
        self.distinct.add(keys[:, 0])
        self.chain = self.chained(self.chain, keys)
        self._waiting.append(part.cells)
        if sum(cells.nnz for cells in self._waiting) >= BLOCK_CELLS:
            self._settle()

    @staticmethod
    def chained(chain: bytes, keys: np.ndarray) -> bytes:
        """The digest of all texts so far, when the texts with these digests follow."""
        for key in keys:
            chain = hashlib.blake2b(chain + key.tobytes(), digest_size=32).digest()
        return chain

    def reaching(self, positions: int) -> np.ndarray:
        """N_i for i = 0 … positions - 1: how many texts have a token at position i."""
        longer = self.by_length[::-1].cumsum()[::-1][1:]
        reached = np.zeros(positions, np.int64)
        reached[: len(longer)] = longer[:positions]
        return reached

    def texts_of(self, n: int) -> np.ndarray:
        """How many texts of each group have at least n tokens, for a candidate n; ``(groups,)``."""
        return self.members[self._class_of(n) :].sum(axis=0)

    def balanced(self, n: int) -> list[sparse.csr_matrix]:
        """Counts of the first n tokens of every text that has n: ``(n, V)`` CSR for each group."""
        self._settle()
        first, layout = self._class_of(n), self.layout
        parts = []
        for group in range(layout.groups):
            total = sparse.csr_matrix((n, layout.vocab_size), dtype=np.int64)
            for size in range(first, len(layout.lengths)):
                row = layout.first_row[size * layout.groups + group]
                total = total + self._counts[row : row + n]
            parts.append(total)
        return parts

    def _class_of(self, n: int) -> int:
        lengths = self.layout.lengths
        if n not in lengths:
            raise ValueError(f"n = {n} was not a candidate: they are {', '.join(map(str, lengths))}")
        return lengths.index(n)

    def _settle(self) -> None:
        if self._waiting:
            rows, words, times = (
                np.concatenate([getattr(cells, name) for cells in self._waiting])
                for name in ("row", "col", "data")
            )
            self._waiting = []
            self._counts = self._counts + _summed(rows, words, times, self.layout.shape)

    # The state of an interrupted run

    def save(self, path: str | os.PathLike, about: dict, beside: dict | None = None) -> None:
        """Write all of it to one ``.npz`` without pickles, in one step.

        ``about`` says what run it belongs to, ``beside`` is kept with it; both are plain JSON.
        """
        self._settle()
        self.distinct.settle()
        numbers = {name: getattr(self, name) for name in NUMBERS}
        meta = numbers | {
            "format": FORMAT,
            "lengths": self.layout.lengths,
            "groups": self.layout.groups,
            "vocab_size": self.layout.vocab_size,
            "chain": self.chain.hex(),
            "distinct_bits": self.distinct.bits,
            "about": about,
            "beside": beside or {},
        }
        path = Path(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with open(part, "wb") as file:
                np.savez(
                    file,
                    meta=np.frombuffer(json.dumps(meta).encode(), np.uint8),
                    members=self.members,
                    by_length=self.by_length,
                    keys=self.distinct.keys,
                    times=self.distinct.times,
                    data=self._counts.data,
                    indices=self._counts.indices,
                    indptr=self._counts.indptr,
                )
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def load(self, path: str | os.PathLike, about: dict) -> dict:
        """Take the place of what :meth:`save` wrote, and return what was kept beside it.

        ``ValueError`` when the file is none, or belongs to a run with another ``about``.
        """
        try:
            with np.load(path, allow_pickle=False) as held:
                arrays = {name: held[name] for name in held.files}
            meta = json.loads(arrays.pop("meta").tobytes())
            same = meta["format"] == FORMAT and meta["about"] == json.loads(json.dumps(about))
            shape = (tuple(meta["lengths"]), meta["groups"], meta["vocab_size"])
            layout = self.layout
            if same and shape == (layout.lengths, layout.groups, layout.vocab_size):
                self._counts = sparse.csr_matrix(
                    (arrays["data"], arrays["indices"], arrays["indptr"]), shape=self._counts.shape
                )
                self._counts.check_format(full_check=True)
                for name in NUMBERS:
                    setattr(self, name, int(meta[name]))
                self.members, self.by_length = arrays["members"], arrays["by_length"]
                self.chain = bytes.fromhex(meta["chain"])
                self.distinct.bits = meta["distinct_bits"]
                self.distinct.keys, self.distinct.times = arrays["keys"], arrays["times"]
                return meta["beside"]
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"{os.fspath(path)} is not the state of a count: {error}") from error
        was, now = meta["about"], json.loads(json.dumps(about))
        differs = [key for key in now if was.get(key) != now[key]] or ["version"]
        raise ValueError(
            f"{os.fspath(path)} belongs to a run with another {' and '.join(differs)}: delete it to start "
            "anew, or repeat that run"
        )


def _summed(
    rows: np.ndarray, words: np.ndarray, times: np.ndarray, shape: tuple[int, int]
) -> sparse.csr_matrix:
    return sparse.coo_matrix((times, (rows, words)), shape=shape).tocsr()


def counts_digest(counts: PositionalCounts) -> str:
    """SHA-256 of the counts: equal for equal counts, whatever they were read from."""
    matrix = counts.counts
    digest = hashlib.sha256(f"{matrix.shape}".encode())
    for array in (matrix.indptr, matrix.indices, matrix.data):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


def _longer_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros(max(len(a), len(b)), np.int64)
    total[: len(a)] += a
    total[: len(b)] += b
    return total
