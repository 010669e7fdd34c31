"""Two corpora, or one corpus at two tokenizers: which of their positional numbers differ."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.stats import t as student_t

from posgeom.corpora.named import Corpus
from posgeom.diagnosis.measures import Diagnosis, Interval, measure, plain, versions
from posgeom.diagnosis.reading import Progress, Settings, choose_n, read_corpus, states_of_this_run
from posgeom.geometry.stress import rank_agreement, stress
from posgeom.noise.correction import corrected_squared_distances

__all__ = ["Contrast", "contrast"]


@dataclass(frozen=True)
class Contrast:
    """What :func:`contrast` finds.

    Attributes
    ----------
    first, second
        the diagnosis of each, at the same n.
    noise_share, exponent
        second less first, with the interval of the difference (the two taken as independent); ``None`` where
        one of them has none.
    stress_between, spearman_between
        scaled stress and rank agreement of the corrected distances of the second against those of the first:
        0 and 1 for one geometry. ``None`` without a signal in both.
    apart
        ``(n,)`` corrected squared distance between the two laws of each position; ``None`` when the
        tokenizers differ, for then the tokens are no common ones.
    """

    first: Diagnosis
    second: Diagnosis
    noise_share: Interval | None
    exponent: Interval | None
    stress_between: float | None
    spearman_between: float | None
    apart: np.ndarray | None

    @property
    def n(self) -> int:
        return self.first.n

    @property
    def one_corpus(self) -> bool:
        """Are these the same texts at two tokenizers?"""
        return self.first.reading.digest == self.second.reading.digest

    @property
    def command(self) -> str:
        """The command that makes this comparison."""
        first, second = self.first, self.second
        names = [first.reading.name]
        if second.reading.name != first.reading.name:
            names.append(second.reading.name)
        options = first.settings.options
        if first.settings.tokenizer != second.settings.tokenizer or len(names) == 1:
            default = Settings().tokenizer
            if first.settings.tokenizer == default:
                options = ["--tokenizer", default, *options]
            options += ["--tokenizer", second.settings.tokenizer]
        return shlex.join(["posgeom", "compare", *names, *options])

    def as_dict(self) -> dict:
        """Everything as plain JSON."""
        return plain(
            {
                "command": self.command,
                "versions": versions(),
                "n": self.n,
                "same_texts": self.one_corpus,
                "difference": {"noise_share": self.noise_share, "exponent": self.exponent},
                "corrected_distances": {"stress": self.stress_between, "spearman": self.spearman_between},
                "squared_distance_between_laws": None if self.apart is None else self.apart.tolist(),
                "first": self.first.as_dict(),
                "second": self.second.as_dict(),
            }
        )


def contrast(
    first: str | os.PathLike | Corpus | Iterable[str],
    second: str | os.PathLike | Corpus | Iterable[str],
    settings: tuple[Settings, Settings] | None = None,
    *,
    jobs: int = 1,
    states: tuple[Path, Path] | None = None,
    dask: str | None = None,
    progress: Progress | None = None,
) -> Contrast:
    """Diagnose two corpora at the same number of positions and set their numbers side by side.

    Parameters
    ----------
    first, second
        as for :func:`posgeom.diagnosis.measures.diagnose`; the same one twice, with two tokenizers in
        ``settings``, is one corpus at two tokenizers.
    settings
        one :class:`~posgeom.diagnosis.measures.Settings` each, with the same ``n``. Where that is ``None``, n
        is the smaller of the two that would be chosen.
    jobs, states, dask, progress
        as for ``diagnose``, a state for each.

    Raises
    ------
    ValueError
        as ``diagnose``; for settings with different ``n``.
    """
    settings = settings or (Settings(), Settings())
    if settings[0].n != settings[1].n or settings[0].special_tokens != settings[1].special_tokens:
        raise ValueError("both settings must have the same n and special_tokens: positions are compared")
    progress = progress or (lambda stage, share, texts: None)
    states = states or (None, None)
    with states_of_this_run(*states):
        readers = [
            read_corpus(corpus, settings[k], states[k], _labelled(progress, k), dask)
            for k, corpus in enumerate((first, second))
        ]
        n = choose_n(readers, settings[0])
        one, two = (
            measure(reader, settings[k], n, jobs, _labelled(progress, k)) for k, reader in enumerate(readers)
        )
    both = one.rank > 0 and two.rank > 0
    return Contrast(
        first=one,
        second=two,
        noise_share=_difference(one.noise_share, two.noise_share, one, two),
        exponent=_difference(one.exponent, two.exponent, one, two),
        stress_between=stress(two.corrected, one.corrected, scale="optimal") if both else None,
        spearman_between=rank_agreement(two.corrected, one.corrected)[0] if both else None,
        apart=_apart(one, two) if one.reading.tokenizer_digest == two.reading.tokenizer_digest else None,
    )


def _labelled(progress: Progress, k: int) -> Progress:
    return lambda stage, share, texts: progress(f"{stage} ({'AB'[k]})", share, texts)


def _difference(a: Interval | None, b: Interval | None, one: Diagnosis, two: Diagnosis) -> Interval | None:
    """``b - a`` with its interval: the errors add in squares, the degrees of freedom are Welch's."""
    if a is None or b is None:
        return None
    variances, freedom = [], []
    for interval, diagnosis in ((a, one), (b, two)):
        freedom.append(len(diagnosis.group_sizes) - 1)
        reach = student_t.ppf(0.975, freedom[-1]) if freedom[-1] else math.nan
        variances.append(((interval.high - interval.low) / 2 / reach) ** 2)
    value, total = b.value - a.value, sum(variances)
    if not math.isfinite(total):
        return Interval(value, math.nan, math.nan)
    if total == 0:
        return Interval(value, value, value)
    welch = total**2 / sum(v**2 / f for v, f in zip(variances, freedom, strict=True))
    reach = float(student_t.ppf(0.975, welch)) * math.sqrt(total)
    return Interval(value, value - reach, value + reach)


def _apart(one: Diagnosis, two: Diagnosis) -> np.ndarray:
    first, second = one.counts.counts, two.counts.counts
    return np.array(
        [
            corrected_squared_distances(sparse.vstack([first[i], second[i]], format="csr"))[0, 1]
            for i in range(one.n)
        ]
    )
