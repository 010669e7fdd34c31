"""How positional laws approach a stationary one: lines through positions, and deviations from a far law.

A relaxation along one direction, ``sqrt(mu_i) = s + g(i) u`` with g falling to 0, puts the positions on a
line: ``d_ij = |u| |g(i) - g(j)|``. Two families of g are held against each other, with one parameter each:
the power ``(1 + i)^a`` and the exponential ``exp(-i / tau)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix, vstack
from scipy.special import exprel

from posgeom import checks
from posgeom.corpora.synthetic import Law, independent
from posgeom.counts.positions import PositionalCounts
from posgeom.noise.correction import corrected_squared_distances

__all__ = [
    "FAMILIES",
    "DecayFit",
    "Deviations",
    "LineFit",
    "deviations",
    "fit_decay",
    "fit_line",
    "line_law",
    "matched_deviations",
    "places",
]

FAMILIES = ("power", "exponential")
EXPONENTS = (-3.0, 2.0)
# Time constants, in positions and in lengths of the text: from a step to a straight line.
SHORTEST, LONGEST = 0.2, 20.0
GRID_STEPS = 120
ROWS_AT_ONCE = 16


# --- lines ----------------------------------------------------------------------------------------------


def places(family: str, parameter: float, positions: np.ndarray) -> np.ndarray:
    """Where positions lie on a line of the family: rising, 0 at the first of them, ``(n,)`` float64.

    .. math:: \\text{power: } \\frac{(1 + i)^a - (1 + i_0)^a}{a}, \\qquad
              \\text{exponential: } 1 - e^{-(i - i_0) / \\tau}

    Parameters
    ----------
    family
        ``"power"``: ``parameter`` is the exponent a (0: the logarithm; 1: the straight line).
        ``"exponential"``: ``parameter`` is the time constant tau > 0, in positions. The scale of this line
        changes with i_0, its shape does not.
    positions
        ``(n,)`` numbers >= 0; the first of them is i_0.
    """
    _known(family)
    positions = np.asarray(positions, dtype=np.float64)
    if positions.ndim != 1 or not positions.size or not (positions >= 0).all():
        raise ValueError("positions must be a row of numbers >= 0")
    if family == "exponential":
        if not parameter > 0:
            raise ValueError(f"parameter of the exponential is a time constant > 0, not {parameter!r}")
        return -np.expm1(-(positions - positions[0]) / parameter)
    logs = np.log1p(positions)
    beyond = logs - logs[0]
    # exprel(x) = (e^x - 1) / x, and 1 at 0
    return np.exp(parameter * logs[0]) * beyond * exprel(parameter * beyond)


class LineFit(NamedTuple):
    """What :func:`fit_line` returns. ``parameter``: exponent a, or time constant tau in positions.

    ``scale``: the factor s >= 0 on the differences of :func:`places`. ``misfit``: the share that is left, in
    [0, 1]. ``at_bound``: the parameter is at an end of the interval that was searched, which then chose it.
    """

    family: str
    parameter: float
    scale: float
    misfit: float
    at_bound: bool


def fit_line(D: np.ndarray, family: str, *, first: int = 0, squared: bool = False) -> LineFit:
    """The line of a family that comes closest to the distances between positions.

    Parameters
    ----------
    D
        ``(n, n)``, n >= 3. Distances; or, with ``squared``, squared distances that may be negative, such as
        :func:`posgeom.noise.correction.corrected_squared_distances` gives.
    family
        ``"power"``, exponents from -3 to 2; or ``"exponential"``, time constants from 0.2 to 20 n.
    first
        the position of the first row of ``D``.
    squared
        False: ``sum (s e - d)^2 / sum d^2`` is minimised, the optimally scaled stress, as in
        :func:`posgeom.laws.power_line.fit_power_line`. True: ``sum (s^2 e^2 - D)^2 / sum D^2``. Errors of
        mean zero in ``D`` then burden both families alike; their roots, and axes that are noise, do not.

    Raises
    ------
    ValueError
        for fewer than 3 positions, a ``D`` that is zero for every pair, another family.
    """
    _known(family)
    D = _squares(D) if squared else checks.square_dissimilarity(D, "D")
    n = len(D)
    if n < 3:
        raise ValueError(f"D has {n} positions: a line has a definite parameter from 3 positions on")
    positions = np.arange(first := checks.positive_int(first, "first", minimum=0), first + n)
    one, other = np.triu_indices(n, 1)
    target = D[one, other]
    if not target.any():
        raise ValueError("D is zero for every pair: no line through these positions has a parameter")

    def lengths(parameter: float) -> np.ndarray:
        g = places(family, parameter, positions)
        return (g[one] - g[other]) ** 2 if squared else np.abs(g[one] - g[other])

    bounds = EXPONENTS if family == "power" else (SHORTEST, LONGEST * n)
    parameter, factor, misfit, at_bound = _least_misfit(lengths, family, bounds, target)
    return LineFit(family, parameter, np.sqrt(factor) if squared else factor, misfit, at_bound)


def _known(family: str) -> None:
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(map(repr, FAMILIES))}, not {family!r}")


def _squares(D: np.ndarray) -> np.ndarray:
    D = checks.finite_matrix(D, "D")
    if D.shape[0] != D.shape[1] or not np.allclose(D, D.T, rtol=0, atol=1e-8):
        raise ValueError(f"D must be symmetric, (n, n), and this matrix of shape {D.shape} is not")
    return D


def _least_misfit(
    curve: Callable[[float], np.ndarray],
    family: str,
    bounds: tuple[float, float],
    target: np.ndarray,
    weights: np.ndarray | float = 1.0,
) -> tuple[float, float, float, bool]:
    """Parameter, factor >= 0, misfit, and whether at a bound: weighted least squares of ``factor * curve``.

    A grid over the whole interval comes first, so that a second minimum cannot hide the least one. Time
    constants are searched on a logarithmic scale.
    """
    low, high = bounds if family == "power" else np.log(bounds)
    parameter_at = float if family == "power" else np.exp
    energy = float(np.sum(weights * target**2))

    def factor_of(shape: np.ndarray) -> float:
        length = float(np.sum(weights * shape**2))
        return max(float(np.sum(weights * shape * target)) / length, 0.0) if length > 0 else 0.0

    def misfit(at: float) -> float:
        shape = curve(parameter_at(at))
        return float(np.sum(weights * (target - factor_of(shape) * shape) ** 2)) / energy

    grid = np.linspace(low, high, GRID_STEPS + 1)
    k = int(np.argmin([misfit(at) for at in grid]))
    around = (grid[max(k - 1, 0)], grid[min(k + 1, GRID_STEPS)])
    valley = minimize_scalar(misfit, bounds=around, method="bounded", options={"xatol": 1e-8})
    best = min((float(grid[k]), float(valley.x)), key=misfit)
    at_bound = bool(min(best - low, high - best) <= 1e-6 * (high - low))
    parameter = float(parameter_at(best))
    return parameter, factor_of(curve(parameter)), misfit(best), at_bound


def line_law(line: np.ndarray, vocab_size: int, *, rng: np.random.Generator | int) -> Law:
    """A law whose positions lie on a known line: ``sqrt(mu_i) = cos(t_i) r + sin(t_i) q``.

    ``r`` is the root of a Zipf law and ``q``, of length 1 and orthogonal to it, makes every word commoner or
    rarer by a random share. The distances are ``2 sin(|t_i - t_j| / 2)``: the line itself, to five per cent
    at the greatest length.

    Parameters
    ----------
    line
        ``(n,)`` places t_i that span at most 1; they are centred.
    vocab_size
        V >= 2 words.
    rng
        draws the tilts.

    Raises
    ------
    ValueError
        for a line of another form, or one so long that the root of a probability would be negative.
    """
    line = np.asarray(line, dtype=np.float64)
    if line.ndim != 1 or line.size < 2 or not np.isfinite(line).all() or np.ptp(line) > 1:
        raise ValueError("line must be a row of at least 2 finite places that span at most 1")
    zipf = 1.0 / (np.arange(checks.positive_int(vocab_size, "vocab_size", minimum=2)) + 2.7)
    zipf /= zipf.sum()
    tilt = checks.generator(rng).uniform(-1.0, 1.0, vocab_size)
    tilt -= zipf @ tilt
    tilt /= np.sqrt(zipf @ tilt**2)
    angles = line - (line.max() + line.min()) / 2
    roots = np.sqrt(zipf) * (np.cos(angles)[:, None] + np.sin(angles)[:, None] * tilt)
    if roots.min() < 0:
        raise ValueError(f"line spans {np.ptp(line):.2f}: with these tilts a root is negative; shorten it")
    return independent(roots**2)


# --- deviations -----------------------------------------------------------------------------------------


class Deviations(NamedTuple):
    """``squared``: ``(n,)`` squared distance of each position from the reference, less sampling noise.

    ``products``: ``(n, n)`` inner products of the deviations; the diagonal is ``squared``. Estimates of zero
    fall below it half of the time.
    """

    squared: np.ndarray
    products: np.ndarray


def deviations(texts: np.ndarray, reference: Sequence[np.ndarray], half: np.ndarray) -> Deviations:
    """How far the law of each position is from a reference law, and in which direction.

    .. math:: r_i^2 = \\lVert \\sqrt{\\mu_i} - s \\rVert^2, \\qquad
              \\langle \\sqrt{\\mu_i} - s, \\sqrt{\\mu_j} - s \\rangle = \\tfrac12 (r_i^2 + r_j^2 - d_{ij}^2)

    with s the root of the pooled law of ``reference`` and every square less its sampling floor. Positions of
    one half of the texts meet the reference of the other half, and the two results are averaged: the tokens
    of one text share its topic, so they would look too much alike.

    Parameters
    ----------
    texts
        ``(M, n)`` token ids, one row a text.
    reference
        ``(M, m)`` token ids of the same texts, or M rows of different lengths; all of them are pooled.
    half
        ``(M,)`` of 0 and 1: the half of each text. It is an argument so that a jackknife, which leaves texts
        out, leaves the others where they are.

    Raises
    ------
    ValueError
        for arrays that do not belong together, or a half without texts.
    """
    squared, products = [], []
    for own, far in _across_halves(texts, reference, half, pooled=True):
        distances = corrected_squared_distances(vstack([own, far], format="csr"))
        r2 = distances[-1, :-1]
        squared.append(r2)
        products.append((r2[:, None] + r2[None, :] - distances[:-1, :-1]) / 2.0)
    return Deviations(np.mean(squared, axis=0), np.mean(products, axis=0))


def matched_deviations(texts: np.ndarray, others: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Squared distance between the laws of two sets of texts at the *same* position, less noise, ``(n,)``.

    ``others`` is ``(M, n)`` and row for row made from ``texts``: their sentences in another order, say. As in
    :func:`deviations`, one half of ``texts`` meets the other half of ``others``; errors are the same.
    """
    if np.shape(texts) != np.shape(others):
        raise ValueError(f"texts has shape {np.shape(texts)} and others {np.shape(others)}: they must agree")
    squared = []
    for first, second in _across_halves(texts, np.asarray(others), half):
        # All pairs of a block are computed for the few that are wanted: small blocks waste little.
        for start in range(0, first.shape[0], ROWS_AT_ONCE):
            block = [rows[start : start + ROWS_AT_ONCE] for rows in (first, second)]
            k = block[0].shape[0]
            distances = corrected_squared_distances(vstack(block, format="csr"))
            squared.append(distances[np.arange(k), k + np.arange(k)])
    return np.concatenate(squared).reshape(2, -1).mean(axis=0)


def _across_halves(
    texts: np.ndarray, partner: Sequence[np.ndarray], half: np.ndarray, *, pooled: bool = False
) -> list[tuple[csr_matrix, csr_matrix]]:
    """Counts of the texts of each half, and of the partner rows of the other half."""
    texts, half = np.asarray(texts), np.asarray(half)
    if texts.ndim != 2 or not (len(texts),) == (len(partner),) == half.shape:
        raise ValueError(
            f"texts has shape {texts.shape}, its partner {len(partner)} rows and half shape {half.shape}: "
            "each needs one row (one entry) for each text"
        )
    if not np.array_equal(np.unique(half), [0, 1]):
        raise ValueError(f"half must hold 0 and 1, both of them, not {np.unique(half)[:4]}")
    largest = (
        partner.max() if isinstance(partner, np.ndarray) else max(np.max(row, initial=0) for row in partner)
    )
    vocab_size = 1 + int(max(texts.max(), largest))
    pairs = []
    for own, other in ((half == 0, half == 1), (half == 1, half == 0)):
        if isinstance(partner, np.ndarray):
            rows = partner[other]
        else:
            rows = [partner[row] for row in np.flatnonzero(other)]
        if pooled:
            rows = np.concatenate(rows)[:, None]
        counted = (PositionalCounts.from_ids(ids, vocab_size=vocab_size) for ids in (texts[own], rows))
        pairs.append(tuple(counts.counts for counts in counted))
    return pairs


class DecayFit(NamedTuple):
    """What :func:`fit_decay` returns. ``parameter``: exponent a, or time constant tau in positions.

    ``size``: of the deviation at the first position, >= 0. ``misfit``: the weighted sum of squared residuals;
    with errors that are right it is about the number of positions. ``curve``: ``(n,)`` fitted squared
    deviations. ``at_bound``: the interval that was searched chose the parameter.
    """

    family: str
    parameter: float
    size: float
    misfit: float
    curve: np.ndarray
    at_bound: bool


def fit_decay(
    squared: np.ndarray,
    errors: np.ndarray,
    family: str,
    *,
    first: int = 0,
    reference: np.ndarray | None = None,
) -> DecayFit:
    """The decay of a family that comes closest to squared deviations.

    .. math:: r_i^2 \\approx c \\, \\bigl( g(i) - \\bar g \\bigr)^2, \\qquad
              g(i) = (1 + i)^a \\quad\\text{or}\\quad e^{-i / \\tau}

    by weighted least squares. ``g_bar`` is the mean of g over the positions of the reference: a reference at
    finite positions has not arrived at the limit either.

    Parameters
    ----------
    squared
        ``(n,)`` squared deviations, n >= 3; they may be negative.
    errors
        ``(n,)`` their standard errors, > 0. Those below the median are raised to it: a jackknife of a few
        groups knows each of them only roughly.
    family, first
        as for :func:`fit_line`; but without a reference, exponents from -3 to -0.01.
    reference
        ``(m,)`` positions of the reference; ``None`` where it is the limit itself (``g_bar`` = 0).
    """
    _known(family)
    squared, errors = np.asarray(squared, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if squared.ndim != 1 or squared.size < 3 or errors.shape != squared.shape:
        raise ValueError(
            f"squared and errors must be two rows of n >= 3 numbers, not {squared.shape} and {errors.shape}"
        )
    if not (np.isfinite(squared).all() and np.isfinite(errors).all() and (errors > 0).all()):
        raise ValueError("squared must be finite, errors finite and > 0")
    n = len(squared)
    positions = np.arange(first := checks.positive_int(first, "first", minimum=0), first + n)

    def shape(parameter: float) -> np.ndarray:
        if reference is not None:
            line = places(family, parameter, np.concatenate([positions, reference]))
            return (line[:n] - line[n:].mean()) ** 2
        if family == "power":
            return ((1.0 + positions) / (1.0 + first)) ** (2.0 * parameter)
        return np.exp(-2.0 * (positions - first) / parameter)

    exponents = EXPONENTS if reference is not None else (EXPONENTS[0], -0.01)
    bounds = exponents if family == "power" else (SHORTEST, LONGEST * n)
    weights = 1.0 / np.maximum(errors, np.median(errors)) ** 2
    parameter, factor, misfit, at_bound = _least_misfit(shape, family, bounds, squared, weights)
    curve = factor * shape(parameter)
    energy = float(np.sum(weights * squared**2))
    return DecayFit(family, parameter, float(np.sqrt(curve[0])), misfit * energy, curve, at_bound)
