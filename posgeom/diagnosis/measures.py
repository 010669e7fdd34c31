"""How much positional structure a corpus has, in how many dimensions, and which encoding fits it.

:func:`diagnose` is the whole of it: the command ``posgeom stress`` and the last chapter of the book call it
and print what it returns (:mod:`posgeom.diagnosis.report`).
"""

from __future__ import annotations

import math
import os
import platform
import shlex
import signal
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import squareform
from scipy.stats import rankdata
from scipy.stats import t as student_t

from posgeom import __version__, checks
from posgeom.corpora.named import Corpus
from posgeom.counts.positions import PositionalCounts
from posgeom.counts.running import counts_digest
from posgeom.counts.tokenizers import Tokenisation
from posgeom.diagnosis.reading import (
    Progress,
    Reader,
    Reading,
    Settings,
    choose_n,
    read_corpus,
    special_ids_around,
    states_of_this_run,
    what_was_read,
)
from posgeom.encodings.comparison import SCHEMES
from posgeom.encodings.formulas import power_line
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import pair_stress
from posgeom.laws.power_line import PowerLine, fit_power_line
from posgeom.noise.correction import projected_distances
from posgeom.noise.factored import FactoredGram, cross_gram, leading, leading_above
from posgeom.noise.floor import sampling_floor
from posgeom.noise.nulls import centred_gram
from posgeom.noise.resampling import jackknife

__all__ = [
    "Diagnosis",
    "Interval",
    "SchemeFit",
    "diagnose",
    "measure",
    "plain",
    "versions",
]

DROPPED = 5
WORDS_SHOWN = 5
# Beyond this many seconds of repeated floors a pool of processes pays for its start.
POOL_PAYS = 8.0
# From so many positions on no spectrum is decomposed in full, and no shuffle makes a matrix of distances.
FACTORED_FROM = 1024
LEADING = 32
# A report as JSON holds the distances of all pairs up to so many positions.
DISTANCES_UP_TO = 1024

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


class Interval(NamedTuple):
    """A number with its 95% jackknife interval over texts."""

    value: float
    low: float
    high: float


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
        :class:`~posgeom.counts.positions.PositionalCounts` of the balanced set.
    plug_in, squared
        ``(n, n)`` Hellinger distances, and their squares less the sampling floor.
    mean_plug_in, mean_corrected
        means over pairs of the squared distances before and after.
    noise_share
        the share of ``mean_plug_in`` that is sampling noise.
    eigenvalues, edge, rank, split_rank
        spectrum of the Gram matrix of ``squared``, descending (from 1,024 positions on its leading part, more
        than ``rank``); the largest eigenvalue that order-free texts reach; how many exceed it; the same count
        by two halves of the texts.
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
    def first_share(self) -> float:
        """The share of the first eigenvalue in the sum of all, which is the trace of the Gram matrix."""
        trace = (self.n - 1) / 2 * self.mean_corrected
        return float(self.eigenvalues[0] / trace) if trace > 0 else float("nan")

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
        return plain(
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
                "distances": {"plug_in": self.plug_in.tolist(), "corrected": self.corrected.tolist()}
                if self.n <= DISTANCES_UP_TO
                else None,
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
    dask: str | None = None,
    progress: Progress | None = None,
    **changes,
) -> Diagnosis:
    """Read a corpus and measure its positional structure.

    Parameters
    ----------
    corpus
        a file, a folder, ``"-"``, ``"hf:owner/name:column"``, a corpus by name or in memory
        (:class:`posgeom.corpora.streams.TextSource`).
    settings, changes
        :class:`Settings`, or its fields as arguments: ``column``, ``format``, ``split``, ``whole_files`` (as
        TextSource); ``tokenizer`` (:func:`posgeom.counts.tokenizers.open_tokenizer`); ``n`` positions
        (``None``: the largest of :data:`posgeom.counts.running.CANDIDATES` that half of the texts reach);
        ``special_tokens``
        (``"keep"`` adds [CLS] and [SEP] around the text, ``"drop_cls"`` [SEP] only); ``deduplicate`` (leave
        repeated texts out; takes memory for each text); ``width`` of the encodings; ``shuffles`` for the edge
        of the noise; ``groups`` of the jackknife; ``seed``.
    jobs
        processes that may measure at once. Tokenizers use all cores of their own accord.
    state
        a file that holds the counts so far, written now and then and when the run is interrupted; if it
        exists, the run goes on from there. Deleted at the end.
    dask
        address of a Dask scheduler whose workers tokenise and count; nothing in the diagnosis depends on it.
    progress
        called with a stage in words, the share done (``None``: not known) and the number of texts read.

    Raises
    ------
    CorpusError
        for a corpus that cannot be read or has too little in it.
    ValueError
        for a setting, a tokenizer or a state that cannot be used.
    ClusterError
        for a Dask cluster that cannot be used (:func:`posgeom.counts.workers.on_cluster`).
    """
    settings = _settings(settings, changes)
    progress = progress or (lambda stage, share, texts: None)
    with states_of_this_run(state):
        reader = read_corpus(corpus, settings, state, progress, dask)
        n = choose_n([reader], settings)
        return measure(reader, settings, n, jobs, progress)


def _settings(settings: Settings | None, changes: Mapping) -> Settings:
    if settings is not None and changes:
        raise ValueError("pass settings or its fields, not both")
    try:
        return settings or Settings(**changes)
    except TypeError:
        known = ", ".join(Settings.__dataclass_fields__)
        unknown = ", ".join(name for name in changes if name not in Settings.__dataclass_fields__)
        raise ValueError(f"unknown setting {unknown}: choose from {known}") from None


# --- measuring ------------------------------------------------------------------------------------------


def measure(reader: Reader, settings: Settings, n: int, jobs: int, progress: Progress) -> Diagnosis:
    """The diagnosis of a corpus that has been read, at ``n`` positions of text (:func:`choose_n`)."""
    jobs = checks.positive_int(jobs, "jobs")
    sizes = reader.tally.texts_of(n)
    before, after = special_ids_around(reader.tokens, settings.special_tokens)
    parts = [
        _with_special(part, int(size), before, after)
        for part, size in zip(reader.tally.balanced(n), sizes, strict=True)
        if size
    ]
    sizes = sizes[sizes > 0]
    total = sum(parts[1:], parts[0])
    counts = PositionalCounts(total)
    n, texts = counts.n, int(sizes.sum())

    progress("measuring", 0.0, texts)
    started = time.monotonic()
    plug_in, squared = _distances(counts)
    seconds = time.monotonic() - started
    groups = range(len(parts) if len(parts) > 1 else 0)
    steps = _Steps(settings.shuffles + len(groups) + 1, texts, progress)
    context = _Context(parts, settings, n)
    with _pool(context, jobs, seconds * (settings.shuffles + len(groups)) > POOL_PAYS) as perform:
        largest = steps.of(perform([("shuffled", number) for number in range(settings.shuffles)]))
        edge = float(np.quantile(largest, 0.95, method="higher"))
        # What differs by rounding only is no signal, and neither is an edge of exactly zero.
        floor = max(edge, 1e-12)
        eigenvalues = _eigenvalues(counts, squared, floor)
        rank = int(np.count_nonzero(eigenvalues > floor))
        without = steps.of(perform([("without", group, rank) for group in groups]))
    corrected = _projected(counts, squared, rank)
    member = np.repeat(np.arange(len(parts), dtype=np.int16), sizes)

    def score(docs: np.ndarray) -> np.ndarray:
        present = np.unique(docs)
        if len(present) == len(parts):
            return _numbers(_mean(plug_in**2), _mean(squared), corrected, settings)
        (missing,) = set(range(len(parts))) - set(present.tolist())
        return without[missing]

    positive = bool(plug_in.any())
    line = fit_power_line(corrected) if positive and corrected.any() else None
    estimate = score(member) if positive else np.array([np.nan])
    knife = jackknife(score, member, member) if positive and len(parts) > 1 else None
    intervals = _intervals(estimate, knife)
    schemes = list(FIXED) if line is None else [*FIXED, FITTED]
    table = _table(schemes, line, plug_in, corrected, settings) if positive else []
    exponent = late = None
    if line is not None:
        exponent = intervals[1]
        if n >= 4 * DROPPED and corrected[DROPPED:, DROPPED:].any():
            late = fit_power_line(corrected[DROPPED:, DROPPED:], first=DROPPED)
        behind = _behind(schemes, estimate[2:], knife)
        table = [replace(row, corrected=intervals[2 + k], behind=behind[k]) for k, row in enumerate(table)]
        table.sort(key=lambda row: row.corrected.value)
    progress("measuring", 1.0, texts)
    return Diagnosis(
        reading=what_was_read(reader, settings),
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


def _eigenvalues(counts: PositionalCounts, squared: np.ndarray, floor: float) -> np.ndarray:
    """Eigenvalues of the Gram matrix of ``squared``, descending; of many positions the leading ones."""
    if counts.n < FACTORED_FROM:
        return np.linalg.eigvalsh(centred_gram(squared))[::-1]
    return leading_above(FactoredGram(counts.counts), floor, LEADING)[0]


def _projected(counts: PositionalCounts, squared: np.ndarray, rank: int) -> np.ndarray:
    """Distances along the first ``rank`` axes of ``squared``, which are those of ``counts``."""
    if counts.n < FACTORED_FROM:
        return projected_distances(squared, rank)
    return _along_axes(FactoredGram(counts.counts), rank)


def _along_axes(gram: FactoredGram, rank: int) -> np.ndarray:
    if rank == 0:
        return np.zeros(gram.shape)
    eigenvalues, vectors = leading(gram, rank)
    kept = eigenvalues > 0
    return euclidean_distances(vectors[:, kept] * np.sqrt(eigenvalues[kept]))


def _numbers(plug_in: float, corrected: float, clean: np.ndarray, settings: Settings) -> np.ndarray:
    """Noise share, from the means of squared distances; exponent and scaled stress of each scheme.

    The last two from the corrected distances ``clean``; they are left out where there is no signal.
    """
    share = 1.0 - corrected / plug_in if plug_in > 0 else float("nan")
    if not clean.any():
        return np.array([share])
    line = fit_power_line(clean)
    d = squareform(clean, checks=False)
    fits = [pair_stress(_pairs(name, len(clean), settings), d, scale="optimal") for name in FIXED]
    return np.array([share, line.exponent, *fits, line.stress])


def _pairs(name: str, n: int, settings: Settings) -> np.ndarray:
    """A fixed scheme's dissimilarities of the pairs i < j."""
    scheme = SCHEMES[name](n, settings.width, np.random.default_rng(settings.seed))
    return squareform(scheme, checks=False)


class _Context:
    """The counts of each group, and what is to be done with them; a process of the pool holds one."""

    def __init__(self, parts: list[sparse.csr_matrix], settings: Settings, n: int) -> None:
        self.parts, self.settings, self.factored = parts, settings, n >= FACTORED_FROM

    def perform(self, task: tuple):
        """The largest eigenvalue of shuffled texts, or the numbers without a group of them."""
        kind, number, *rank = task
        if kind == "without":
            rest = [part for group, part in enumerate(self.parts) if group != number]
            return self._without(sum(rest[1:], rest[0]), *rank)
        counts = sum(self.parts[1:], self.parts[0])
        rng = np.random.default_rng([self.settings.seed, number])
        if self.factored:
            # The residual's square is what the eigenvalue is wrong by.
            gram = FactoredGram(_tokens_over_positions(counts, rng))
            return float(leading(gram, 1, tol=1e-6)[0][0])
        return float(np.linalg.eigvalsh(centred_gram(_distances(_over_positions(counts, rng))[1]))[-1])

    def _without(self, counts: sparse.csr_matrix, rank: int) -> np.ndarray:
        if self.factored:
            gram = FactoredGram(counts)
            clean = _along_axes(gram, rank)
            return _numbers(gram.mean_plug_in, gram.mean_corrected, clean, self.settings)
        plug_in, squared = _distances(counts)
        clean = projected_distances(squared, rank)
        return _numbers(_mean(plug_in**2), _mean(squared), clean, self.settings)


class _Steps:
    """Counts steps of a known number aloud."""

    def __init__(self, number: int, texts: int, progress: Progress) -> None:
        self.number, self.done, self.texts, self.progress = number, 0, texts, progress

    def of(self, results: Iterable) -> list:
        """The results, each a step."""
        found = []
        for result in results:
            found.append(result)
            self.done += 1
            self.progress("measuring", self.done / self.number, self.texts)
        return found


@contextmanager
def _pool(context: _Context, jobs: int, pays: bool):
    """What performs tasks in order, at once in several processes where that pays."""
    if jobs == 1 or not pays:
        yield lambda tasks: map(context.perform, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _enter, (context,)) as pool:
        try:
            yield lambda tasks: pool.map(_perform, tasks)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_context: _Context | None = None


def _enter(context: _Context) -> None:
    global _context
    _context = context
    # An interruption is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _perform(task: tuple):
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


def _tokens_over_positions(counts: sparse.csr_matrix, rng: np.random.Generator) -> sparse.csr_matrix:
    """As :func:`_over_positions`, token by token: for many positions of few texts."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(counts.sum(axis=1)).ravel())])
    words = np.asarray(counts.sum(axis=0)).ravel()
    tokens = np.repeat(np.arange(len(words), dtype=np.int32), words)
    rng.shuffle(tokens)
    ones = np.ones(len(tokens), np.int32)
    drawn = sparse.csr_matrix((ones, tokens, ends), shape=counts.shape)
    drawn.sum_duplicates()
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
    if len(centred[0].indptr) > FACTORED_FROM:
        gram = cross_gram(*centred)
        least = -leading(-gram, 1, tol=1e-6)[0][0]
        above = max(-least, 1e-12)
        return int(np.count_nonzero(leading_above(gram, above, LEADING)[0] > above))
    gram = np.asarray((centred[0] @ centred[1].T).todense())
    gram = gram - gram.mean(axis=0)
    gram = gram - gram.mean(axis=1, keepdims=True)
    eigenvalues = np.linalg.eigvalsh((gram + gram.T) / 2.0)
    return int(np.count_nonzero(eigenvalues > max(-eigenvalues[0], 1e-12)))


def _table(
    schemes: list[str],
    line: PowerLine | None,
    plug_in: np.ndarray,
    corrected: np.ndarray,
    settings: Settings,
) -> list[SchemeFit]:
    """Each scheme against the plug-in distances, and by its order against the corrected ones."""
    n = len(plug_in)
    d, clean = squareform(plug_in, checks=False), squareform(corrected, checks=False)
    ranks = rankdata(clean) if line is not None else None
    table = []
    for name in schemes:
        if name == FITTED:
            e = squareform(line.scale * power_line(n, line.exponent), checks=False)
        else:
            e = _pairs(name, n, settings)
        order = None
        if line is not None:
            told = name not in WITHOUT_ORDER[:2] and np.ptp(e) > 0 and np.ptp(clean) > 0
            order = float(np.corrcoef(rankdata(e), ranks)[0, 1]) if told else float("nan")
        fit = SchemeFit(name, pair_stress(e, d), pair_stress(e, d, scale="optimal"), spearman=order)
        table.append(fit)
    return table


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


def _mean(matrix: np.ndarray) -> float:
    n = len(matrix)
    return float(matrix.sum() / (n * (n - 1)))


def plain(value):
    """``value`` as JSON can hold it: intervals by name, NumPy's numbers as Python's, NaN as ``None``."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if isinstance(value, Interval):
            return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
