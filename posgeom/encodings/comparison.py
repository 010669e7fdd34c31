"""Every encoding on one scale: its dissimilarity against the corpus's, under each score.

One convention for every scheme: an encoding is a dissimilarity ``E`` of positions, ``(n, n)``. Vectors that
are added give the distance between their rows; RoPE the root mean square of ``||R_i x - R_j x||``; a bias the
size of the bias; T5 the bucket of the lag; no encoding at all gives 0.
"""

from __future__ import annotations

import html
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np

from posgeom import checks
from posgeom.encodings.formulas import (
    alibi_distances,
    alibi_slopes,
    learned,
    power_line,
    random_gaussian,
    rope_distances,
    sinusoidal,
    t5_buckets,
)
from posgeom.geometry.distances import euclidean_distances
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import optimal_scale, rank_agreement, stress

__all__ = [
    "SCHEMES",
    "Comparison",
    "Row",
    "alibi_heads",
    "compare_schemes",
    "encoding_distances",
    "subspace_alignment",
]

Scheme = Callable[[int, int, np.random.Generator], np.ndarray]

T5_SIDE = 16
# Of the largest distance: what lies closer together than this differs by rounding only.
ROUNDING = 1e-11
# For each score: its column, and whether a small value is a good one.
SCORES = {
    "raw_stress": ("raw stress", True),
    "best_scale": ("best scale", None),
    "scaled_stress": ("scaled stress", True),
    "spearman": ("Spearman", False),
    "kendall": ("Kendall", False),
    "violation_rate": ("violations", True),
}


# --- the schemes ----------------------------------------------------------------------------------------


def alibi_heads(n_heads: int) -> dict[str, Scheme]:
    """One scheme for each head of ALiBi, ``m |i - j|`` with the slope m of the reference code in its name."""
    schemes = {}
    for head, slope in enumerate(alibi_slopes(n_heads), start=1):
        name = f"ALiBi head {head} of {n_heads} (slope {slope:.4g})"
        schemes[name] = lambda n, d, rng, slope=slope: alibi_distances(n, slope)
    return schemes


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "NoPE": lambda n, d, rng: np.zeros((n, n)),
        "simplex": lambda n, d, rng: 1.0 - np.eye(n),
        "random": lambda n, d, rng: euclidean_distances(random_gaussian(n, d, rng=rng)),
        "learned, before training": lambda n, d, rng: euclidean_distances(learned(n, d, rng=rng)),
        "sinusoid": lambda n, d, rng: euclidean_distances(sinusoidal(n, d)),
        "RoPE": lambda n, d, rng: rope_distances(n, d),
        "ALiBi line (slope 1)": lambda n, d, rng: alibi_distances(n),
        **alibi_heads(8),
        "T5 buckets": lambda n, d, rng: _lag_buckets(n),
        "square root of the lag": lambda n, d, rng: np.sqrt(alibi_distances(n)),
        "logarithm line (a = 0)": lambda n, d, rng: power_line(n, 0.0),
    }
)
"""Encodings that are fixed before any corpus is seen: name -> a callable ``(n, d, rng)`` that returns ``E``
``(n, n)``. NoPE has raw stress exactly 1: a higher value is worse than no encoding. The simplex, one distance
for every pair, is the line of no information for the scaled stress."""


def _lag_buckets(n: int) -> np.ndarray:
    """T5's bucket of ``|i - j|``, 0 to 15 for its 32 buckets: the side (before or after) is left out."""
    return (t5_buckets(n, n_buckets=2 * T5_SIDE) % T5_SIDE).astype(np.float64)


def encoding_distances(encoding: np.ndarray, n: int, name: str = "encoding") -> np.ndarray:
    """The dissimilarity ``(n, n)`` of an encoding given as points or as a dissimilarity.

    Parameters
    ----------
    encoding
        ``(n, n)``: always read as a dissimilarity, and refused when it is none (symmetric, non-negative, zero
        on the diagonal). ``(n, d)`` with d other than n: points, one row a position. Points of width n cannot
        be told from a faulty dissimilarity: pass ``euclidean_distances(points)``.
    n
        the number of positions that is asked for.
    name
        what an error calls it.

    Raises
    ------
    ValueError
        for another number of rows or axes, no columns, an entry that is not finite, a faulty dissimilarity.
    """
    matrix = np.asarray(encoding)
    if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] == 0:
        raise ValueError(
            f"{name} has shape {matrix.shape}, but D has {n} positions: give points ({n}, d), one row a "
            f"position, or a dissimilarity ({n}, {n})"
        )
    if matrix.shape[1] == n:
        return checks.square_dissimilarity(matrix, name)
    return euclidean_distances(checks.points(matrix, name))


# --- the table ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One scheme against one corpus.

    Attributes
    ----------
    scheme
        its name.
    raw_stress
        :func:`~posgeom.geometry.stress.stress` as the paper defines it, >= 0; 1 for no encoding.
    best_scale
        the factor on ``E`` that makes the stress least; 1 where ``E`` is 0.
    scaled_stress
        the stress at that factor, in [0, 1].
    spearman, kendall
        rank agreement of the pairs, in [-1, 1]; NaN where ``E`` is constant. Values that differ by rounding
        only are ties.
    violation_rate
        of monotonicity, in [0, 1]; ties violate nothing, so a constant ``E`` has 0. NaN below 3 positions.
    """

    scheme: str
    raw_stress: float
    best_scale: float
    scaled_stress: float
    spearman: float
    kendall: float
    violation_rate: float


@dataclass(frozen=True)
class Comparison:
    """The rows of :func:`compare_schemes`; prints as a table in a notebook and in a terminal.

    ``table["RoPE"]`` is a row by name, ``table[0]`` by place; iteration gives the rows in order.
    """

    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, key: int | str) -> Row:
        if not isinstance(key, str):
            return self.rows[key]
        for row in self.rows:
            if row.scheme == key:
                return row
        raise KeyError(f"no scheme {key!r}; there are {', '.join(self.schemes)}")

    @property
    def schemes(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(row.scheme for row in self.rows)

    def column(self, score: str) -> dict[str, float]:
        """One score of every scheme, by name."""
        _known(score)
        return {row.scheme: getattr(row, score) for row in self.rows}

    def only(self, *names: str) -> Comparison:
        """The rows of the named schemes, in the order of the names."""
        return Comparison(tuple(self[name] for name in names))

    def sorted(self, score: str) -> Comparison:
        """The rows from best to worst under ``score`` (rows without a value last); ties keep their order."""
        _, small_is_good = _known(score, ranked=True)
        sign = 1.0 if small_is_good else -1.0

        def key(row: Row) -> tuple[bool, float]:
            value = getattr(row, score)
            return math.isnan(value), 0.0 if math.isnan(value) else sign * value

        return Comparison(tuple(sorted(self.rows, key=key)))

    def ranking(self, score: str, *, digits: int = 3) -> str:
        """The order under ``score`` in words, best first: ``"A < B = C"`` (``>`` where large is good).

        Schemes whose values agree after rounding to ``digits`` places are joined by ``=``; those without a
        value are left out.
        """
        _, small_is_good = _known(score, ranked=True)
        sign, sharper = (1.0, " < ") if small_is_good else (-1.0, " > ")
        values = {row.scheme: round(getattr(row, score), digits) for row in self.rows}
        ranked = [name for name, value in values.items() if not math.isnan(value)]
        # Sorted after rounding, and stably: the last digit does not say which of two equals comes first.
        ranked.sort(key=lambda name: sign * values[name])
        words, before = "", None
        for name in ranked:
            if before is not None:
                words += " = " if values[name] == before else sharper
            words, before = words + name, values[name]
        return words

    def __str__(self) -> str:
        header, body = self._cells()
        widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
        return "\n".join(
            "  ".join(
                [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
            ).rstrip()
            for line in [header, *body]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, body = self._cells()
        head = "".join(
            f'<th scope="col" style="text-align:{"right" if k else "left"}">{html.escape(cell)}</th>'
            for k, cell in enumerate(header)
        )
        lines = [
            f'<tr><th scope="row">{html.escape(name)}</th>'
            + "".join(f'<td style="text-align:right">{cell}</td>' for cell in cells)
            + "</tr>"
            for name, *cells in body
        ]
        # The table scrolls in its own box: on a phone the page itself must not.
        return (
            '<div style="overflow-x:auto" tabindex="0" role="group" aria-label="Comparison of schemes">'
            f'<table class="dataframe"><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(lines)}</tbody></table></div>"
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["scheme", *(title for title, _ in SCORES.values())]
        return header, [
            [row.scheme, *(_digits(getattr(row, score)) for score in SCORES)] for row in self.rows
        ]


def _known(score: str, *, ranked: bool = False) -> tuple[str, bool | None]:
    known = [name for name, (_, small_is_good) in SCORES.items() if not (ranked and small_is_good is None)]
    if score not in known:
        raise ValueError(f"score must be one of {', '.join(known)}, not {score!r}")
    return SCORES[score]


def _digits(value: float) -> str:
    if math.isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def compare_schemes(
    D: np.ndarray,
    schemes: Mapping[str, Scheme | np.ndarray] = SCHEMES,
    *,
    d: int,
    rng: np.random.Generator | int,
) -> Comparison:
    """Score every scheme against the distances of a corpus: one row each, in the order given.

    Parameters
    ----------
    D
        ``(n, n)`` dissimilarities of the corpus.
    schemes
        name -> a callable ``(n, d, rng)``, or an array. Either gives points ``(n, d)`` or a dissimilarity
        ``(n, n)``, told apart as :func:`encoding_distances` says. One of your own joins the others with
        ``SCHEMES | {"mine": E}``.
    d
        the width that is asked of the callables; an array keeps its own.
    rng
        every scheme draws from a generator of its own, made from ``rng`` and its name: which other schemes
        are in the table changes no row.

    Returns
    -------
    :class:`Comparison` of :class:`Row`.

    Raises
    ------
    ValueError
        for a malformed ``D`` or a ``D`` of zeros, or for a scheme of the wrong shape, with an entry not
        finite, or whose ``(n, n)`` matrix is no dissimilarity; each names the scheme.
    """
    D = checks.square_dissimilarity(D, "D")
    d = checks.positive_int(d, "d")
    if not isinstance(schemes, Mapping) or not schemes:
        raise ValueError(
            "schemes must map names to encodings and hold at least one; "
            'one of your own joins the others with SCHEMES | {"mine": E}'
        )
    seed = int(checks.generator(rng).integers(2**63))
    return Comparison(tuple(_row(name, scheme, D, d, seed) for name, scheme in schemes.items()))


def _row(name: str, scheme: Scheme | np.ndarray, D: np.ndarray, d: int, seed: int) -> Row:
    if not isinstance(name, str):
        raise ValueError(f"schemes has the key {name!r}: the name of a scheme is a string")
    n = len(D)
    if callable(scheme):
        own = np.random.default_rng([seed, zlib.crc32(name.encode())])
        try:
            scheme = scheme(n, d, own)
        except Exception as error:
            error.add_note(f"raised by the scheme {name!r}, called with n = {n}, d = {d} and a generator")
            raise
    E = encoding_distances(scheme, n, f"scheme {name!r}")
    tied = _without_rounding(E)
    spearman, kendall = rank_agreement(tied, _without_rounding(D))
    return Row(
        scheme=name,
        raw_stress=stress(E, D),
        best_scale=optimal_scale(E, D),
        scaled_stress=stress(E, D, scale="optimal"),
        spearman=spearman,
        kendall=kendall,
        violation_rate=violation_rate(tied) if n >= 3 else float("nan"),
    )


def _without_rounding(E: np.ndarray) -> np.ndarray:
    """``E`` with values made equal that differ by rounding only.

    Distances of one lag come out of points as numbers that differ in the last digit, or not, from machine to
    machine. Their order is no property of the encoding, so scores that look at order must see ties.
    """
    values, where = np.unique(E, return_inverse=True)
    new = np.diff(values, prepend=-np.inf) > ROUNDING * values[-1]
    return values[new][np.cumsum(new) - 1][where].reshape(E.shape)


# --- axes -----------------------------------------------------------------------------------------------


def subspace_alignment(A: np.ndarray, B: np.ndarray) -> float:
    """How much of the column space of ``A`` lies in that of ``B``: the mean squared cosine, in [0, 1].

    .. math:: \\frac{1}{a} \\lVert U_A^\\top U_B \\rVert_F^2

    with orthonormal bases ``U`` of the two column spaces and a = dim A. It does not change when either basis
    is rotated or rescaled. 1 when ``A`` lies in ``B``; for a subspace ``A`` in random position in m
    dimensions its mean is ``dim B / m``.

    Parameters
    ----------
    A, B
        ``(n, a)`` and ``(n, b)``, columns linearly independent. Centre them first if constants are to be left
        out.

    Raises
    ------
    ValueError
        for another shape, different n, or columns that are linearly dependent.
    """
    A, B = checks.points(A, "A"), checks.points(B, "B")
    if len(A) != len(B):
        raise ValueError(f"A has {len(A)} rows and B has {len(B)}: both need one row for each position")
    cosines = _basis(A, "A").T @ _basis(B, "B")
    return float((cosines**2).sum() / A.shape[1])


def _basis(A: np.ndarray, name: str) -> np.ndarray:
    lengths = np.linalg.norm(A, axis=0)
    left, singular, _ = np.linalg.svd(A / np.where(lengths > 0, lengths, 1.0), full_matrices=False)
    if A.shape[1] == 0 or A.shape[1] > A.shape[0] or singular[-1] <= 1e-10 * singular[0]:
        raise ValueError(
            f"{name} of shape {A.shape} has linearly dependent columns: they span fewer directions"
        )
    return left


assert tuple(field.name for field in fields(Row)) == ("scheme", *SCORES)
