"""The power line: positions on a line whose gaps shrink, or grow, as a power of the position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist, squareform

from posgeom import checks
from posgeom.encodings.comparison import Scheme
from posgeom.encodings.formulas import power_line
from posgeom.geometry.distances import euclidean_distances
from posgeom.geometry.mds import classical_mds

__all__ = ["PowerLine", "fit_power_line", "fitted_schemes"]

# From so many positions on the stress of a power line is had from sums that take n steps, not n^2.
MOMENTS_FROM = 1024


@dataclass(frozen=True)
class PowerLine:
    """The power line that fits a corpus best: ``scale * |g_a(i) - g_a(j)|`` with ``a = exponent``.

    ``stress`` is the optimally scaled stress there, in [0, 1]. ``at_bound`` is True when the exponent is at
    an end of the interval that was searched: then the interval, not the corpus, chose it.
    """

    exponent: float
    scale: float
    stress: float
    at_bound: bool = False


def fit_power_line(D: np.ndarray, *, bounds: tuple[float, float] = (-3.0, 2.0), first: int = 0) -> PowerLine:
    """The exponent of the power line with the least optimally scaled stress.

    .. math:: \\min_a \\min_s \\frac{\\sum_{i<j} (s\\,|g_a(i) - g_a(j)| - d_{ij})^2}{\\sum_{i<j} d_{ij}^2},
              \\qquad g_a(i) = \\frac{(1 + i)^a - 1}{a}

    The whole interval is searched on a grid of step 1/20 or finer, and every valley of the grid is then
    followed to its bottom, so a second minimum cannot hide the least one.

    Parameters
    ----------
    D
        ``(n, n)`` dissimilarities, n >= 3: through two positions every exponent passes.
    bounds
        lowest and highest exponent, both finite.
    first
        the position of the first row of ``D``: a fit without the first k positions is
        ``fit_power_line(D[k:, k:], first=k)``.

    Raises
    ------
    ValueError
        for fewer than 3 positions, a ``D`` that is zero for every pair, or bounds that are no interval.
    """
    D = checks.square_dissimilarity(D, "D")
    n = len(D)
    if n < 3:
        raise ValueError(f"D has {n} positions: a power line has a definite exponent from 3 positions on")
    first = checks.positive_int(first, "first", minimum=0)
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be a pair of numbers, not {bounds!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"bounds must be finite with the lower one first, not {bounds!r}")
    d = squareform(D, checks=False)
    energy = d @ d
    if energy == 0:
        raise ValueError("D is zero for every pair: no line through these positions has an exponent")
    # Places rise, so <e, d> is linear in them: a place is added for each pair behind it, taken off before it.
    behind = np.triu(D).sum(axis=0) - np.triu(D).sum(axis=1)

    def moments(exponent: float) -> tuple[float, float, float]:
        places, unit = _power_places(first, n, exponent)
        places = places - places.mean()
        return float(behind @ places), float(n * places @ places), unit

    def misfit(exponent: float) -> float:
        along, square, _ = moments(exponent)
        if n >= MOMENTS_FROM:
            return max(1.0 - along**2 / (square * energy), 0.0)
        # From the residual: the other form loses half the digits of a close fit.
        residual = along / square * pdist(_power_places(first, n, exponent)[0][:, None]) - d
        return float(residual @ residual / energy)

    grid = np.linspace(low, high, max(41, math.ceil(20 * (high - low)) + 1))
    heights = np.array([misfit(exponent) for exponent in grid])
    exponents = [low, high, *grid[[heights.argmin()]]]
    for k in range(len(grid)):
        left, right = max(k - 1, 0), min(k + 1, len(grid) - 1)
        if heights[k] <= min(heights[left], heights[right]):
            valley = minimize_scalar(
                misfit, bounds=(grid[left], grid[right]), method="bounded", options={"xatol": 1e-9}
            )
            exponents.append(float(valley.x))
    exponent = float(min(exponents, key=misfit))
    along, square, unit = moments(exponent)
    at_bound = min(exponent - low, high - exponent) <= 1e-6 * (high - low)
    return PowerLine(exponent, along / square / unit, misfit(exponent), at_bound)


def _power_places(first: int, n: int, exponent: float) -> tuple[np.ndarray, float]:
    """``g_a(i) / unit``, up to a constant, of the positions ``first, ..., first + n - 1``, and the unit.

    With x = 1 + i and c one end of the range, ``g_a(i) - g_a(j) = c^a ((x_i/c)^a - (x_j/c)^a)/a``: taking c
    at the end where the powers are largest keeps every value finite, whatever the exponent.
    """
    logs = np.log1p(np.arange(first, first + n))
    origin = logs[0] if exponent < 0 else logs[-1]
    logs = logs - origin
    # Below the smallest normal number a quotient of two such numbers has no digits; the limit has them all.
    flat = abs(exponent) < np.finfo(float).tiny
    places = logs if flat else np.expm1(exponent * logs) / exponent
    return places, float(np.exp(exponent * origin))


def fitted_schemes(D: np.ndarray) -> dict[str, Scheme]:
    """Encodings that are made from ``D``: classical scaling in d dimensions, and the best power line.

    Scored against the same ``D`` they have an advantage over every scheme of :data:`SCHEMES`; scored against
    another (a held-out half, a corrected one) they have not. Use them as
    ``compare_schemes(D, SCHEMES | fitted_schemes(D), d=d, rng=rng)``.
    """
    D = checks.square_dissimilarity(D, "D")
    fit = fit_power_line(D)
    return {
        "MDS of these distances": lambda n, d, rng: euclidean_distances(classical_mds(D, d).points),
        "best power line": lambda n, d, rng: fit.scale * power_line(n, fit.exponent),
    }
