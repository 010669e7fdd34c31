"""Reading a corpus for a diagnosis: how it is asked for, how it is counted, what was read.

A stream of texts becomes a tally (:mod:`posgeom.counts.running`), batch by batch; an interruption loses no
count.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posgeom import checks
from posgeom.corpora.files import CorpusError
from posgeom.corpora.streams import HubError, TextSource
from posgeom.counts.running import CANDIDATES, Layout, Part, Tally, digests
from posgeom.counts.tokenizers import Tokenisation, open_tokenizer
from posgeom.counts.tokens import CLS, SEP, SPECIAL_TOKENS
from posgeom.counts.workers import ClusterError, Counting, on_cluster, on_this_machine

__all__ = [
    "OPTIONS",
    "Progress",
    "Reader",
    "Reading",
    "Settings",
    "choose_n",
    "read_corpus",
    "special_ids_around",
    "states_of_this_run",
    "what_was_read",
]

BATCH_TEXTS = 1024
BATCH_CHARACTERS = 1 << 21
STATE_SECONDS = 20.0
# What fails from outside is no fault of the texts: what is counted is kept.
OUTAGES = (HubError, ClusterError)
LEAST_POSITIONS = 3
LARGEST_N = 8192
FEWEST_SHUFFLES = 19

Progress = Callable[[str, float | None, int], None]


@dataclass(frozen=True)
class Settings:
    """How a corpus is read and measured; see :func:`posgeom.diagnosis.measures.diagnose`."""

    column: str | None = None
    format: str | None = None
    split: str = "train"
    whole_files: bool = False
    tokenizer: str = "bert-base-uncased"
    n: int | None = None
    special_tokens: str = "drop"
    deduplicate: bool = False
    width: int = 64
    shuffles: int = FEWEST_SHUFFLES
    groups: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n is not None and not LEAST_POSITIONS <= checks.positive_int(self.n, "n") <= LARGEST_N:
            raise ValueError(f"n must be from {LEAST_POSITIONS} to {LARGEST_N:,} positions, not {self.n}")
        checks.positive_int(self.width, "width")
        checks.positive_int(self.shuffles, "shuffles", minimum=FEWEST_SHUFFLES)
        checks.positive_int(self.groups, "groups", minimum=2)
        checks.positive_int(self.seed, "seed", minimum=0)
        if self.special_tokens not in SPECIAL_TOKENS:
            modes = ", ".join(repr(mode) for mode in SPECIAL_TOKENS)
            raise ValueError(f"special_tokens must be one of {modes}, not {self.special_tokens!r}")

    @property
    def options(self) -> list[str]:
        """The options of the command that differ from its defaults."""
        words = []
        default = Settings()
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if value != getattr(default, name):
                words += [option] if value is True else [option, str(value)]
        return words


# field of Settings -> the option of the command
OPTIONS = {
    "n": "-n",
    "tokenizer": "--tokenizer",
    "column": "--column",
    "format": "--format",
    "split": "--split",
    "whole_files": "--whole-files",
    "special_tokens": "--special-tokens",
    "deduplicate": "--deduplicate",
    "width": "--width",
    "shuffles": "--shuffles",
    "groups": "--groups",
    "seed": "--seed",
}


@dataclass(frozen=True)
class Reading:
    """What was read.

    Attributes
    ----------
    name, sources
        the corpus as it was asked for, and the files behind it.
    texts, blank, tokens
        texts that are not blank, blank texts left out, tokens of all texts in full.
    repeated, repeated_exact
        texts that equal an earlier one; scaled up from a sample where that is not exact.
    dropped
        repeated texts that were left out of the counts.
    unknown, special
        tokens that the vocabulary lacks (``None`` without a token for them); special tokens that a text
        spells out.
    longest, median_length
        in tokens.
    reaching
        N_i: how many texts reach position i, for i below the largest candidate for n.
    digest
        of the texts in order, whatever held them.
    tokenizer, tokenizer_digest, vocab_size
        what made the tokens.
    """

    name: str
    sources: tuple[str, ...]
    texts: int
    blank: int
    tokens: int
    repeated: int
    repeated_exact: bool
    dropped: int
    unknown: int | None
    special: int
    longest: int
    median_length: int
    reaching: np.ndarray = field(repr=False)
    digest: str
    tokenizer: str
    tokenizer_digest: str
    vocab_size: int


@contextmanager
def states_of_this_run(*states: str | os.PathLike | None):
    """Delete states at the end, and also when a fault of the texts ends the run that made them.

    A state that was there before is left alone then: it belongs to another run, or waits for another try.
    """
    paths = [Path(state) for state in states if state is not None]
    fresh = [path for path in paths if not path.exists()]
    try:
        yield
    except OUTAGES:
        raise
    except Exception:
        for path in fresh:
            path.unlink(missing_ok=True)
        raise
    for path in paths:
        path.unlink(missing_ok=True)


@dataclass
class Reader:
    """A corpus that has been read: its tally, and what the tally does not know."""

    source: TextSource
    tokens: Tokenisation
    tally: Tally
    dropped: int


def read_corpus(
    corpus,
    settings: Settings,
    state: str | os.PathLike | None,
    progress: Progress,
    dask: str | None = None,
) -> Reader:
    """Read and count all of a corpus, going on from ``state`` where that file exists.

    It is tokenised and counted here, or by the workers of the Dask scheduler at the address ``dask``; the
    counts are the same.

    ``CorpusError`` for a corpus without two different texts, and as TextSource; ``ValueError`` for a
    tokenizer that cannot be had, and for a state of another run; ``ClusterError`` as
    :func:`posgeom.counts.workers.on_cluster`.
    """
    tokens = open_tokenizer(settings.tokenizer)
    before, after = special_ids_around(tokens, settings.special_tokens)
    room = None if settings.n is None else settings.n - len(before) - len(after)
    if room is not None and room < 1:
        raise ValueError(f"n = {settings.n} leaves no room for text beside the special tokens")
    source = TextSource(
        corpus,
        column=settings.column,
        format=settings.format,
        split=settings.split,
        whole_files=settings.whole_files,
    )
    layout = Layout(
        CANDIDATES if room is None else (room,),
        settings.groups,
        tokens.vocab_size,
        special_ids=tokens.special_ids,
        unknown_id=tokens.unknown_id,
    )
    tally = Tally(layout)
    about = {
        "corpus": source.name,
        "column": settings.column,
        "tokenizer": tokens.fingerprint,
        "n": settings.n,
        "special_tokens": settings.special_tokens,
        "deduplicate": settings.deduplicate,
        "groups": settings.groups,
    }
    reader = Reader(source, tokens, tally, 0)
    done = 0
    if state is not None and Path(state).exists():
        beside = tally.load(state, about)
        done = beside["read"]
        reader.dropped = beside["dropped"]
        tokens.known_words(beside["words"])
    counting = on_this_machine(tokens, layout) if dask is None else on_cluster(dask, tokens, layout)
    with counting as counter:
        _count(reader, settings, counter, done, state, about, progress)
    if tally.texts == 0:
        blank = f" ({source.blank} are blank)" if source.blank else ""
        raise CorpusError(f"{source.name} is an empty corpus: it holds no text{blank}")
    if tally.texts == 1:
        raise CorpusError(
            f"{source.name} holds one text only, and one text has no distribution of words at a position: a "
            ".txt file has one text a line, so break a long text into lines"
        )
    if tally.distinct.exact and tally.distinct.distinct == 1:
        raise CorpusError(f"all {tally.texts:,} texts of {source.name} are equal: they are one text")
    return reader


class _Batch(NamedTuple):
    """Texts that are being counted."""

    part: Callable[[], Part]
    texts: list[str]
    keys: np.ndarray
    read: int


def _count(
    reader: Reader,
    settings: Settings,
    counting: Counting,
    done: int,
    state: str | os.PathLike | None,
    about: dict,
    progress: Progress,
) -> None:
    """Tokenise and count all texts but the first ``done``, which an earlier run has counted."""
    source, tokens, tally = reader.source, reader.tokens, reader.tally
    expected, chain = tally.chain, b"\0" * 32
    seen: set[int] = set()
    read, submitted = 0, tally.texts
    saved = time.monotonic()
    waiting: deque[_Batch] = deque()

    def settle(left: int) -> None:
        """Take in the oldest batches until so many are left: whoever counted them, the order is theirs."""
        nonlocal read
        while len(waiting) > left:
            batch = waiting[0]
            part = batch.part()
            with _undivided():
                waiting.popleft()
                tally.add(part, batch.keys)
                tokens.learn(batch.texts)
                read += batch.read
                reader.dropped += batch.read - len(batch.texts)
            progress("reading", source.done, read)

    def save() -> None:
        beside = {"read": read, "dropped": reader.dropped, "words": tokens.words}
        tally.save(state, about, beside)

    try:
        for texts in _batches(source):
            keys, size = digests(texts), len(texts)
            if settings.deduplicate:
                texts, keys = _new(texts, keys, seen)
            if read < done:
                chain = Tally.chained(chain, keys)
                read += size
                if read > done or (read == done and chain != expected):
                    raise ValueError(
                        f"{os.fspath(state)} was written for another content of {source.name}: delete it to "
                        "start anew"
                    )
                continue
            settle(counting.ahead - 1)
            waiting.append(_Batch(counting.submit(texts, submitted), texts, keys, size))
            submitted += len(texts)
            if state is not None and time.monotonic() - saved > STATE_SECONDS:
                save()
                saved = time.monotonic()
        if read < done:
            raise ValueError(
                f"{os.fspath(state)} counts {done:,} texts, but {source.name} holds {read:,}: delete it to "
                "start anew"
            )
        settle(0)
        progress("reading", 1.0, read)
        if state is not None:
            save()
    except BaseException as error:
        interrupted = isinstance(error, OUTAGES) or not isinstance(error, Exception)
        if state is not None and interrupted and read > done:
            save()
        raise


@contextmanager
def _undivided():
    """Let an interruption wait until the block is done: a batch is counted as a whole or not at all."""
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        # Signals reach the main thread only.
        yield
        return
    previous = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    for number in waiting:
        signal.raise_signal(number)


def _batches(source: TextSource):
    """Lists of texts whose ends depend on the texts alone."""
    batch: list[str] = []
    characters = 0
    for text in source:
        batch.append(text)
        characters += len(text)
        if len(batch) == BATCH_TEXTS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _new(batch: list[str], keys: np.ndarray, seen: set[int]) -> tuple[list[str], np.ndarray]:
    kept = []
    for index, key in enumerate(keys[:, 0].tolist()):
        if key not in seen:
            seen.add(key)
            kept.append(index)
    return [batch[index] for index in kept], keys[kept]


def special_ids_around(tokens: Tokenisation, mode: str) -> tuple[list[int], list[int]]:
    """Ids before and after each text; ``ValueError`` when the tokenizer lacks one that is to be kept."""
    ids = []
    for token, stays in zip((CLS, SEP), SPECIAL_TOKENS[mode], strict=True):
        number = tokens.tokenizer.token_to_id(token) if tokens.tokenizer is not None else None
        if stays and number is None:
            raise ValueError(
                f"tokenizer {tokens.name!r} has no {token}, which special tokens {mode!r} keep; use 'drop'"
            )
        ids.append([number] if stays else [])
    return ids[0], ids[1]


def choose_n(readers: list[Reader], settings: Settings) -> int:
    """Positions of text, special tokens apart: those asked for, or what half of the texts of all reach.

    ``CorpusError`` when fewer than two texts are that long.
    """
    choices = []
    for reader in readers:
        tally, name = reader.tally, reader.source.name
        texts = np.array([tally.texts_of(n).sum() for n in tally.layout.lengths])
        if settings.n is None:
            enough = max(2, math.ceil(tally.texts / 2))
            reached = np.flatnonzero(texts >= enough)
            if not reached.size:
                raise CorpusError(
                    f"{name}: fewer than half of the {tally.texts:,} texts have {LEAST_POSITIONS} tokens, "
                    "too few to have an order; choose a tokenizer with shorter tokens, or longer texts"
                )
            choices.append(tally.layout.lengths[reached[-1]])
        else:
            if texts[0] == 0:
                raise CorpusError(
                    f"{name}: no text reaches position {settings.n - 1} (n = {settings.n}): the longest has "
                    f"{tally.longest:,} tokens; choose a smaller n"
                )
            if texts[0] == 1:
                raise CorpusError(
                    f"{name}: one text only reaches position {settings.n - 1} (n = {settings.n}), and one "
                    "text has no distribution of words at a position; choose a smaller n"
                )
            choices.append(tally.layout.lengths[0])
    return min(choices)


def what_was_read(reader: Reader, settings: Settings) -> Reading:
    """The account of a corpus after :func:`read_corpus`."""
    source, tokens, tally = reader.source, reader.tokens, reader.tally
    lengths = tally.by_length.cumsum()
    return Reading(
        name=source.name,
        sources=tuple(source.sources),
        texts=tally.texts + reader.dropped,
        blank=source.blank,
        tokens=tally.tokens,
        repeated=reader.dropped if settings.deduplicate else tally.distinct.repeated,
        repeated_exact=settings.deduplicate or tally.distinct.exact,
        dropped=reader.dropped,
        unknown=None if tokens.unknown_id is None else tally.unknowns,
        special=tally.specials,
        longest=tally.longest,
        median_length=int(np.searchsorted(lengths, (tally.texts + 1) // 2)),
        reaching=tally.reaching(max(tally.layout.lengths)),
        digest=tally.chain.hex(),
        tokenizer=tokens.name,
        tokenizer_digest=tokens.fingerprint,
        vocab_size=tokens.vocab_size,
    )
