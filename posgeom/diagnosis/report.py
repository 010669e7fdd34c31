"""A diagnosis in words, as text for a terminal and as one HTML file that needs nothing else.

What comes from a corpus (names of files, words) is shown as it is where it can be printed, and as an escape
where it could act: a terminal gets no control characters, a browser no markup.
"""

from __future__ import annotations

import base64
import html
import math
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posgeom.counts.running import CANDIDATES
from posgeom.diagnosis.measures import DROPPED, FITTED, Diagnosis, Interval
from posgeom.diagnosis.printing import printable
from posgeom.diagnosis.two_corpora import Contrast
from posgeom.encodings.formulas import power_line
from posgeom.geometry.mds import classical_mds
from posgeom.laws.power_line import PowerLine

if TYPE_CHECKING:
    from posgeom import figures

__all__ = [
    "CAPTIONS",
    "Advice",
    "advise",
    "as_html",
    "as_text",
    "contrast_as_html",
    "contrast_as_text",
    "draw",
    "write",
]

WIDTH = 88
SPECTRUM_SHOWN = 30
FEW_TEXTS = 500
MANY_REPEATED = 0.01
MANY_UNKNOWN = 0.05
IN_USE = ("sinusoid", "RoPE", "T5 buckets", "ALiBi line (slope 1)")


# --- the recommendation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advice:
    """A recommendation: what to do, what speaks for it, and what it does not say."""

    recommendation: str
    evidence: tuple[str, ...]
    limits: tuple[str, ...]


def advise(d: Diagnosis) -> Advice:
    """What a diagnosis says about the choice of an encoding, in words."""
    return Advice(_recommendation(d), tuple(_evidence(d)), tuple(_limits(d)))


def _recommendation(d: Diagnosis) -> str:
    if d.noise_share is None:
        return (
            "Every position holds the same words in the same shares. There is no positional structure, and "
            "nothing here speaks for any encoding."
        )
    if d.rank == 0:
        return (
            f"These {d.texts:,} texts show no positional structure beyond sampling noise. Nothing here "
            "speaks for one encoding over another. With more texts the noise falls, and weak structure may "
            "appear."
        )
    table = {row.scheme: row for row in d.table}
    best, simplex, fitted = d.best, table["simplex"], table[FITTED]
    if best.scheme == "simplex" or "simplex" in d.ties:
        words = (
            "No fixed scheme in the table fits these distances better than a simplex, which knows nothing of "
            "order. Learned positions, or none, are as well founded as any of them"
        )
    else:
        words = (
            f"Among the fixed schemes {_scheme(best.scheme)} fits best: it leaves "
            f"{best.corrected.value:.0%} of the squared corrected distances unexplained, where a simplex, "
            f"which knows nothing of order, leaves {simplex.corrected.value:.0%}"
        )
        common = next((row for row in d.table if row.scheme in IN_USE), None)
        if common is not None and best.scheme not in IN_USE and common.corrected.value < 1:
            share = common.corrected.value
            words += f". Of those in wide use the best is {_scheme(common.scheme)}, with {share:.0%}"
        if d.ties:
            words += f". These texts do not tell it from {_listed([_scheme(name) for name in d.ties])}"
    if fitted.behind.high < 0:
        words += (
            f". A power line with exponent {d.line.exponent:.2f} fits better still "
            f"({fitted.corrected.value:.0%}): if you can choose a bias or a table freely, place position i "
            f"at {_place(d.line)}"
        )
    return f"{words}. Give it at least {_number(d.rank, 'direction')}: so many stand out of the noise."


def _evidence(d: Diagnosis) -> Iterable[str]:
    if d.noise_share is None:
        return
    yield (
        f"{d.noise_share.value:.0%} of the mean squared Hellinger distance ({d.mean_plug_in:.4f}) is what "
        f"two samples of one law would show; {d.mean_corrected:.4f} is left."
    )
    yield (
        f"Signal rank {d.rank} of {d.n - 1}: so many eigenvalues exceed {d.edge:.4f}, the edge that "
        f"{d.settings.shuffles} random orders of the same tokens reach. Two halves of the texts say "
        f"{d.split_rank}."
    )
    if d.rank and d.line is not None:
        if 0 < d.first_share <= 1:
            yield f"The first axis holds {d.first_share:.0%} of what is left."
        yield (
            f"Position exponent {_interval(d.exponent)}"
            + (" (an end of the range that is searched)" if d.line.at_bound else "")
            + f": half of the way from position 0 to {d.n - 1} is behind you at position "
            f"{_half_way(d.line, d.n)}."
        )
        yield (
            f"Of two positions the nearer one is the more distant in {d.violations_corrected:.0%} of the "
            f"cases ({d.violations_plug_in:.0%} before the correction; 50% is chance)."
        )
    if d.first_words:
        word, start, anywhere = d.first_words[0]
        yield (
            f"The word that marks the beginning most is “{printable(word)}”: {start:.1%} of the texts begin "
            f"with it, and it is {anywhere:.1%} of all words."
        )


def _limits(d: Diagnosis) -> Iterable[str]:
    reading = d.reading
    yield (
        "A fit is no accuracy: whether a model learns more with the encoding that fits is another question "
        "(chapter 11 of the book)."
    )
    yield (
        "What is measured is where texts begin. A model that is trained on windows with random starts "
        "sees no such structure: there all positions have one law."
    )
    if d.texts < FEW_TEXTS:
        yield f"{d.texts:,} texts are few: intervals are wide, and weak structure stays below the edge."
    yield (
        f"The {d.texts:,} texts with {d.n} tokens or more are {d.texts / max(1, reading.texts):.0%} of the "
        "corpus; shorter ones are left out, so that all positions have the same texts."
    )
    repeated = reading.repeated - reading.dropped
    if repeated > MANY_REPEATED * reading.texts:
        yield (
            f"{repeated / reading.texts:.0%} of the texts repeat another one. The correction takes "
            "repetitions for evidence: run it again with --deduplicate."
        )
    if reading.unknown is not None and reading.unknown > MANY_UNKNOWN * max(1, reading.tokens):
        yield (
            f"{reading.unknown / reading.tokens:.0%} of the tokens are unknown to the tokenizer's "
            "vocabulary: it does not suit these texts."
        )
    if reading.special:
        yield (
            f"{_number(reading.special, 'special token')} stand spelt out in the texts; the tokenizer reads "
            "them as special."
        )
    if d.settings.special_tokens != "drop":
        yield (
            "Special tokens are counted: a position that always holds the same token is an axis of its own, "
            "and the shuffles that make the edge mix it with the words."
        )
    if d.late is not None:
        yield (
            f"Without the first {DROPPED} positions the exponent is {d.late.exponent:.2f}"
            + (" (an end of the range)" if d.late.at_bound else "")
            + f", at a stress of {d.late.stress:.2f}: how much of the fit the beginning carries."
        )
    if d.settings.n is None and d.n >= CANDIDATES[-1]:
        yield f"Texts are longer than {d.n} tokens; -n measures more positions."


def _scheme(name: str) -> str:
    """A scheme as a noun of a sentence."""
    return {
        "ALiBi line (slope 1)": "ALiBi's line",
        "RoPE": "RoPE",
        "T5 buckets": "T5's line of buckets",
        "random": "a random table",
        "simplex": "a simplex",
    }.get(name, f"the {name}")


def _place(line: PowerLine) -> str:
    a = round(line.exponent, 2)
    return (
        "log(1 + i)" if a == 0 else f"((1 + i)^{a:g} - 1) / {a:g}".replace("/ -", "/ −").replace("^-", "^−")
    )


def _half_way(line: PowerLine, n: int) -> int:
    way = power_line(n, line.exponent)[0]
    return int(np.argmax(way >= way[-1] / 2))


# --- the parts of a report ------------------------------------------------------------------------------


def _read_rows(d: Diagnosis) -> list[tuple[str, str]]:
    reading = d.reading
    sources = ", ".join(map(printable, reading.sources[:3]))
    if len(reading.sources) > 3:
        sources += f" and {len(reading.sources) - 3:,} more"
    repeated = f"{'' if reading.repeated_exact else 'about '}{reading.repeated:,}"
    if reading.dropped:
        repeated += " (left out)"
    unknown = "" if reading.unknown is None else f", {reading.unknown / max(1, reading.tokens):.2%} unknown"
    chosen = (
        "as asked" if d.settings.n is not None else "chosen: the last candidate that half of the texts reach"
    )
    special = {
        "drop": "left out; a text is cut after its n-th token",
        "keep": "kept: [CLS] at position 0, [SEP] at the last one, the text cut between them",
        "drop_cls": "[SEP] kept at the last position, [CLS] left out, the text cut before it",
    }[d.settings.special_tokens]
    reaching = reading.reaching
    last = min(reading.longest, len(reaching)) - 1
    points = sorted({i for i in (0, d.n // 4, d.n // 2, d.n - 1, last) if i <= last})
    return [
        ("corpus", printable(reading.name)),
        ("read from", sources),
        ("texts", f"{reading.texts:,}, and {reading.blank:,} blank ones left out"),
        ("repeated texts", repeated),
        (
            "tokens",
            f"{reading.tokens:,}{unknown}; a text has {reading.median_length:,} at the median, "
            f"{reading.longest:,} at most",
        ),
        ("tokenizer", f"{printable(reading.tokenizer)} (vocabulary {reading.vocab_size:,})"),
        ("special tokens", f"{special}; {reading.special:,} spelt out in texts"),
        ("positions", f"n = {d.n} ({chosen})"),
        ("texts counted", f"{d.texts:,}, which have all of them"),
        ("texts reaching i", ", ".join(f"N_{i} = {reaching[i]:,}" for i in points)),
        ("digest of the texts", reading.digest[:16]),
    ]


def _measure_rows(d: Diagnosis) -> list[tuple[str, str]]:
    if d.noise_share is None:
        return [("distances", "0 between all positions")]
    rows = [
        ("mean squared distance", f"{d.mean_plug_in:.4f} plug-in, {d.mean_corrected:.4f} corrected"),
        ("noise share", _interval(d.noise_share, percent=True)),
        ("signal rank", f"{d.rank} of {d.n - 1} (two halves of the texts: {d.split_rank})"),
    ]
    if d.rank and d.exponent is not None:
        rows.append(("position exponent", f"{_interval(d.exponent)}, scaled stress {d.line.stress:.3f}"))
    return rows


HEADER = ("scheme", "raw", "scaled", "corrected", "95% interval", "behind the best", "Spearman")


def _table_rows(d: Diagnosis) -> list[tuple[str, ...]]:
    rows = []
    for row in d.table:
        cells = [row.scheme, _digits(row.raw), _digits(row.plug_in)]
        if row.corrected is not None:
            best = d.best is not None and row.scheme == d.best.scheme
            cells += [
                _digits(row.corrected.value),
                _ends(row.corrected),
                "best" if best else f"{row.behind.value:+.3f} {_ends(row.behind, signed=True)}".rstrip(),
                _digits(row.spearman),
            ]
        rows.append(tuple(cells))
    return rows


def _table_header(d: Diagnosis) -> tuple[str, ...]:
    return HEADER if d.table and d.table[0].corrected is not None else HEADER[:3]


TABLE_NOTE = (
    "raw and scaled: stress on plug-in distances, as the paper defines it and after the best common factor; "
    "corrected: scaled stress on corrected distances, best first, with its interval; behind the best: the "
    "difference from the best fixed scheme. 1 is no encoding; the simplex is an encoding without order."
)


# --- as text --------------------------------------------------------------------------------------------


def as_text(d: Diagnosis) -> str:
    """The report for a terminal, at most 100 columns wide, without control characters."""
    advice = advise(d)
    blocks = [
        _pairs(_read_rows(d)),
        _pairs(_measure_rows(d)),
    ]
    if d.table:
        blocks.append(f"{columns(_table_header(d), _table_rows(d))}\n\n{_wrapped(TABLE_NOTE)}")
    if d.first_words:
        blocks.append(
            "At the start of a text: "
            + ", ".join(
                f"{printable(word)} ({start:.1%} of texts; {anywhere:.1%} of words)"
                for word, start, anywhere in d.first_words
            )
        )
        blocks[-1] = _wrapped(blocks[-1])
    blocks.append("RECOMMENDATION\n" + _wrapped(advice.recommendation))
    for title, points in (("EVIDENCE", advice.evidence), ("LIMITS", advice.limits)):
        if points:
            blocks.append(title + "\n" + "\n".join(_wrapped(point, bullet="- ") for point in points))
    made = ", ".join(f"{name} {version}" for name, version in d.versions.items())
    blocks.append(f"made by: {printable(d.command)}\nwith:    {made}")
    return "\n\n".join(blocks) + "\n"


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(
        textwrap.fill(
            value,
            max(WIDTH, width + 40),
            initial_indent=name.ljust(width),
            subsequent_indent=" " * width,
            break_on_hyphens=False,
        )
        for name, value in rows
    )


def _wrapped(text: str, bullet: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False
    )


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in columns, the first one to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *rows]
    ]
    return "\n".join(lines)


# --- figures, which alone need matplotlib -----------------------------------------------------------------


CAPTIONS = {
    "texts": "How many texts reach each position.",
    "distances": "Distances between positions, as counted and after the correction.",
    "spectrum": "Leading eigenvalues of the corrected distances, and the edge of the noise.",
    "axis": "Where the first axis places each position, and the best power line.",
    "schemes": "Scaled stress of each scheme on corrected distances; small is good.",
}


def draw(d: Diagnosis) -> dict[str, figures.PageFigure]:
    """The figures of a report, by the names of :data:`CAPTIONS`; without a signal only those that exist."""
    found = {"texts": _reach_figure(d)}
    if d.noise_share is None:
        return found
    found["distances"] = _distance_figure(d)
    found["spectrum"] = _spectrum_figure(d)
    if d.rank and d.line is not None:
        found["axis"] = _axis_figure(d)
        found["schemes"] = _scheme_figure(d)
    return found


def _reach_figure(d: Diagnosis) -> figures.PageFigure:
    from posgeom import figures

    reaching = d.reading.reaching
    last = int(np.flatnonzero(reaching)[-1]) + 1 if reaching.any() else 1
    x = np.arange(max(last, d.n))
    y = np.zeros(len(x))
    y[: len(reaching)] = reaching[: len(x)]
    figure = figures.lines(
        x,
        {"texts": y},
        xlabel="position i",
        ylabel="texts with a token at i",
        title=f"{d.texts:,} texts have all n = {d.n} positions",
        alt=f"Number of texts that reach each position: {int(y[0]):,} at position 0, "
        f"{int(y[min(d.n, len(y)) - 1]):,} at position {d.n - 1}.",
    )
    figure.axes[0].axvline(d.n - 1, color="#1a1a1a", linestyle="--", linewidth=1.2)
    figure.axes[0].set_ylim(bottom=0)
    return figure


def _distance_figure(d: Diagnosis) -> figures.PageFigure:
    from posgeom import figures

    figure, axes = figures.canvas(
        1,
        2,
        size=(8.4, 3.7),
        alt=f"Two heat maps of the distances between {d.n} positions. Plug-in: nearly one colour off the "
        "diagonal where noise is most of the distance. Corrected: "
        + ("the distances along the signal axes." if d.rank else "zero everywhere, no signal."),
    )
    figures.heatmap(d.plug_in, alt="plug-in", title="plug-in", ax=axes[0, 0])
    figures.heatmap(d.corrected, alt="corrected", title=f"corrected, rank {d.rank}", ax=axes[0, 1])
    return figure


def _spectrum_figure(d: Diagnosis) -> figures.PageFigure:
    from posgeom import figures

    shown = d.eigenvalues[:SPECTRUM_SHOWN]
    return figures.lines(
        np.arange(1, len(shown) + 1),
        {"eigenvalue": shown},
        reference={"edge of the noise": d.edge},
        xlabel="index of the eigenvalue",
        ylabel="eigenvalue",
        title=f"{d.rank} above the edge",
        alt=f"Eigenvalues in descending order; {d.rank} of them lie above the dashed edge of the noise.",
    )


def _axis_figure(d: Diagnosis) -> figures.PageFigure:
    from posgeom import figures

    axis = classical_mds(d.corrected, 1).points[:, 0]
    places = power_line(d.n, d.line.exponent)[0]
    centred = places - places.mean()
    centred *= (centred @ axis) / (centred @ centred)
    return figures.lines(
        np.arange(d.n),
        {"first axis": axis, f"power line, a = {d.line.exponent:.2f}": centred},
        xlabel="position",
        ylabel="coordinate",
        alt="The coordinate of each position on the first axis of the corrected distances, and the power "
        f"line whose exponent, {d.line.exponent:.2f}, fits all corrected distances, at its best scale here.",
    )


def _scheme_figure(d: Diagnosis) -> figures.PageFigure:
    from posgeom import figures

    rows = [row for row in d.table if row.scheme != "simplex"]
    simplex = next(row for row in d.table if row.scheme == "simplex")
    return figures.bars(
        {row.scheme: row.corrected.value for row in rows},
        intervals={
            row.scheme: (row.corrected.low, row.corrected.high)
            for row in rows
            if math.isfinite(row.corrected.low)
        },
        reference={"simplex: no order": simplex.corrected.value},
        xlabel="scaled stress on corrected distances",
        alt="Bars of scaled stress on corrected distances with intervals, best first: "
        + ", ".join(f"{row.scheme} {row.corrected.value:.2f}" for row in rows)
        + f"; a simplex has {simplex.corrected.value:.2f}.",
    )


# --- two corpora ----------------------------------------------------------------------------------------


def _titles(c: Contrast) -> tuple[str, str]:
    if c.first.reading.name == c.second.reading.name:
        return f"A: {printable(c.first.reading.tokenizer)}", f"B: {printable(c.second.reading.tokenizer)}"
    return f"A: {printable(c.first.reading.name)}", f"B: {printable(c.second.reading.name)}"


def _differences(c: Contrast) -> Iterable[str]:
    a, b = c.first, c.second
    if c.one_corpus:
        yield "A and B are the same texts."
    for what, interval, percent in (
        ("noise share", c.noise_share, True),
        ("position exponent", c.exponent, False),
    ):
        if interval is not None:
            told = "not told apart"
            if not interval.low <= 0 <= interval.high and math.isfinite(interval.low):
                told = "larger in B" if interval.value > 0 else "larger in A"
            elif not math.isfinite(interval.low):
                told = "without an interval"
            yield f"The {what} differs by {_interval(interval, percent=percent)} (B less A): {told}."
    if c.stress_between is not None:
        yield (
            f"The corrected distances of B reproduce those of A at a scaled stress of {c.stress_between:.3f} "
            f"and a rank correlation of {c.spearman_between:.3f}; the best fixed scheme reaches "
            f"{a.best.corrected.value:.3f} on A and {b.best.corrected.value:.3f} on B."
        )
    elif a.rank or b.rank:
        yield f"Only {'A' if a.rank else 'B'} has a structure beyond its noise."
    else:
        yield "Neither has a structure beyond its noise."
    if c.apart is not None and not c.one_corpus:
        yield (
            f"The laws of A and B at one position are a corrected squared distance of {c.apart[0]:.3f} apart "
            f"at position 0 and {c.apart.mean():.3f} on average: other topics and words, not other positions."
        )
    if a.best is not None and b.best is not None:
        if a.best.scheme == b.best.scheme:
            yield f"The same fixed scheme fits both best: {_scheme(a.best.scheme)}."
        else:
            yield (
                f"Another fixed scheme fits best: {_scheme(a.best.scheme)} on A, "
                f"{_scheme(b.best.scheme)} on B."
            )
    if not c.one_corpus:
        yield "Intervals of differences take the two corpora for independent."
    else:
        yield (
            "Intervals of differences take the two for independent; on the same texts that makes them too "
            "wide."
        )


def _side_by_side(c: Contrast) -> list[tuple[str, str, str]]:
    a, b = c.first, c.second
    rows = [
        ("tokenizer", printable(a.reading.tokenizer), printable(b.reading.tokenizer)),
        ("texts", f"{a.reading.texts:,}", f"{b.reading.texts:,}"),
        ("tokens", f"{a.reading.tokens:,}", f"{b.reading.tokens:,}"),
        ("tokens of a text, median", f"{a.reading.median_length:,}", f"{b.reading.median_length:,}"),
        ("texts counted", f"{a.texts:,}", f"{b.texts:,}"),
        ("mean squared, plug-in", f"{a.mean_plug_in:.4f}", f"{b.mean_plug_in:.4f}"),
        ("mean squared, corrected", f"{a.mean_corrected:.4f}", f"{b.mean_corrected:.4f}"),
        ("noise share", *(_interval_or_none(d.noise_share, percent=True) for d in (a, b))),
        ("signal rank", f"{a.rank}", f"{b.rank}"),
        ("position exponent", *(_interval_or_none(d.exponent) for d in (a, b))),
    ]
    fits = [{row.scheme: row for row in d.table} for d in (a, b)]
    for name in dict.fromkeys(row.scheme for d in (a, b) for row in d.table):
        own = (getattr(fit.get(name), "corrected", None) for fit in fits)
        rows.append((f"stress of {name}", *map(_interval_or_none, own)))
    return rows


def contrast_as_text(c: Contrast) -> str:
    """The comparison for a terminal, without control characters."""
    blocks = [
        f"n = {c.n} positions",
        columns(("", *_titles(c)), _side_by_side(c)),
        "WHAT DIFFERS\n" + "\n".join(_wrapped(line, bullet="- ") for line in _differences(c)),
        *(
            f"RECOMMENDATION FOR {title}\n" + _wrapped(advise(d).recommendation)
            for title, d in zip(_titles(c), (c.first, c.second), strict=True)
        ),
    ]
    made = ", ".join(f"{name} {version}" for name, version in c.first.versions.items())
    blocks.append(f"made by: {printable(c.command)}\nwith:    {made}")
    return "\n\n".join(blocks) + "\n"


def contrast_as_html(c: Contrast) -> str:
    """The comparison as one HTML page, as :func:`as_html`."""
    titles = _titles(c)
    differences = "".join(f"<li>{_escaped(line)}</li>" for line in _differences(c))
    body = [
        f"<h1>{_escaped(titles[0])} and {_escaped(titles[1])}</h1>",
        f'<div class="advice"><ul>{differences}</ul></div>',
        f"<h2>Side by side, at n = {c.n} positions</h2>",
        table("Side by side", ("", *titles), _side_by_side(c)),
    ]
    if c.first.rank and c.second.rank:
        body.append(picture(_axes_figure(c), "The first axis of each, in units of its own spread."))
    for title, d in zip(titles, (c.first, c.second), strict=True):
        advice = advise(d)
        points = "".join(f"<li>{_escaped(point)}</li>" for point in (*advice.evidence, *advice.limits))
        body.append(f"<h2>{_escaped(title)}</h2><p>{_escaped(advice.recommendation)}</p><ul>{points}</ul>")
        body += [facts(_read_rows(d)), table("Schemes", _table_header(d), _table_rows(d)) if d.table else ""]
    body.append(footer(c.command, c.first.versions))
    return page(f"{titles[0]} and {titles[1]}", body)


def _axes_figure(c: Contrast) -> figures.PageFigure:
    from posgeom import figures

    curves = {}
    for title, d in zip("AB", (c.first, c.second), strict=True):
        axis = classical_mds(d.corrected, 1).points[:, 0]
        # Either end of an axis may be up; both begin at the top here.
        curves[title] = axis * (np.sign(axis[0] - axis[-1]) or 1.0) / axis.std()
    return figures.lines(
        np.arange(c.n),
        curves,
        xlabel="position",
        ylabel="coordinate / spread",
        alt="The coordinate of each position on the first axis of the corrected distances, one curve for A "
        "and one for B, each divided by its spread.",
    )


# --- as HTML --------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #d5d5d5; --soft: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181b; --line: #3c4046; --soft: #22262b; }
}
body { margin: 0 auto; max-width: 54rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.advice { background: var(--soft); border-left: 4px solid #0072b2; padding: .6rem 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); }
.scroll th, .scroll td { white-space: nowrap; overflow-wrap: normal; }
th:first-child { text-align: left; font-weight: 600; }
.facts td { text-align: left; } .facts th { white-space: nowrap; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; background: #fff; }
figcaption, footer { font-size: .9rem; }
code { background: var(--soft); padding: .1rem .3rem; }
@media (max-width: 30rem) {
  .facts th, .facts td { display: block; border-bottom: 0; padding: .1rem 0; }
  .facts td { border-bottom: 1px solid var(--line); }
}
"""


def as_html(d: Diagnosis) -> str:
    """The report as one HTML page: styles and figures inside it, no script, nothing fetched."""
    advice = advise(d)
    body = [
        f"<h1>Positional structure of {_escaped(d.reading.name)}</h1>",
        f'<div class="advice"><p>{_escaped(advice.recommendation)}</p></div>',
        "<h2>What was read</h2>",
        facts(_read_rows(d)),
        "<h2>What was measured</h2>",
        facts(_measure_rows(d)),
    ]
    if d.table:
        body += [
            "<h2>Which encoding fits</h2>",
            table("Schemes", _table_header(d), _table_rows(d)),
            f"<p>{_escaped(TABLE_NOTE)}</p>",
        ]
    if d.first_words:
        body += [
            "<h2>Words at the start of a text</h2>",
            table(
                "Words at the start",
                ("word", "texts that begin with it", "share of all words"),
                [(printable(word), f"{start:.1%}", f"{any_:.1%}") for word, start, any_ in d.first_words],
            ),
        ]
    for title, points in (("Evidence", advice.evidence), ("Limits", advice.limits)):
        if points:
            body.append(f"<h2>{title}</h2><ul>{''.join(f'<li>{_escaped(p)}</li>' for p in points)}</ul>")
    body.append("<h2>Figures</h2>")
    body += [picture(figure, CAPTIONS[name]) for name, figure in draw(d).items()]
    body.append(footer(d.command, d.versions))
    return page(f"Positional structure of {d.reading.name}", body)


def write(path: str | os.PathLike, text: str) -> None:
    """Write a file whole or not at all: a reader never sees half of a report."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def page(title: str, body: Sequence[str]) -> str:
    """A whole HTML document around ``body``, which is markup; no policy lets a script run in it."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def facts(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{_escaped(name)}</th><td>{_escaped(value)}</td></tr>' for name, value in rows
    )
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def table(label: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in header)
    lines = "".join(
        f'<tr><th scope="row">{_escaped(row[0])}</th>'
        + "".join(f"<td>{_escaped(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{_escaped(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def picture(figure: figures.PageFigure, caption: str) -> str:
    data = base64.b64encode(figure.png()).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{_escaped(figure.alt)}">'
        f"<figcaption>{_escaped(caption)}</figcaption></figure>"
    )


def footer(command: str, versions: dict[str, str]) -> str:
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"<footer><p>Made by <code>{_escaped(command)}</code> with {_escaped(made)}.</p></footer>"


def _escaped(text: str) -> str:
    return html.escape(printable(text), quote=True)


# --- numbers in words -----------------------------------------------------------------------------------


def _digits(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _ends(interval: Interval, *, signed: bool = False) -> str:
    if not math.isfinite(interval.low):
        return ""
    sign = "+" if signed else ""
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def _interval(interval: Interval, *, percent: bool = False) -> str:
    form = ".1%" if percent else ".3f"
    if not math.isfinite(interval.low):
        return f"{interval.value:{form}}"
    return f"{interval.value:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def _interval_or_none(interval: Interval | None, *, percent: bool = False) -> str:
    return "none" if interval is None else _interval(interval, percent=percent)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
