"""How much positional structure a corpus has, in how many dimensions, and which encoding fits it.

:func:`diagnose` is the whole of it: the command ``posgeom stress`` and the last chapter of the book call it
and print what it returns (:mod:`posgeom.report`).
"""

from __future__ import annotations

import math
import os
import platform
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import t as student_t

from posgeom import __version__, checks
from posgeom.comparison import SCHEMES, PowerLine, compare_schemes, fit_power_line
from posgeom.corpora import Corpus
from posgeom.corpus_files import CorpusError
from posgeom.distances import hellinger_distances
from posgeom.encodings import power_line
from posgeom.monotonicity import violation_rate
from posgeom.noise import centred_gram, jackknife, projected_distances, sampling_floor
from posgeom.positions import PositionalCounts
from posgeom.stress import rank_agreement, stress
from posgeom.tally import CANDIDATES, Tally, counts_digest, digests
from posgeom.text_sources import TextSource
from posgeom.tokenisation import Tokenisation, open_tokenizer
from posgeom.tokens import CLS, SEP, SPECIAL_TOKENS

__all__ = [
    "Diagnosis",
    "Interval",
    "Reading",
    "SchemeFit",
    "Settings",
    "diagnose",
]

BATCH_TEXTS = 1024
BATCH_CHARACTERS = 1 << 21
STATE_SECONDS = 20.0
LEAST_POSITIONS = 3
LARGEST_N = 8192
FEWEST_SHUFFLES = 19
DROPPED = 5
WORDS_SHOWN = 5
# Beyond this many seconds of repeated floors a pool of processes pays for its start.
POOL_PAYS = 8.0

# The schemes of the table. ALiBi's heads differ by their slope alone, which scaled stress does not see.
FIXED = (
    "simplex",
    "random",
    "sinusoid",
    "RoPE",
    "T5 buckets",
    "ALiBi line (slope 1)",
    "square root of the lag",
    "logarithm line (a = 0)",
)
FITTED = "power line, fitted"
WITHOUT_ORDER = ("NoPE", "simplex", "random")

Progress = Callable[[str, float | None, int], None]


class Interval(NamedTuple):
    """A number with its 95% jackknife interval over texts."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Settings:
    """How a corpus is read and measured; see :func:`diagnose`."""

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


@dataclass(frozen=True)
class SchemeFit:
    """One encoding against the corpus.

    ``raw`` and ``plug_in``: raw and scaled stress on plug-in distances. ``corrected``: scaled stress on
    corrected distances. ``behind``: how much more than the best scheme's that is. ``spearman`` on corrected
    distances, NaN for constant encodings. The last three are ``None`` without a signal.
    """

    scheme: str
    raw: float
    plug_in: float
    corrected: Interval | None = None
    behind: Interval | None = None
    spearman: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` finds.

    Attributes
    ----------
    reading, settings
        what was read, and how.
    n, texts, group_sizes
        positions, the texts that have all of them (the balanced set), and those by jackknife group.
    counts
        :class:`~posgeom.positions.PositionalCounts` of the balanced set.
    plug_in, squared
        ``(n, n)`` Hellinger distances, and their squares less the sampling floor.
    mean_plug_in, mean_corrected
        means over pairs of the squared distances before and after.
    noise_share
        the share of ``mean_plug_in`` that is sampling noise.
    eigenvalues, edge, rank, split_rank
        spectrum of the Gram matrix of ``squared``, descending; the largest eigenvalue that order-free texts
        reach; how many exceed it; the same count by two halves of the texts.
    corrected
        ``(n, n)`` distances along the first ``rank`` axes; zeros without a signal.
    violations_plug_in, violations_corrected
        monotonicity violations of the two; the second is ``None`` without a signal.
    line, exponent, late
        the best power line, its exponent with an interval, and the line without the first positions;
        ``None`` without a signal or positions.
    table
        one :class:`SchemeFit` a scheme; on corrected distances the best first.
    first_words
        (word, share of the texts that begin with it, its share at all positions), the most telling first.
    """

    reading: Reading
    settings: Settings
    n: int
    texts: int
    group_sizes: np.ndarray
    counts: PositionalCounts
    plug_in: np.ndarray
    squared: np.ndarray
    mean_plug_in: float
    mean_corrected: float
    noise_share: Interval | None
    eigenvalues: np.ndarray
    edge: float
    rank: int
    split_rank: int
    corrected: np.ndarray
    violations_plug_in: float
    violations_corrected: float | None
    line: PowerLine | None
    exponent: Interval | None
    late: PowerLine | None
    table: tuple[SchemeFit, ...]
    first_words: tuple[tuple[str, float, float], ...]

    @property
    def command(self) -> str:
        """The command that makes this report."""
        return shlex.join(["posgeom", "stress", self.reading.name, *self.settings.options])

    @property
    def versions(self) -> dict[str, str]:
        return versions()

    @property
    def best(self) -> SchemeFit | None:
        """The scheme that fits best among those that are fixed before a corpus is seen."""
        return next((row for row in self.table if row.corrected is not None and row.scheme != FITTED), None)

    @property
    def ties(self) -> tuple[str, ...]:
        """Schemes without a parameter that these texts do not tell from the best one."""
        if self.best is None:
            return ()
        return tuple(
            row.scheme
            for row in self.table
            if row.scheme not in (FITTED, self.best.scheme) and row.behind is not None and row.behind.low <= 0
        )

    def as_dict(self) -> dict:
        """Everything as plain JSON, NaN as ``None``."""
        reading = asdict(self.reading) | {"reaching": self.reading.reaching.tolist()}
        return _plain(
            {
                "posgeom": __version__,
                "command": self.command,
                "versions": self.versions,
                "read": reading,
                "settings": asdict(self.settings),
                "n": self.n,
                "balanced_texts": self.texts,
                "counts_sha256": counts_digest(self.counts),
                "mean_squared_distance": {"plug_in": self.mean_plug_in, "corrected": self.mean_corrected},
                "noise_share": self.noise_share,
                "eigenvalues": self.eigenvalues.tolist(),
                "edge": self.edge,
                "signal_rank": self.rank,
                "signal_rank_by_halves": self.split_rank,
                "violations": {"plug_in": self.violations_plug_in, "corrected": self.violations_corrected},
                "power_line": None if self.line is None else asdict(self.line),
                "power_line_exponent": self.exponent,
                "power_line_without_first": None
                if self.late is None
                else asdict(self.late) | {"first": DROPPED},
                "schemes": [asdict(row) for row in self.table],
                "best_scheme": None if self.best is None else self.best.scheme,
                "not_told_apart": self.ties,
                "first_words": [
                    {"word": word, "at_the_start": start, "anywhere": anywhere}
                    for word, start, anywhere in self.first_words
                ],
                "distances": {"plug_in": self.plug_in.tolist(), "corrected": self.corrected.tolist()},
            }
        )


def versions() -> dict[str, str]:
    """Versions of what computes a diagnosis."""
    found = {"posgeom": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "tokenizers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


# --- reading --------------------------------------------------------------------------------------------


def diagnose(
    corpus: str | os.PathLike | Corpus | Iterable[str],
    settings: Settings | None = None,
    *,
    jobs: int = 1,
    state: str | os.PathLike | None = None,
    progress: Progress | None = None,
    **changes,
) -> Diagnosis:
    """Read a corpus and measure its positional structure.

    Parameters
    ----------
    corpus
        a file, a folder, ``"-"``, ``"hf:owner/name:column"``, a corpus by name or in memory
        (:class:`posgeom.text_sources.TextSource`).
    settings, changes
        :class:`Settings`, or its fields as arguments: ``column``, ``format``, ``split``, ``whole_files`` (as
        TextSource); ``tokenizer`` (:func:`posgeom.tokenisation.open_tokenizer`); ``n`` positions (``None``:
        the largest of :data:`posgeom.tally.CANDIDATES` that half of the texts reach); ``special_tokens``
        (``"keep"`` adds [CLS] and [SEP] around the text, ``"drop_cls"`` [SEP] only); ``deduplicate`` (leave
        repeated texts out; takes memory for each text); ``width`` of the encodings; ``shuffles`` for the edge
        of the noise; ``groups`` of the jackknife; ``seed``.
    jobs
        processes that may measure at once. Tokenizers use all cores of their own accord.
    state
        a file that holds the counts so far, written now and then and when the run is interrupted; if it
        exists, the run goes on from there. Deleted at the end.
    progress
        called with a stage in words, the share done (``None``: not known) and the number of texts read.

    Raises
    ------
    CorpusError
        for a corpus that cannot be read or has too little in it.
    ValueError
        for a setting, a tokenizer or a state that cannot be used.
    """
    settings = _settings(settings, changes)
    progress = progress or (lambda stage, share, texts: None)
    reader = _read(corpus, settings, state, progress)
    n = _choose_n([reader], settings)
    diagnosis = _measure(reader, settings, n, jobs, progress)
    if state is not None:
        Path(state).unlink(missing_ok=True)
    return diagnosis


def _settings(settings: Settings | None, changes: Mapping) -> Settings:
    if settings is not None and changes:
        raise ValueError("pass settings or its fields, not both")
    try:
        return settings or Settings(**changes)
    except TypeError:
        known = ", ".join(Settings.__dataclass_fields__)
        unknown = ", ".join(name for name in changes if name not in Settings.__dataclass_fields__)
        raise ValueError(f"unknown setting {unknown}: choose from {known}") from None


class _OtherTexts(ValueError):
    """A state of other texts than those that are read."""


@dataclass
class _Reader:
    """A corpus that has been read: its tally, and what the tally does not know."""

    source: TextSource
    tokens: Tokenisation
    tally: Tally
    dropped: int


def _read(corpus, settings: Settings, state: str | os.PathLike | None, progress: Progress) -> _Reader:
    tokens = open_tokenizer(settings.tokenizer)
    before, after = _kept(tokens, settings.special_tokens)
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
    tally = Tally(
        CANDIDATES if room is None else (room,),
        settings.groups,
        tokens.vocab_size,
        special_ids=tokens.special_ids,
        unknown_id=tokens.unknown_id,
    )
    about = {
        "corpus": source.name,
        "column": settings.column,
        "tokenizer": tokens.fingerprint,
        "n": settings.n,
        "special_tokens": settings.special_tokens,
        "deduplicate": settings.deduplicate,
        "groups": settings.groups,
    }
    reader = _Reader(source, tokens, tally, 0)
    done = 0
    if state is not None and Path(state).exists():
        beside = tally.load(state, about)
        done = beside["read"]
        reader.dropped = beside["dropped"]
        tokens.known_words(beside["words"])
    _count(reader, settings, done, state, about, progress)
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


def _count(
    reader: _Reader,
    settings: Settings,
    done: int,
    state: str | os.PathLike | None,
    about: dict,
    progress: Progress,
) -> None:
    """Tokenise and count all texts but the first ``done``, which an earlier run has counted."""
    source, tokens, tally = reader.source, reader.tokens, reader.tally
    expected, chain = tally.chain, b"\0" * 32
    seen: set[int] = set()
    read = 0
    saved = time.monotonic()
    waiting: tuple[Future, np.ndarray, int, int] | None = None

    def settle() -> None:
        nonlocal waiting, read
        if waiting is None:
            return
        future, keys, texts, repeated = waiting
        ids = future.result()
        with _undivided():
            waiting = None
            tally.add(ids, keys)
            read += texts
            reader.dropped += repeated

    def save() -> None:
        beside = {"read": read, "dropped": reader.dropped, "words": tokens.words}
        tally.save(state, about, beside)

    # While one batch is counted, the next one is read and the one between is tokenised.
    pool = ThreadPoolExecutor(1)
    try:
        for batch in _batches(source):
            keys, texts = digests(batch), len(batch)
            if settings.deduplicate:
                batch, keys = _new(batch, keys, seen)
            if read < done:
                chain = Tally.chained(chain, keys)
                read += texts
                if read > done or (read == done and chain != expected):
                    raise _OtherTexts(
                        f"{os.fspath(state)} was written for another content of {source.name}: delete it to "
                        "start anew"
                    )
                continue
            settle()
            waiting = (pool.submit(tokens.ids, batch), keys, texts, texts - len(batch))
            progress("reading", source.done, read)
            if state is not None and time.monotonic() - saved > STATE_SECONDS:
                settle()
                save()
                saved = time.monotonic()
        if read < done:
            raise _OtherTexts(
                f"{os.fspath(state)} counts {done:,} texts, but {source.name} holds {read:,}: delete it to "
                "start anew"
            )
        settle()
        progress("reading", 1.0, read)
        if state is not None:
            save()
    except BaseException as error:
        if state is not None:
            # An interruption, or a hub that fails, is no fault of the texts: what is counted is kept.
            if isinstance(error, _OtherTexts):
                pass
            elif isinstance(error, Exception) and not source.remote:
                Path(state).unlink(missing_ok=True)
            elif read > done:
                save()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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


def _kept(tokens: Tokenisation, mode: str) -> tuple[list[int], list[int]]:
    """Ids before and after each text."""
    ids = []
    for token, stays in zip((CLS, SEP), SPECIAL_TOKENS[mode], strict=True):
        number = tokens.tokenizer.token_to_id(token) if tokens.tokenizer is not None else None
        if stays and number is None:
            raise ValueError(
                f"tokenizer {tokens.name!r} has no {token}, which special tokens {mode!r} keep; use 'drop'"
            )
        ids.append([number] if stays else [])
    return ids[0], ids[1]


def _choose_n(readers: list[_Reader], settings: Settings) -> int:
    """Positions of text (special tokens apart): those asked for, or what half of the texts reach."""
    choices = []
    for reader in readers:
        tally, name = reader.tally, reader.source.name
        texts = np.array([tally.texts_of(n).sum() for n in tally.lengths])
        if settings.n is None:
            enough = max(2, math.ceil(tally.texts / 2))
            reached = np.flatnonzero(texts >= enough)
            if not reached.size:
                raise CorpusError(
                    f"{name}: fewer than half of the {tally.texts:,} texts have {LEAST_POSITIONS} tokens, "
                    "too few to have an order; choose a tokenizer with shorter tokens, or longer texts"
                )
            choices.append(tally.lengths[reached[-1]])
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
            choices.append(tally.lengths[0])
    return min(choices)


def _reading(reader: _Reader, settings: Settings) -> Reading:
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
        reaching=tally.reaching(max(tally.lengths)),
        digest=tally.chain.hex(),
        tokenizer=tokens.name,
        tokenizer_digest=tokens.fingerprint,
        vocab_size=tokens.vocab_size,
    )


# --- measuring ------------------------------------------------------------------------------------------


def _measure(reader: _Reader, settings: Settings, n: int, jobs: int, progress: Progress) -> Diagnosis:
    jobs = checks.positive_int(jobs, "jobs")
    sizes = reader.tally.texts_of(n)
    before, after = _kept(reader.tokens, settings.special_tokens)
    parts = [
        _with_special(part, int(size), before, after)
        for part, size in zip(reader.tally.balanced(n), sizes, strict=True)
        if size
    ]
    sizes = sizes[sizes > 0]
    total = sum(parts[1:], parts[0])
    counts = PositionalCounts(total)
    n, texts = counts.n, int(sizes.sum())

    started = time.monotonic()
    progress("measuring", 0.0, texts)
    plug_in, squared = _distances(counts)
    seconds = time.monotonic() - started
    tasks = [("without", group) for group in range(len(parts) if len(parts) > 1 else 0)]
    tasks += [("shuffled", number) for number in range(settings.shuffles)]
    context = _Context(parts, settings.seed)
    results = {}
    pool_pays = jobs > 1 and seconds * len(tasks) > POOL_PAYS
    pool = (
        ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn"), _enter, (context,))
        if pool_pays
        else nullcontext()
    )
    try:
        with pool:
            found = pool.map(_perform, tasks) if pool_pays else map(context.perform, tasks)
            for number, (task, result) in enumerate(zip(tasks, found, strict=True), start=1):
                results[task] = result
                progress("measuring", number / (len(tasks) + 1), texts)
    except BaseException:
        if pool_pays:
            pool.shutdown(wait=False, cancel_futures=True)
        raise
    edge = float(
        np.quantile([results["shuffled", k] for k in range(settings.shuffles)], 0.95, method="higher")
    )
    eigenvalues = np.linalg.eigvalsh(centred_gram(squared))[::-1]
    # What differs by rounding only is no signal, and neither is an edge of exactly zero.
    floor = max(edge, 1e-12)
    rank = int(np.count_nonzero(eigenvalues > floor))
    corrected = projected_distances(squared, rank)
    encodings = _encodings(n, settings)
    member = np.repeat(np.arange(len(parts), dtype=np.int16), sizes)

    def numbers(plug_in: np.ndarray, squared: np.ndarray) -> np.ndarray:
        clean = projected_distances(squared, rank)
        share = _noise_share(plug_in, squared)
        if rank == 0 or not clean.any():
            return np.array([share])
        line = fit_power_line(clean)
        fits = [stress(encodings[name], clean, scale="optimal") for name in FIXED]
        return np.array([share, line.exponent, *fits, line.stress])

    def score(docs: np.ndarray) -> np.ndarray:
        present = np.unique(docs)
        if len(present) == len(parts):
            return numbers(plug_in, squared)
        (missing,) = set(range(len(parts))) - set(present.tolist())
        return numbers(*results["without", missing])

    positive = bool(plug_in.any())
    line = fit_power_line(corrected) if positive and corrected.any() else None
    estimate = score(member) if positive else np.array([np.nan])
    knife = jackknife(score, member, member) if positive and len(parts) > 1 else None
    intervals = _intervals(estimate, knife)
    if line is not None:
        encodings = encodings | {FITTED: line.scale * power_line(n, line.exponent)}
    table = _plug_in_table(plug_in, encodings, settings) if positive else []
    exponent = late = None
    if line is not None:
        exponent = intervals[1]
        if n >= 4 * DROPPED and corrected[DROPPED:, DROPPED:].any():
            late = fit_power_line(corrected[DROPPED:, DROPPED:], first=DROPPED)
        behind = _behind(list(encodings), estimate[2:], knife)
        order = [
            float("nan") if name in WITHOUT_ORDER[:2] else rank_agreement(E, corrected)[0]
            for name, E in encodings.items()
        ]
        table = [
            SchemeFit(row.scheme, row.raw, row.plug_in, intervals[2 + k], behind[k], order[k])
            for k, row in enumerate(table)
        ]
        table.sort(key=lambda row: row.corrected.value)
    progress("measuring", 1.0, texts)
    return Diagnosis(
        reading=_reading(reader, settings),
        settings=settings,
        n=n,
        texts=texts,
        group_sizes=sizes,
        counts=counts,
        plug_in=plug_in,
        squared=squared,
        mean_plug_in=_mean(plug_in**2),
        mean_corrected=_mean(squared),
        noise_share=intervals[0] if positive else None,
        eigenvalues=eigenvalues,
        edge=edge,
        rank=rank,
        split_rank=_split_rank(parts),
        corrected=corrected,
        violations_plug_in=violation_rate(plug_in),
        violations_corrected=violation_rate(corrected) if rank else None,
        line=line,
        exponent=exponent,
        late=late,
        table=tuple(table),
        first_words=_first_words(counts, reader.tokens, len(before)),
    )


def _distances(counts) -> tuple[np.ndarray, np.ndarray]:
    """Plug-in distances, and their squares less the sampling floor."""
    plug_in = hellinger_distances(counts)
    return plug_in, plug_in**2 - sampling_floor(counts)


class _Context:
    """The counts of each group, and what is to be done with them; a process of the pool holds one."""

    def __init__(self, parts: list[sparse.csr_matrix], seed: int) -> None:
        self.parts, self.seed = parts, seed

    def perform(self, task: tuple[str, int]):
        kind, number = task
        if kind == "without":
            rest = [part for group, part in enumerate(self.parts) if group != number]
            return _distances(sum(rest[1:], rest[0]))
        counts = _over_positions(
            sum(self.parts[1:], self.parts[0]), np.random.default_rng([self.seed, number])
        )
        return float(np.linalg.eigvalsh(centred_gram(_distances(counts)[1]))[-1])


_context: _Context | None = None


def _enter(context: _Context) -> None:
    global _context
    _context = context
    # An interruption is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _perform(task: tuple[str, int]):
    return _context.perform(task)


def _over_positions(counts: sparse.csr_matrix, rng: np.random.Generator) -> np.ndarray:
    """All tokens in a random order over all positions, the totals of positions and of words kept.

    The same law as shuffling the tokens one by one, in memory that their number does not enter: position by
    position a multivariate hypergeometric draw from what is left.
    """
    left = np.asarray(counts.sum(axis=0)).ravel()
    left = left[left > 0]
    drawn = np.empty((counts.shape[0], len(left)), np.int64)
    for position, size in enumerate(np.asarray(counts.sum(axis=1)).ravel()):
        drawn[position] = rng.multivariate_hypergeometric(left, int(size), method="marginals")
        left = left - drawn[position]
    return drawn


def _with_special(
    part: sparse.csr_matrix, texts: int, before: list[int], after: list[int]
) -> sparse.csr_matrix:
    def row(number: int) -> sparse.csr_matrix:
        return sparse.csr_matrix(
            (np.array([texts], np.int64), ([0], [number])), shape=(1, part.shape[1]), dtype=np.int64
        )

    return sparse.vstack([*map(row, before), part, *map(row, after)], format="csr", dtype=np.int64)


def _split_rank(parts: list[sparse.csr_matrix]) -> int:
    """Eigenvalues of the cross-Gram matrix of two halves above the size of its most negative one."""
    if len(parts) < 2:
        return 0
    centred = []
    for half in (parts[::2], parts[1::2]):
        counts = sum(half[1:], half[0]).astype(np.float64)
        roots = sparse.diags(1.0 / np.asarray(counts.sum(axis=1)).ravel()) @ counts
        centred.append(roots.sqrt())
    gram = np.asarray((centred[0] @ centred[1].T).todense())
    gram = gram - gram.mean(axis=0)
    gram = gram - gram.mean(axis=1, keepdims=True)
    eigenvalues = np.linalg.eigvalsh((gram + gram.T) / 2.0)
    return int(np.count_nonzero(eigenvalues > max(-eigenvalues[0], 1e-12)))


def _encodings(n: int, settings: Settings) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(settings.seed)
    return {name: SCHEMES[name](n, settings.width, rng) for name in FIXED}


def _plug_in_table(
    plug_in: np.ndarray, encodings: dict[str, np.ndarray], settings: Settings
) -> list[SchemeFit]:
    return [
        SchemeFit(row.scheme, row.raw_stress, row.scaled_stress)
        for row in compare_schemes(plug_in, encodings, d=settings.width, rng=settings.seed)
    ]


def _intervals(estimate: np.ndarray, knife) -> list[Interval]:
    low, high = (estimate, estimate) if knife is None else (knife.low, knife.high)
    if knife is None:
        low = high = np.full(len(estimate), np.nan)
    return [Interval(*map(float, triple)) for triple in zip(estimate, low, high, strict=True)]


def _behind(names: list[str], fits: np.ndarray, knife) -> list[Interval]:
    """Each scheme's corrected stress less that of the best fixed one, with the interval of the difference."""
    fixed = [k for k, name in enumerate(names) if name != FITTED]
    best = min(fixed, key=lambda k: fits[k])
    difference = fits - fits[best]
    if knife is None:
        return [Interval(float(value), float("nan"), float("nan")) for value in difference]
    groups = len(knife.replicates)
    replicates = knife.replicates[:, 2:] - knife.replicates[:, 2 + best, None]
    # Tukey's formula: the groups are as good as even.
    spread = replicates - replicates.mean(axis=0)
    error = np.sqrt((groups - 1) / groups * (spread**2).sum(axis=0))
    reach = student_t.ppf(0.975, groups - 1) * error
    return [
        Interval(float(value), float(value - width), float(value + width))
        for value, width in zip(difference, reach, strict=True)
    ]


def _first_words(
    counts: PositionalCounts, tokens: Tokenisation, first: int
) -> tuple[tuple[str, float, float], ...]:
    """Words of the first position of text by what they add to its distance from all positions together."""
    start = np.asarray(counts.counts[first].todense()).ravel() / counts.totals[first]
    anywhere = np.asarray(counts.counts.sum(axis=0)).ravel() / counts.totals.sum()
    gain = (np.sqrt(start) - np.sqrt(anywhere)) ** 2 * (start > anywhere)
    words = np.argsort(-gain, kind="stable")[:WORDS_SHOWN]
    return tuple(
        (tokens.word(int(word)), float(start[word]), float(anywhere[word]))
        for word in words
        if gain[word] > 0
    )


def _noise_share(plug_in: np.ndarray, squared: np.ndarray) -> float:
    before = _mean(plug_in**2)
    return 1.0 - _mean(squared) / before if before > 0 else float("nan")


def _mean(matrix: np.ndarray) -> float:
    n = len(matrix)
    return float(matrix.sum() / (n * (n - 1)))


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if isinstance(value, Interval):
            return {name: _plain(item) for name, item in zip(value._fields, value, strict=True)}
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
