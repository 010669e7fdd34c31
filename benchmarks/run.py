"""Measures posgeom beside what one would use without it, on the 25,000 reviews of IMDB.

Every comparison runs in this process on one thread: both sides get the same input, their answers are checked
against each other first, and then they take turns, so that a busy moment of the machine meets both. A ratio
is the median over the turns, with its range. ``make bench`` runs it and writes ``benchmarks/RESULTS.md``; the
times of every turn go to ``_build/bench.json``, which ``python -m pyperf show`` and ``compare_to`` read.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path

import numpy as np
import pyperf
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform
from skbio import DistanceMatrix
from skbio.stats.ordination import pcoa
from sklearn.manifold import ClassicalMDS
from sklearn.manifold import smacof as sklearn_smacof
from threadpoolctl import threadpool_limits

from posgeom.corpora.named import load_corpus
from posgeom.counts.positions import PositionalCounts
from posgeom.counts.tokens import encode, load_tokenizer
from posgeom.encodings.formulas import alibi_distances
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.geometry.mds import classical_mds, gram_matrix, smacof
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import stress
from posgeom.noise.floor import sampling_floor

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")
TIMES = ROOT / "_build" / "bench.json"
N = 254


# --- measuring ------------------------------------------------------------------------------------------


@dataclass
class Times:
    """Seconds of each turn, by side."""

    seconds: dict[str, list[float]]

    def ratios(self, slow: str, fast: str) -> list[float]:
        return [a / b for a, b in zip(self.seconds[slow], self.seconds[fast], strict=True)]


@dataclass
class Report:
    """Lines of the results, and the times behind them."""

    rows: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    growth: list[tuple[str, list[tuple[int, float]]]] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)

    def take_turns(self, name: str, turns: int, **sides: Callable[[], object]) -> Times:
        """Each side once a turn, the order reversed every other turn."""
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(turns):
            for side, call in list(sides.items())[:: -1 if turn % 2 else 1]:
                gc.collect()
                started = time.perf_counter()
                call()
                seconds[side].append(time.perf_counter() - started)
        for side, values in seconds.items():
            self.times[f"{name}, {side}"] = values
        return Times(seconds)

    def row(self, what: str, beside: str, target: str, measured: str, met: bool | None) -> None:
        verdict = {True: "met", False: "**SHORT**", None: ""}[met]
        self.rows.append((what, beside, target, measured, verdict))
        say(f"  {what} | {beside} | {target} | {measured} | {verdict}")

    def at_least(self, what: str, beside: str, target: float, ratios: list[float], note: str = "") -> None:
        ratio = statistics.median(ratios)
        self.row(what, beside, f"≥ {target:g} ×", f"{_spread(ratios)} ×{note}", ratio >= target)


def say(line: str) -> None:
    print(line, flush=True)


def _fewer(turns: int) -> int:
    """Turns of what takes a minute."""
    return max(2, (turns + 1) // 2)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} – {max(values):.3g}, {len(values)} turns)"


def _peak(call: Callable[[], object]) -> float:
    """Megabytes that a call holds at most, beside what was there."""
    gc.collect()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def _close(ours, theirs, atol: float) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


class Data:
    """IMDB, tokenised once; and long texts made of it."""

    def __init__(self, texts: int) -> None:
        self.texts = load_corpus("imdb").texts[:texts]
        self.tokenizer = load_tokenizer()

    @cached_property
    def ids(self) -> list[np.ndarray]:
        return encode(self.texts, self.tokenizer, max_len=10**6, special_tokens="drop")

    @cached_property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def counts(self, n: int) -> PositionalCounts:
        """Of the first n tokens of the reviews that have n."""
        return PositionalCounts.from_ids(
            [text[:n] for text in self.ids if len(text) >= n], n=n, vocab_size=self.vocab_size
        )

    def windows(self, n: int) -> PositionalCounts:
        """Of texts of n tokens, each a review and the reviews after it: no review is that long alone."""
        flat = np.concatenate(self.ids)
        starts = np.concatenate([[0], np.cumsum([len(text) for text in self.ids])])
        texts, position = [], 0
        while position + n <= len(flat):
            texts.append(flat[position : position + n])
            position = int(starts[np.searchsorted(starts, position + n)])
        return PositionalCounts.from_ids(np.stack(texts), vocab_size=self.vocab_size)


# --- the comparisons ------------------------------------------------------------------------------------


def counting(report: Report, data: Data, turns: int) -> None:
    as_lists = [text.tolist() for text in data.ids]

    def ours() -> PositionalCounts:
        return PositionalCounts.from_ids(data.ids, n=N, vocab_size=data.vocab_size)

    def token_by_token() -> list[Counter]:
        counters = [Counter() for _ in range(N)]
        for text in as_lists:
            for counter, token in zip(counters, text, strict=False):
                counter[token] += 1
        return counters

    def column_by_column() -> list[Counter]:
        return [Counter([text[i] for text in as_lists if len(text) > i]) for i in range(N)]

    def tokenise() -> object:
        return encode(data.texts, data.tokenizer, max_len=N + 2, special_tokens="drop")

    counts = ours().counts
    for counters in (token_by_token(), column_by_column()):
        for i in range(N):
            row = counts[i]
            assert dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) == dict(counters[i])
    times = report.take_turns("counting", turns, posgeom=ours, loop=token_by_token, columns=column_by_column)
    what = f"counting {len(data.texts):,} texts, n = {N}"
    report.at_least(what, "a Counter a position, token by token", 20, times.ratios("loop", "posgeom"))
    ratios = times.ratios("columns", "posgeom")
    report.row(what, "a Counter a position, column by column", "", f"{_spread(ratios)} ×", None)
    for threads, parallel in ((1, "false"), (os.cpu_count() or 1, "true")):
        os.environ["TOKENIZERS_PARALLELISM"] = parallel
        times = report.take_turns(f"tokenising on {threads}", _fewer(turns), posgeom=ours, tokenise=tokenise)
        shares = [100 * ratio for ratio in times.ratios("posgeom", "tokenise")]
        beside = f"tokenising them on {threads} thread{'s' if threads > 1 else ''}"
        report.row(what, beside, "≤ 10 %", f"{_spread(shares)} %", statistics.median(shares) <= 10)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def hellinger(report: Report, data: Data, turns: int) -> None:
    n = 512
    counts = data.counts(n)

    def dense() -> np.ndarray:
        roots = counts.counts.toarray() / counts.totals[:, None]
        return squareform(pdist(np.sqrt(roots, out=roots)))

    def ours() -> np.ndarray:
        return hellinger_distances(counts)

    _close(ours(), dense(), 1e-12)
    times = report.take_turns("hellinger", turns, posgeom=ours, pdist=dense)
    what = f"Hellinger distances, n = {n}, V = {counts.vocab_size:,}"
    report.at_least(what, "SciPy `pdist` on dense rows", 5, times.ratios("pdist", "posgeom"))
    report.row(f"{what}: memory", "the same", "", f"{_peak(ours):.0f} MB beside {_peak(dense):.0f} MB", None)


def scaling(report: Report, data: Data, turns: int) -> None:
    n = 4096
    noisy = hellinger_distances(data.windows(n))
    _scaling(report, turns, "reviews joined, a flat spectrum of noise", noisy)
    _scaling(report, turns, "square root of the lag, a steep spectrum", np.sqrt(alibi_distances(n)))


def _scaling(report: Report, turns: int, kind: str, D: np.ndarray) -> None:
    n, d = len(D), 10
    truth = eigh(gram_matrix(D), eigvals_only=True, subset_by_index=[n - d, n - 1])[::-1]

    def ours() -> np.ndarray:
        return classical_mds(D, d).points

    def sklearn() -> np.ndarray:
        return ClassicalMDS(n_components=d, metric="precomputed").fit_transform(D)

    def fsvd() -> object:
        with warnings.catch_warnings():
            # It says that fsvd is approximate: that is measured here.
            warnings.simplefilter("ignore")
            return pcoa(DistanceMatrix(D), method="fsvd", dimensions=d, seed=0)

    def error(eigenvalues: np.ndarray) -> float:
        return float(np.max(np.abs(eigenvalues / truth - 1)))

    points, other, approximate = ours(), sklearn(), fsvd()
    _close(np.abs(points), np.abs(other), 1e-6 * np.abs(points).max())
    own, theirs = error((points**2).sum(axis=0)), error(approximate.eigvals.to_numpy()[:d])
    times = report.take_turns(f"scaling, {kind}", turns, posgeom=ours, fsvd=fsvd)
    both = report.take_turns(f"scaling, {kind}, in full", _fewer(turns), posgeom=ours, sklearn=sklearn)
    what = f"classical scaling to {d} of n = {n:,} ({kind})"
    report.at_least(what, "scikit-learn `ClassicalMDS`", 5, both.ratios("sklearn", "posgeom"))
    report.at_least(what, 'scikit-bio `pcoa(method="fsvd")`', 1, times.ratios("fsvd", "posgeom"))
    measured = f"{own:.1e} beside {theirs:.1e}"
    report.row(f"{what}: error of eigenvalues", "the same, against `eigh`", "smaller", measured, own < theirs)


def majorisation(report: Report, data: Data, turns: int) -> None:
    for n, d in ((64, 2), (N, 2), (N, 8)):
        D = hellinger_distances(data.counts(n))
        start = classical_mds(D, d).points

        def theirs(D=D, d=d, start=start) -> np.ndarray:
            arguments = {"n_init": 1, "max_iter": 20_000, "eps": 1e-9, "normalized_stress": False}
            return sklearn_smacof(D, n_components=d, init=start, metric=True, n_jobs=1, **arguments)[0]

        goal = stress(euclidean_distances(theirs()), D)
        # The loosest of these tolerances that reaches their stress.
        for tol in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12):
            reached = stress(euclidean_distances(smacof(D, d, init=start, tol=tol).points), D)
            if reached <= goal * (1 + 1e-7):
                break

        def ours(D=D, d=d, start=start, tol=tol) -> np.ndarray:
            return smacof(D, d, init=start, tol=tol).points

        times = report.take_turns(f"smacof {n} {d}", _fewer(turns), posgeom=ours, sklearn=theirs)
        ratios = times.ratios("sklearn", "posgeom")
        note = f"; stress {reached:.6f} beside {goal:.6f}"
        what = f"SMACOF to d = {d}, n = {n}"
        if reached > goal * (1 + 1e-7):
            report.row(what, "scikit-learn `smacof`", "≥ 4 ×", f"{_spread(ratios)} ×{note}", False)
        else:
            report.at_least(what, "scikit-learn `smacof`, to its stress", 4, ratios, note)


def violations(report: Report, data: Data, turns: int) -> None:
    n = 2048
    D = hellinger_distances(data.windows(n))
    position = np.arange(n)

    def cubic() -> float:
        violated = triples = 0
        for i in range(n):
            lag = np.abs(position - i)
            others = position[position != i]
            nearer = lag[others, None] < lag[None, others]
            row = D[i, others]
            violated += np.count_nonzero(nearer & (row[:, None] > row[None, :]))
            triples += np.count_nonzero(nearer)
        return violated / triples

    def ours() -> float:
        return violation_rate(D)

    assert ours() == cubic()
    times = report.take_turns("violations", 2, posgeom=ours, cubic=cubic)
    what = f"violation rate, n = {n:,}"
    report.at_least(what, "all triples, vectorised", 10, times.ratios("cubic", "posgeom"))


def floor(report: Report, data: Data, turns: int) -> None:
    counts = data.counts(N)
    times = report.take_turns("floor", turns, posgeom=lambda: sampling_floor(counts))
    seconds = _spread(times.seconds["posgeom"])
    report.row(
        f"sampling floor F, n = {N}, {counts.totals[0]:,} tokens a position",
        "",
        "seconds",
        f"{seconds} s",
        times.seconds["posgeom"][0] < 10,
    )


def imports(report: Report, data: Data, turns: int) -> None:
    def run(statement: str) -> Callable[[], object]:
        command = [sys.executable, "-c", statement]
        return lambda: subprocess.run(command, check=True)

    sides = {"nothing": "pass", "numpy": "import numpy", "posgeom": "import posgeom"}
    times = report.take_turns("imports", 4 * turns, **{side: run(code) for side, code in sides.items()})
    least = {side: 1000 * min(seconds) for side, seconds in times.seconds.items()}
    beside = f"nothing: {least['nothing']:.0f} ms; NumPy: {least['numpy']:.0f} ms"
    report.row("a process that imports posgeom", beside, "", f"{least['posgeom']:.0f} ms", None)


def book(report: Report, data: Data, turns: int) -> None:
    """What the last build of the book noted for each chapter."""
    stamps = sorted((ROOT / "_build" / "executed" / "notebooks").glob("*.key.json"))
    seconds = [json.loads(stamp.read_text(encoding="utf-8"))["seconds"] for stamp in stamps]
    chapters = sorted((ROOT / "notebooks").glob("*.ipynb"))
    if not seconds:
        raise SystemExit("no chapter has been run: `make book` first, or leave the section out with --only")
    measured = (
        f"{sum(seconds):.0f} s for {len(seconds)} of {len(chapters)}, at most {max(seconds):.0f} s each"
    )
    report.row(
        "the chapters, one after the other",
        "wall time when each was last run, whatever else ran",
        "",
        measured,
        None,
    )


# --- growth ---------------------------------------------------------------------------------------------


def growth(report: Report, data: Data, turns: int) -> None:
    def grow(name: str, sizes: list[int], call_of: Callable[[int], Callable[[], object]]) -> None:
        points = []
        for size in sizes:
            times = report.take_turns(f"{name} at {size}", _fewer(turns), posgeom=call_of(size))
            points.append((size, min(times.seconds["posgeom"])))
        report.growth.append((name, points))
        say(f"  {name}: " + ", ".join(f"{size:,}: {seconds:.3g} s" for size, seconds in points))

    most = len(data.texts)
    texts = [size for size in (1000, 2500, 5000, 10_000, 25_000) if size <= most]
    counted = {size: data.ids[:size] for size in texts}
    grow(
        f"counting, by texts (n = {N})",
        texts,
        lambda size: lambda: PositionalCounts.from_ids(counted[size], n=N, vocab_size=data.vocab_size),
    )
    sizes = [64, 128, 256, 512, 1024, 2048, 4096]
    windows = data.windows(sizes[-1])
    counts = {size: PositionalCounts(windows.counts[:size]) for size in sizes}
    grow("Hellinger distances, by n", sizes, lambda size: lambda: hellinger_distances(counts[size]))
    grow("sampling floor, by n", sizes, lambda size: lambda: sampling_floor(counts[size]))
    D = hellinger_distances(windows)
    grow("violation rate, by n", sizes, lambda size: lambda: violation_rate(D[:size, :size]))
    grow("classical scaling to 10, by n", sizes, lambda size: lambda: classical_mds(D[:size, :size], 10))
    D = D[:N, :N]
    widths = [1, 2, 4, 8, 16, 32, 64]
    grow(f"classical scaling, by d (n = {N})", widths, lambda d: lambda: classical_mds(D, d))
    grow(f"SMACOF, 50 passes, by d (n = {N})", widths[1:], lambda d: lambda: smacof(D, d, max_iter=50, tol=0))


def _exponent(points: list[tuple[int, float]]) -> float:
    size, seconds = np.log(np.array(points, dtype=float).T)
    return float(np.polyfit(size, seconds, 1)[0])


# --- results --------------------------------------------------------------------------------------------


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(
        f"{name} {metadata.version(name)}"
        for name in ("numpy", "scipy", "tokenizers", "scikit-learn", "scikit-bio")
    )
    cores = os.cpu_count()
    return (
        f"{cores} {platform.machine()} cores, {memory:.0f} GB, {platform.system()}, "
        f"Python {platform.python_version()}, {versions}"
    )


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *rows)]


def markdown(report: Report, data: Data) -> str:
    lines = [
        "# Benchmarks",
        "",
        f"`make bench` wrote this page. Corpus: the {len(data.texts):,} training reviews of IMDB.",
        f"Machine: {_machine()}.",
        "",
        "Both sides of a comparison run in one process on one thread (where nothing else is said) and take",
        "turns. Before they are timed their answers are checked to be equal. A ratio is the time of the",
        "other side over that of `posgeom`: the median over the turns, and in brackets its range.",
        "",
        *_table(("what", "beside", "target", "measured", ""), report.rows),
    ]
    if report.growth:
        lines += [
            "",
            "## Growth",
            "",
            "Least seconds at each size, and the exponent of a power law through the points (least squares",
            "on logarithms). Counts for n from 64 to 4,096 are those of the first n positions of texts of",
            "4,096 tokens, each made of reviews that follow one another.",
            "",
        ]
        rows = [
            (
                name,
                ", ".join(f"{size:,}: {seconds:.3g}" for size, seconds in points),
                f"{_exponent(points):.2f}",
            )
            for name, points in report.growth
        ]
        lines += _table(("what", "size: seconds", "exponent"), rows)
    return "\n".join(lines) + "\n"


SECTIONS = (counting, hellinger, scaling, majorisation, violations, floor, imports, book, growth)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("--only", nargs="+", choices=names, help="these sections, and no page is written")
    parser.add_argument("--turns", type=int, default=5, help="of each comparison (default: 5)")
    parser.add_argument("--texts", type=int, default=25_000, help="reviews that are read (default: all)")
    options = parser.parse_args()
    # Read by the library at each call.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    data, report = Data(options.texts), Report()
    with threadpool_limits(1):
        for section in SECTIONS:
            if options.only is None or section.__name__ in options.only:
                say(section.__name__)
                started = time.perf_counter()
                section(report, data, options.turns)
                say(f"  took {time.perf_counter() - started:.0f} s")
    if options.only is None:
        RESULTS.write_text(markdown(report, data), encoding="utf-8")
        say(f"written: {RESULTS.relative_to(ROOT)}")
    TIMES.parent.mkdir(exist_ok=True)
    benchmarks = [
        pyperf.Benchmark([pyperf.Run(values, metadata={"name": name}, collect_metadata=False)])
        for name, values in report.times.items()
    ]
    pyperf.BenchmarkSuite(benchmarks).dump(str(TIMES), replace=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
