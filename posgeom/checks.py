"""What every public function asks of its arguments, said once."""

from __future__ import annotations

import operator

import numpy as np

__all__ = ["finite_matrix", "generator", "points", "positive_int", "same_shape", "square_dissimilarity"]

TILE = 128


def generator(rng: np.random.Generator | int) -> np.random.Generator:
    """A generator from a generator (returned as it is) or from an integer seed.

    ``None`` is refused: a result of this book can always be drawn again.
    """
    if rng is None:
        raise ValueError(
            "rng is None: pass a numpy.random.Generator or an integer seed, so that the draw can be repeated"
        )
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise ValueError(
            f"rng must be a numpy.random.Generator or an integer seed >= 0, not {rng!r}"
        ) from None


def positive_int(value: int, name: str, *, minimum: int = 1) -> int:
    """``value`` as a plain int, or a ``ValueError`` that names it when it is not an integer >=
    ``minimum``.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer, not {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {number}")
    return number


def finite_matrix(x: np.ndarray, name: str) -> np.ndarray:
    """``x`` as a float64 matrix of finite numbers, or a ``ValueError`` that names the first entry at
    fault.
    """
    matrix = np.asarray(x)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix (2 axes), not an array of shape {matrix.shape}")
    if not np.issubdtype(matrix.dtype, np.number) or np.iscomplexobj(matrix):
        raise ValueError(f"{name} must hold real numbers, not {matrix.dtype}")
    matrix = matrix.astype(np.float64, copy=False)
    bad = ~np.isfinite(matrix)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(f"{name}[{i}, {j}] is {matrix[i, j]}: every entry must be a finite number")
    return matrix


def points(P: np.ndarray, name: str = "P") -> np.ndarray:
    """``P`` as ``(n, d)`` float64, one row a position; ``ValueError`` for another shape or an entry not
    finite.
    """
    P = finite_matrix(P, name)
    if P.shape[0] == 0:
        raise ValueError(f"{name} has no rows: it needs one row for each position")
    return P


def square_dissimilarity(x: np.ndarray, name: str, *, rtol: float = 1e-8) -> np.ndarray:
    """``x`` as an ``(n, n)`` float64 dissimilarity: symmetric, non-negative, finite, zero on the diagonal.

    Asymmetry and a non-zero diagonal up to ``rtol`` times the largest entry pass as rounding, and are
    removed.

    Raises
    ------
    ValueError
        naming ``name``, the entry at fault and the cure.
    """
    D = finite_matrix(x, name)
    rows, columns = D.shape
    if rows != columns:
        raise ValueError(
            f"{name} has shape {D.shape}, but a dissimilarity matrix is square (n, n): "
            f"if these are points, one row a position, pass euclidean_distances({name})"
        )
    if rows == 0:
        raise ValueError(f"{name} is empty: it needs at least one position")
    slack = rtol * max(D.max(), -D.min())
    diagonal = np.abs(np.diagonal(D))
    asymmetry = _asymmetry(D)
    if asymmetry > slack:
        i, j = np.unravel_index(np.argmax(np.abs(D - D.T)), D.shape)
        raise ValueError(
            f"{name} is not symmetric: {name}[{i}, {j}] = {D[i, j]:g} but {name}[{j}, {i}] = {D[j, i]:g}; "
            f"if these are points, pass euclidean_distances({name})"
        )
    if diagonal.max() > slack:
        i = int(np.argmax(diagonal))
        raise ValueError(
            f"{name}[{i}, {i}] = {D[i, i]:g}, but a position is at distance 0 from itself; if {name} holds "
            "similarities or a Gram matrix, turn it into distances first"
        )
    if D.min() < -slack:
        i, j = np.unravel_index(np.argmin(D), D.shape)
        raise ValueError(f"{name}[{i}, {j}] = {D[i, j]:g} is negative: a dissimilarity is at least 0")
    D = np.maximum((D + D.T) / 2 if asymmetry else D, 0.0)
    np.fill_diagonal(D, 0.0)
    return D


def _asymmetry(D: np.ndarray) -> float:
    """The largest ``|D[i, j] - D[j, i]|``, tile by tile: a large matrix is read across its rows but once."""
    tiles = [slice(start, start + TILE) for start in range(0, len(D), TILE)]
    return float(max(np.abs(D[a, b] - D[b, a].T).max() for k, a in enumerate(tiles) for b in tiles[k:]))


def same_shape(E: np.ndarray, D: np.ndarray) -> None:
    """``ValueError`` unless ``E`` and ``D`` are about the same positions."""
    if E.shape != D.shape:
        raise ValueError(
            f"E has shape {E.shape} and D has shape {D.shape}: both must be (n, n) for the same n positions; "
            "points go through euclidean_distances first"
        )
