"""How well the distances ``E`` of an encoding reproduce the distances ``D`` of a corpus.

Every score takes two ``(n, n)`` dissimilarities and looks at the pairs i < j only. Points go through
``euclidean_distances`` first.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import squareform
from scipy.stats import kendalltau, spearmanr

from posgeom import checks

__all__ = ["kruskal_stress1", "optimal_scale", "pair_stress", "rank_agreement", "stress"]


def stress(E: np.ndarray, D: np.ndarray, *, scale: str = "none") -> float:
    """The paper's stress: squared misfit as a share of the squared corpus distances.

    .. math:: \\operatorname{stress}(E, D) = \\frac{\\sum_{i<j} (s e_{ij} - d_{ij})^2}{\\sum_{i<j} d_{ij}^2}

    Parameters
    ----------
    E, D
        ``(n, n)`` dissimilarities of the encoding and of the corpus.
    scale
        ``"none"``: s = 1, the paper's. ``"optimal"``: s is :func:`optimal_scale`, which leaves
        ``1 - <e, d>^2 / (<e, e> <d, d>)``: the units of the encoding no longer matter, and the value is in
        [0, 1].

    Returns
    -------
    A number >= 0. An encoding that is constantly 0 has stress exactly 1 under both.

    Raises
    ------
    ValueError
        for matrices of different shapes, malformed dissimilarities, another ``scale``, or a ``D`` of zeros.
    """
    if scale not in ("none", "optimal"):
        raise ValueError(f"scale must be 'none' or 'optimal', not {scale!r}")
    return pair_stress(*_pairs(E, D), scale=scale)


def pair_stress(e: np.ndarray, d: np.ndarray, *, scale: str = "none") -> float:
    """:func:`stress` of pairs i < j in the order of :func:`scipy.spatial.distance.squareform`, unchecked: for
    many scores of one large matrix.
    """
    residual = (_scale(e, d) if scale == "optimal" else 1.0) * e
    residual -= d
    return float(residual @ residual / (d @ d))


def optimal_scale(E: np.ndarray, D: np.ndarray) -> float:
    """The scale ``s = <e, d> / <e, e>`` of least ``sum (s e - d)^2``; 1.0 for an ``E`` of zeros, where all
    are equal.
    """
    return _scale(*_pairs(E, D))


def kruskal_stress1(E: np.ndarray, D: np.ndarray) -> float:
    """Kruskal's non-metric stress-1 (Kruskal 1964), in [0, 1].

    .. math:: \\sqrt{\\sum_{i<j} (e_{ij} - \\hat e_{ij})^2 / \\sum_{i<j} e_{ij}^2}

    where ``e_hat`` is the closest sequence to ``e`` that never falls as ``d`` grows (isotonic regression;
    pairs with equal ``d`` may take any order among themselves, the primary approach). A constant ``E`` fits
    perfectly, so this score cannot tell an encoding without information from a perfect one. An ``E`` of zeros
    scores 0.
    """
    e, d = _pairs(E, D)
    energy = e @ e
    if energy == 0:
        return 0.0
    ordered = e[np.lexsort((e, d))]
    residual = ordered - isotonic_regression(ordered).x
    return float(np.sqrt(residual @ residual / energy))


def rank_agreement(E: np.ndarray, D: np.ndarray) -> tuple[float, float]:
    """Spearman's rho and Kendall's tau-b between the pairs of ``E`` and of ``D``, each in [-1, 1].

    Every increasing function of ``E`` has the same agreement. NaN where ``E`` or ``D`` is constant: a
    constant has no order.
    """
    e, d = _pairs(E, D)
    if np.ptp(e) == 0 or np.ptp(d) == 0:
        return float("nan"), float("nan")
    return float(spearmanr(e, d).statistic), float(kendalltau(e, d).statistic)


def _pairs(E: np.ndarray, D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    E, D = checks.square_dissimilarity(E, "E"), checks.square_dissimilarity(D, "D")
    checks.same_shape(E, D)
    d = squareform(D, checks=False)
    if not d.any():
        raise ValueError(
            "D is zero for every pair, or has one position: stress is a share of the sum of D^2, here 0"
        )
    # One unit for both, so that no square overflows or vanishes.
    unit = d.max()
    return squareform(E, checks=False) / unit, d / unit


def _scale(e: np.ndarray, d: np.ndarray) -> float:
    energy = e @ e
    return float(e @ d / energy) if energy > 0 else 1.0
