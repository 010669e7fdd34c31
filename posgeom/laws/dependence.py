"""How much one token says about another, as a function of the lag between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from posgeom import checks

__all__ = ["BiasFit", "LagInformation", "common_words", "fit_bias", "lag_information", "mutual_information"]

# Slopes of a bias that are tried: up to a weight of exp(-STEEPEST) at the lag of the greatest bias.
SLOPES = 300
STEEPEST = 200.0


def mutual_information(table: np.ndarray) -> float:
    """Mutual information, in nats, of the two coordinates of a table of counts, >= 0.

    .. math:: I = \\sum_{xy} p_{xy} \\log \\frac{p_{xy}}{p_x p_y}

    Plug-in: from N pairs it is too large, by about (cells in use) / 2N. ``ValueError`` for a table without
    counts, or with negative ones.
    """
    table = checks.finite_matrix(table, "table")
    total = table.sum()
    if (table < 0).any() or total == 0:
        raise ValueError("table must hold counts >= 0, and at least one")

    def x_log_x(counts: np.ndarray) -> float:
        counts = counts[counts > 0]
        return float(counts @ np.log(counts))

    rows, columns = table.sum(axis=1), table.sum(axis=0)
    excess = x_log_x(table.ravel()) - x_log_x(rows) - x_log_x(columns) + x_log_x(np.array([total]))
    return max(excess / total, 0.0)


def common_words(windows: np.ndarray, k: int) -> np.ndarray:
    """The ``k`` commonest tokens as 0 .. k - 1, commonest first, and all others as k; int64."""
    windows = np.asarray(windows)
    k = checks.positive_int(k, "k")
    found, inverse, counts = np.unique(windows, return_inverse=True, return_counts=True)
    place = np.full(found.size, k, dtype=np.int64)
    commonest = np.argsort(-counts, kind="stable")[:k]
    place[commonest] = np.arange(commonest.size)
    return place[inverse].reshape(windows.shape)


class LagInformation(NamedTuple):
    """What :func:`lag_information` returns, in nats; L lags.

    ``information``: ``(L,)`` mutual information less its null. ``standard_error``: ``(L,)`` of it, by a
    jackknife over windows. ``null``: ``(L,)`` what unrelated windows show. ``shuffled``: ``(L,)`` the same as
    ``information`` for windows whose tokens have changed places: what the lag has no part in. ``replicates``:
    ``(groups, L)`` the information without each group of windows.
    """

    lags: np.ndarray
    information: np.ndarray
    standard_error: np.ndarray
    null: np.ndarray
    shuffled: np.ndarray
    replicates: np.ndarray


def lag_information(
    windows: np.ndarray, lags: Sequence[int], *, groups: int = 8, rng: np.random.Generator | int
) -> LagInformation:
    """Mutual information of two tokens at each lag, less what two unrelated tokens seem to have.

    .. math:: I(\\delta) = \\hat I(x_t; x_{t + \\delta}) - \\hat I(x_t; y_{t + \\delta})

    with y another window. Both terms are biased alike, by the number of cells that the samples fill.

    Parameters
    ----------
    windows
        ``(M, n)`` symbols 0 .. K - 1, K a few hundred (:func:`common_words`); one window a text, so that y
        comes from another text.
    lags
        whole numbers in 1 .. n - 1.
    groups
        of windows that the jackknife leaves out; window t is in group ``t mod groups``.
    rng
        draws which window is whose null, and the shuffles within windows.
    """
    windows = np.asarray(windows)
    if windows.ndim != 2 or not np.issubdtype(windows.dtype, np.integer) or windows.min(initial=0) < 0:
        raise ValueError("windows must be an (M, n) array of symbols 0 .. K - 1; common_words makes one")
    lags = np.asarray(lags)
    if lags.ndim != 1 or not lags.size or lags.min() < 1 or lags.max() >= windows.shape[1]:
        raise ValueError(f"lags must be whole numbers from 1 to n - 1 = {windows.shape[1] - 1}")
    groups, rng = checks.positive_int(groups, "groups", minimum=2), checks.generator(rng)
    if len(windows) < 2 * groups:
        raise ValueError(f"{len(windows)} windows are too few for groups = {groups}, two windows each")
    symbols = int(windows.max()) + 1
    # A random cycle: every window has a partner, and none is its own.
    cycle = rng.permutation(len(windows))
    partner = np.empty_like(windows)
    partner[cycle] = windows[np.roll(cycle, 1)]
    mixed = rng.permuted(windows, axis=1)
    member = np.arange(len(windows)) % groups

    def tables(first: np.ndarray, second: np.ndarray, lag: int) -> np.ndarray:
        codes = (first[:, : windows.shape[1] - lag] * symbols + second[:, lag:]) + (
            member[:, None] * symbols**2
        )
        counts = np.bincount(codes.ravel(), minlength=groups * symbols**2)
        return counts.reshape(groups, symbols, symbols)

    information, null, shuffled, replicates = [], [], [], []
    for lag in lags:
        own, other = tables(windows, windows, lag), tables(windows, partner, lag)
        own_sum, other_sum = own.sum(axis=0), other.sum(axis=0)
        null.append(mutual_information(other_sum))
        information.append(mutual_information(own_sum) - null[-1])
        shuffled.append(mutual_information(tables(mixed, mixed, lag).sum(axis=0)) - null[-1])
        replicates.append(
            [
                mutual_information(own_sum - own[g]) - mutual_information(other_sum - other[g])
                for g in range(groups)
            ]
        )
    replicates = np.array(replicates).T
    spread = ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0)
    error = np.sqrt((groups - 1) / groups * spread)
    return LagInformation(lags, np.array(information), error, np.array(null), np.array(shuffled), replicates)


class BiasFit(NamedTuple):
    """What :func:`fit_bias` returns: ``information = amplitude * exp(-slope * bias) + plateau``, all >= 0.

    ``misfit``: root mean square of the relative residuals. ``curve``: ``(L,)`` the fitted information.
    """

    slope: float
    amplitude: float
    plateau: float
    misfit: float
    curve: np.ndarray


def fit_bias(information: np.ndarray, bias: np.ndarray) -> BiasFit:
    """How well the weight that an attention bias gives to a lag follows the dependence at that lag.

    .. math:: I(\\delta) \\approx c \\, e^{-m b(\\delta)} + p, \\qquad c, m, p \\ge 0

    with least mean squared *relative* residual. A score that is lowered by ``m b`` has its softmax weight
    multiplied by ``exp(-m b)``: b = lag (ALiBi) is an exponential law, b = log lag a power law.

    Parameters
    ----------
    information
        ``(L,)`` positive.
    bias
        ``(L,)`` sizes b of the bias at the same lags, finite, not all equal.
    """
    information, bias = np.asarray(information, dtype=np.float64), np.asarray(bias, dtype=np.float64)
    if information.ndim != 1 or information.size < 4 or not (information > 0).all():
        raise ValueError("information must be a row of at least 4 positive numbers")
    if bias.shape != information.shape or not np.isfinite(bias).all() or np.ptp(bias) == 0:
        raise ValueError("bias must be one finite number for each lag, and not the same for all")
    bias = bias - bias.min()
    best = None
    for slope in np.geomspace(1e-2, STEEPEST, SLOPES) / bias.max():
        weight = np.exp(-slope * bias)
        design = np.stack([weight, np.ones_like(weight)], axis=1)
        coefficients, residual = nnls(design / information[:, None], np.ones_like(information))
        misfit = float(residual / np.sqrt(information.size))
        if best is None or misfit < best.misfit:
            best = BiasFit(
                float(slope), float(coefficients[0]), float(coefficients[1]), misfit, design @ coefficients
            )
    return best
