"""Positional encodings as formulas: vectors, rotations, biases and the dissimilarities that they define.

Positions count from 0. Everything is float64, whatever the dtype of the model that uses it: in bfloat16 the
integers above 256 are no longer all distinct.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import exprel

from posgeom import checks

__all__ = [
    "alibi_distances",
    "alibi_slopes",
    "apply_rope",
    "cosines",
    "learned",
    "polynomials",
    "power_line",
    "random_gaussian",
    "rope_distances",
    "rope_frequencies",
    "round_to_bfloat16",
    "sinusoidal",
    "t5_buckets",
]


def sinusoidal(n: int, d: int, base: float = 10000.0) -> np.ndarray:
    """The sinusoidal encoding (Vaswani et al. 2017, section 3.5), ``(n, d)``.

    ``P[i, 2k] = sin(i / base^(2k/d))`` and ``P[i, 2k+1] = cos(i / base^(2k/d))``; for odd ``d`` the last sine
    has no cosine.
    """
    n, d = checks.positive_int(n, "n"), checks.positive_int(d, "d")
    pairs = np.arange((d + 1) // 2)
    angles = np.outer(np.arange(n), _positive(base, "base") ** (-2.0 * pairs / d))
    P = np.empty((n, 2 * len(pairs)))
    P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles)
    return P[:, :d]


def cosines(n: int, d: int) -> np.ndarray:
    """The first d cosine waves on n positions (DCT-II), ``(n, d)``, orthonormal, constants left out, d < n.

    Column k, from 1, is ``sqrt(2/n) cos(pi k (i + 1/2) / n)``: k half-waves over the text. The frequencies
    ``pi k / n`` are arithmetic where those of :func:`sinusoidal` are geometric.
    """
    n, d = _axes_that_fit(n, d)
    return np.sqrt(2.0 / n) * np.cos(np.pi / n * np.outer(np.arange(n) + 0.5, np.arange(1, d + 1)))


def polynomials(n: int, d: int) -> np.ndarray:
    """The polynomials of degree 1 to d on n positions, orthonormal (Gram's, or discrete Legendre), ``(n,
    d)``, d < n.

    Column k has degree k, is orthogonal to all lower degrees, and rises at the last position.
    """
    n, d = _axes_that_fit(n, d)
    x = np.linspace(-1.0, 1.0, n)
    P = np.full((n, d + 1), np.sqrt(1.0 / n))
    for k in range(1, d + 1):
        column = x * P[:, k - 1]
        # The second pass removes what rounding left of the lower degrees in the first.
        for _ in range(2):
            column -= P[:, :k] @ (P[:, :k].T @ column)
        P[:, k] = column / np.linalg.norm(column)
    return P[:, 1:]


def _axes_that_fit(n: int, d: int) -> tuple[int, int]:
    n, d = checks.positive_int(n, "n"), checks.positive_int(d, "d")
    if d >= n:
        raise ValueError(f"d = {d}, but n = {n} positions have only {n - 1} centred directions")
    return n, d


def random_gaussian(n: int, d: int, *, std: float = 1.0, rng: np.random.Generator | int) -> np.ndarray:
    """``(n, d)`` independent normal entries of mean 0 and standard deviation ``std``: an encoding without any
    order.
    """
    n, d = checks.positive_int(n, "n"), checks.positive_int(d, "d")
    return checks.generator(rng).normal(0.0, _positive(std, "std"), (n, d))


def learned(n: int, d: int, *, std: float = 0.02, rng: np.random.Generator | int) -> np.ndarray:
    """A learned table before training, ``(n, d)``: BERT's normal initialisation, standard deviation 0.02
    (Devlin et al. 2019).
    """
    return random_gaussian(n, d, std=std, rng=rng)


def alibi_slopes(n_heads: int) -> np.ndarray:
    """The slopes of ALiBi's heads as in its reference code (Press et al. 2022), ``(n_heads,)``, each in (0,
    1).

    For a power of two: ``2^(-8/h), 2^(-16/h), ..., 2^(-8)``. For any other number, those of the largest power
    of two below, then every second slope of the power of two above, from its first on.
    """
    n_heads = checks.positive_int(n_heads, "n_heads")
    below = 1 << (n_heads.bit_length() - 1)
    return np.concatenate([_geometric_slopes(below), _geometric_slopes(2 * below)[::2][: n_heads - below]])


def _geometric_slopes(n_heads: int) -> np.ndarray:
    return 2.0 ** (-8.0 * np.arange(1, n_heads + 1) / n_heads)


def alibi_distances(n: int, slope: float = 1.0) -> np.ndarray:
    """``slope * |i - j|``, ``(n, n)``: the size of ALiBi's bias as a dissimilarity, a straight line."""
    n = checks.positive_int(n, "n")
    return _positive(slope, "slope") * _lags(n)


def rope_frequencies(d: int, base: float = 10000.0) -> np.ndarray:
    """RoPE's angular frequencies ``theta_k = base^(-2k/d)``, ``(d/2,)`` radians a position (Su et al.
    2021).
    """
    d = checks.positive_int(d, "d", minimum=2)
    if d % 2:
        raise ValueError(f"d must be even for RoPE, which rotates pairs of coordinates, not {d}")
    return _positive(base, "base") ** (-2.0 * np.arange(d // 2) / d)


def rope_distances(n: int, d: int, base: float = 10000.0) -> np.ndarray:
    """Root mean square of ``||R_i x - R_j x||`` over unit vectors x, ``(n, n)``, in [0, 2].

    .. math:: e_{ij} = \\sqrt{2 - \\tfrac{4}{d} \\sum_k \\cos((i - j) \\theta_k)}
                     = \\sqrt{\\tfrac{8}{d} \\sum_k \\sin^2((i - j) \\theta_k / 2)}

    The second form, which keeps its digits for small angles, is the one computed. It is ``sqrt(2/d)`` times
    the distance between sinusoidal encodings of the same width and base.
    """
    n = checks.positive_int(n, "n")
    half_angles = np.outer(np.arange(n), rope_frequencies(d, base)) / 2.0
    by_lag = np.sqrt(8.0 / d * (np.sin(half_angles) ** 2).sum(axis=1))
    return by_lag[_lags(n).astype(int)]


def apply_rope(
    x: np.ndarray, positions: np.ndarray, *, base: float = 10000.0, layout: str = "interleaved"
) -> np.ndarray:
    """Rotate vectors by their positions (Su et al. 2021).

    Parameters
    ----------
    x
        ``(..., n, d)`` real, d even.
    positions
        ``(n,)`` real; the angles ``positions * theta_k`` are taken in float64 whatever the dtype of ``x``.
    base
        of the frequencies ``theta_k = base^(-2k/d)``.
    layout
        which coordinates are a pair: ``"interleaved"`` (0, 1), (2, 3), ... as in the paper; ``"half"`` (0,
        d/2), (1, d/2 + 1), ... as in GPT-NeoX and LLaMA.

    Returns
    -------
    ``(..., n, d)`` in the dtype of ``x`` (float64 for integers); the lengths of the vectors are kept.
    """
    x = np.asarray(x)
    if x.ndim < 2:
        raise ValueError(f"x must have shape (..., n, d), not {x.shape}")
    positions = np.asarray(positions, dtype=np.float64)
    if positions.shape != (x.shape[-2],):
        raise ValueError(
            f"positions must have shape ({x.shape[-2]},), one for each row of x, not {positions.shape}"
        )
    first, second = _pair_slices(x.shape[-1], layout)
    angles = np.outer(positions, rope_frequencies(x.shape[-1], base))
    cosine, sine = np.cos(angles), np.sin(angles)
    rotated = np.empty(x.shape, np.result_type(x.dtype, np.float64))
    rotated[..., first] = x[..., first] * cosine - x[..., second] * sine
    rotated[..., second] = x[..., first] * sine + x[..., second] * cosine
    return rotated.astype(x.dtype) if np.issubdtype(x.dtype, np.floating) else rotated


def _pair_slices(d: int, layout: str) -> tuple[slice, slice]:
    if layout == "interleaved":
        return slice(0, None, 2), slice(1, None, 2)
    if layout == "half":
        return slice(0, d // 2), slice(d // 2, None)
    raise ValueError(f"layout must be 'interleaved' or 'half', not {layout!r}")


def t5_buckets(
    n: int, *, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> np.ndarray:
    """T5's bucket of each relative position ``j - i`` (query i, key j), ``(n, n)`` ints in [0, n_buckets).

    Half of a side's buckets hold one lag each; the others grow geometrically up to ``max_distance``, and the
    last holds all beyond (Raffel et al. 2020). With ``bidirectional``, keys after the query have the upper
    half of the buckets; without, they share bucket 0.
    """
    n = checks.positive_int(n, "n")
    n_buckets = checks.positive_int(n_buckets, "n_buckets", minimum=4 if bidirectional else 2)
    if bidirectional and n_buckets % 2:
        raise ValueError(
            f"n_buckets must be even when bidirectional, one half for each side, not {n_buckets}"
        )
    side = n_buckets // 2 if bidirectional else n_buckets
    exact = side // 2
    max_distance = checks.positive_int(max_distance, "max_distance", minimum=exact + 1)
    relative = np.arange(n)[None, :] - np.arange(n)[:, None]
    lag = np.abs(relative) if bidirectional else np.maximum(-relative, 0)
    growth = np.log(np.maximum(lag, 1) / exact) / math.log(max_distance / exact)
    bucket = np.where(
        lag < exact, lag, np.minimum(exact + np.floor(growth * (side - exact)).astype(int), side - 1)
    )
    return bucket + side * (relative > 0) if bidirectional else bucket


def power_line(n: int, exponent: float) -> np.ndarray:
    """Positions on a line after a Box-Cox transform, as distances ``|g(i) - g(j)|``, ``(n, n)``.

    .. math:: g_a(i) = \\frac{(1 + i)^a - 1}{a}, \\qquad g_0(i) = \\log(1 + i)

    ``exponent`` a = 1 is ALiBi's line; a < 0 is a relaxation towards a limit.
    """
    n = checks.positive_int(n, "n")
    exponent = float(exponent)
    if not math.isfinite(exponent):
        raise ValueError(f"exponent must be finite, not {exponent}")
    logs = np.log1p(np.arange(n))
    places = logs * exprel(exponent * logs)  # exprel(x) = (e^x - 1) / x, and 1 at 0
    return np.abs(places[:, None] - places[None, :])


def round_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """``x`` rounded to the nearest bfloat16, ties to even, held in float32.

    bfloat16 is float32 without its last 16 bits: 8 significant bits, the range of float32. Wider numbers pass
    through float32, as they do in torch and in hardware. NaN stays NaN; what is too large becomes infinite.
    """
    with np.errstate(over="ignore"):
        x = np.asarray(x).astype(np.float32)
    bits = x.view(np.uint32)
    last_kept = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + last_kept) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def _lags(n: int) -> np.ndarray:
    i = np.arange(n, dtype=np.float64)
    return np.abs(i[:, None] - i[None, :])


def _positive(value: float, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number > 0, not {value!r}")
    return number
