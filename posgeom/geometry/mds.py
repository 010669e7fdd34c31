"""Multidimensional scaling: points whose distances reproduce given dissimilarities.

Classical scaling (the paper's Algorithm 1) minimises strain, ``||B - P P^T||_F``; SMACOF minimises stress.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh, svd
from scipy.linalg.blas import dsymv
from scipy.optimize import minimize
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from posgeom import checks
from posgeom.geometry.distances import euclidean_distances

__all__ = ["MDS", "classical_mds", "effective_rank", "gram_matrix", "low_rank", "smacof"]

# Lanczos pays when few of many eigenvectors are asked for; below this size a full decomposition takes
# milliseconds.
PARTIAL_FROM = 400
PARTIAL_SHARE = 10
LANCZOS_TOLERANCE = 1e-10
CACHED_ENTRIES = 1 << 16
# Majorisation steps go on while each still takes this share off the stress: they choose the valley.
VALLEY_FOUND = 1e-4


@dataclass(frozen=True, eq=False)
class MDS:
    """A configuration of points and the spectrum of the Gram matrix behind it.

    Attributes
    ----------
    points
        ``(n, d)`` float64, one row a position.
    gram
        ``(n, n)`` the doubly centred matrix ``B`` of the dissimilarities.
    passes
        how often all pairwise distances were computed by an iterative method; 0 for classical scaling.
    converged
        whether an iterative method stopped by its tolerance, not by its limit; True for classical scaling.
    eigenvalues
        ``(n,)`` the full spectrum of ``gram``, descending; computed when first asked for.
    rank
        the number of eigenvalues above 1e-10 times the largest magnitude: the width at which the stress is
        zero if no eigenvalue is negative.
    negative_mass
        ``sum |negative eigenvalues| / sum |eigenvalues|`` in [0, 1]: 0 for Euclidean dissimilarities (up to
        rounding).
    """

    points: np.ndarray
    gram: np.ndarray
    passes: int = 0
    converged: bool = True

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        return eigh(self.gram, eigvals_only=True)[::-1]

    @property
    def rank(self) -> int:
        return effective_rank(self.eigenvalues)

    @property
    def negative_mass(self) -> float:
        total = np.abs(self.eigenvalues).sum()
        return float(-self.eigenvalues[self.eigenvalues < 0].sum() / total) if total > 0 else 0.0


def gram_matrix(D: np.ndarray) -> np.ndarray:
    """Double centring: ``B = -1/2 J D^2 J`` with ``J = I - 11^T/n`` and ``D^2`` taken entrywise (Torgerson
    1952).

    ``(n, n)`` symmetric, rows sum to 0. If ``D`` holds Euclidean distances, ``B`` is the Gram matrix of the
    centred points. ``ValueError`` for a ``D`` that is not a dissimilarity matrix.
    """
    squared = checks.square_dissimilarity(D, "D")
    squared *= squared
    row = squared.mean(axis=0)
    mean = row.mean()
    # Some rows at a time stay in the cache for all four steps.
    height = max(1, CACHED_ENTRIES // len(row))
    for start in range(0, len(row), height):
        block = squared[start : start + height]
        block -= row[start : start + height, None]
        block -= row[None, :]
        block += mean
        block *= -0.5
    return squared


def effective_rank(eigenvalues: np.ndarray, rtol: float = 1e-10) -> int:
    """How many eigenvalues exceed ``rtol`` times the largest magnitude: the positive directions, in any order
    and unit.
    """
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    if eigenvalues.ndim != 1 or not np.isfinite(eigenvalues).all():
        raise ValueError("eigenvalues must be one axis of finite numbers")
    if not 0 <= rtol < 1:
        raise ValueError(f"rtol must be in [0, 1), a share of the largest eigenvalue, not {rtol!r}")
    return int(np.count_nonzero(eigenvalues > rtol * np.abs(eigenvalues).max(initial=0.0)))


def classical_mds(D: np.ndarray, d: int | None = None) -> MDS:
    """Classical multidimensional scaling (the paper's Algorithm 1; Torgerson 1952, Gower 1966).

    .. math:: B = -\\tfrac12 J D^{\\circ 2} J = U \\Lambda U^\\top, \\qquad P = U_d \\, \\Lambda_d^{1/2}

    Minimises the strain ``||B - P P^T||_F`` over all ``P`` of rank at most d; it does not minimise the
    stress.

    Parameters
    ----------
    D
        ``(n, n)`` dissimilarities.
    d
        width of the configuration, >= 1; ``None`` takes as many columns as there are positive eigenvalues.
        Columns beyond those are zero.

    Returns
    -------
    :class:`MDS`. Columns are in descending order of eigenvalue; the sign of each makes its largest entry
    positive. For d well below n only the top of the spectrum is decomposed, and ``.eigenvalues`` costs extra
    when asked for.
    """
    B = gram_matrix(D)
    n = len(B)
    if d is None:
        eigenvalues, vectors = _top(B, n)
        width = effective_rank(eigenvalues)
    else:
        width = checks.positive_int(d, "d")
        eigenvalues, vectors = _top(B, min(width, n))
    used = min(width, effective_rank(eigenvalues))
    points = np.zeros((n, width))
    points[:, :used] = vectors[:, :used] * np.sqrt(eigenvalues[:used])
    mds = MDS(points, B)
    if len(eigenvalues) == n:
        mds.__dict__["eigenvalues"] = eigenvalues
    return mds


def _top(B: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """The d largest eigenvalues of ``B``, descending, with eigenvectors whose largest entries are
    positive.
    """
    n = len(B)
    if n >= PARTIAL_FROM and d * PARTIAL_SHARE <= n:
        eigenvalues, vectors = _partial(B, d)
    else:
        eigenvalues, vectors = eigh(B)
    order = np.argsort(eigenvalues)[::-1]
    eigenvalues, vectors = eigenvalues[order], vectors[:, order]
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return eigenvalues, vectors * np.where(peaks < 0, -1.0, 1.0)


def _partial(B: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    n = len(B)
    # Time goes into reading B, and this product reads one triangle of it.
    product = LinearOperator(B.shape, matvec=lambda x: dsymv(1.0, B.T, x), dtype=np.float64)
    try:
        # A fixed start makes the answer repeatable; it must not be constant, which B maps to 0.
        # An eigenvalue is wrong by about the square of the tolerance.
        return eigsh(product, k=d, which="LA", tol=LANCZOS_TOLERANCE, v0=np.cos(np.arange(n) ** 2 + 1.0))
    except ArpackError:
        # Lanczos fails on B = 0, where every position is alike, and may not converge on a flat spectrum.
        return eigh(B, subset_by_index=[n - d, n - 1])


def smacof(
    D: np.ndarray,
    d: int,
    *,
    init: np.ndarray | None = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    rng: np.random.Generator | int = 0,
) -> MDS:
    """The configuration of least stress near a start (SMACOF, de Leeuw 1977, with a quasi-Newton finish).

    Minimises ``sum_{i<j} (||p_i - p_j|| - d_ij)^2``. Majorisation steps ``X <- G(X)`` (the Guttman
    transform), each of which lowers the stress, choose the valley; once a step takes off less than a
    ten-thousandth, L-BFGS goes down the same valley in far fewer passes, with the gradient ``2 n (X - G(X))``
    that the transform gives for free.

    Parameters
    ----------
    D
        ``(n, n)`` dissimilarities.
    d
        width, >= 1.
    init
        a start ``(n, d)``, or several, ``(s, n, d)``, of which the best end is kept; ``None`` starts from
        classical scaling. Points that coincide in every start stay together under majorisation.
    max_iter
        how many passes over all pairs each start may take.
    tol
        stops when a pass takes less than this share off the stress.
    rng
        draws among several starts that end at the same stress (to 1e-9).

    Returns
    -------
    :class:`MDS` with ``.points`` centred, ``.passes`` and ``.converged`` of the start that was kept. Never of
    higher stress than the start.
    """
    D = checks.square_dissimilarity(D, "D")
    d = checks.positive_int(d, "d")
    max_iter = checks.positive_int(max_iter, "max_iter")
    if not 0 <= tol < 1:
        raise ValueError(f"tol must be in [0, 1), not {tol!r}")
    rng = checks.generator(rng)
    if not D.any():
        return MDS(np.zeros((len(D), d)), gram_matrix(D))
    ends = [_descend(start, D, max_iter, tol) for start in _starts(init, D, d)]
    final = np.array([raw for raw, _ in ends])
    tied = np.flatnonzero(final <= final.min() + 1e-9 * (D**2).sum())
    return ends[rng.choice(tied)][1]


def _starts(init: np.ndarray | None, D: np.ndarray, d: int) -> list[np.ndarray]:
    if init is None:
        return [classical_mds(D, d).points]
    init = np.asarray(init, dtype=np.float64)
    if init.ndim not in (2, 3) or init.shape[-2:] != (len(D), d) or not len(init):
        raise ValueError(
            f"init must have shape ({len(D)}, {d}), or (s, {len(D)}, {d}) for s starts, not {init.shape}"
        )
    return [checks.points(start, "init") for start in init.reshape(-1, len(D), d)]


def _guttman(X: np.ndarray, D: np.ndarray) -> tuple[float, np.ndarray]:
    """Raw stress of ``X`` over ordered pairs and its Guttman transform, from one pass over the distances."""
    E = euclidean_distances(X)
    ratio = np.divide(D, E, out=np.zeros_like(D), where=E > 0)
    transform = (ratio.sum(axis=1)[:, None] * X - ratio @ X) / len(D)
    return float(((E - D) ** 2).sum()), transform


class _PassesUsedUp(Exception):
    """Ends a line search that would go beyond the passes that the caller allowed."""


def _descend(X: np.ndarray, D: np.ndarray, max_iter: int, tol: float) -> tuple[float, MDS]:
    """Raw stress over ordered pairs, and the configuration, where the descent from ``X`` ends."""
    X = X - X.mean(axis=0)
    raw, transform = _guttman(X, D)
    passes, negligible = 1, np.finfo(float).eps * (D**2).sum()
    # On a line the stress is one quadratic for each order of the points, and a step solves it exactly.
    valley_found = 0.0 if X.shape[1] == 1 else VALLEY_FOUND
    gain = np.inf
    while passes < max_iter and raw > negligible and gain > max(valley_found, tol):
        before, X = raw, transform
        raw, transform = _guttman(X, D)
        passes += 1
        gain = (before - raw) / before
    converged = raw <= negligible or gain <= tol
    if not converged and passes < max_iter:
        raw, X, passes, converged = _finish(X, raw, D, max_iter, tol, passes)
    return raw, MDS(X - X.mean(axis=0), gram_matrix(D), passes, converged)


def _finish(
    X: np.ndarray, raw: float, D: np.ndarray, max_iter: int, tol: float, passes: int
) -> tuple[float, np.ndarray, int, bool]:
    """Down the valley from ``X`` by L-BFGS; the best points seen, their raw stress, all passes,
    convergence.
    """
    start = raw
    best = raw, X

    def relative(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, passes
        if passes == max_iter:
            raise _PassesUsedUp
        passes += 1
        Y = flat.reshape(X.shape)
        value, guttman = _guttman(Y, D)
        if value < best[0]:
            best = value, Y.copy()
        return value / start, (4.0 * len(D) / start) * (Y - guttman).ravel()

    options = {"maxfun": max_iter, "maxiter": max_iter, "ftol": tol, "gtol": 0.0}
    try:
        minimize(relative, X.ravel(), jac=True, method="L-BFGS-B", options=options)
        converged = True
    except _PassesUsedUp:
        converged = False
    return *best, passes, converged


def low_rank(P: np.ndarray, r: int) -> tuple[np.ndarray, np.ndarray]:
    """The best factors ``A (n, r)``, ``B (d, r)`` with ``P ~ A B^T`` (truncated SVD, Eckart-Young; the
    paper's Remark 8).

    The singular values are shared evenly between the two factors. ``r (n + d)`` numbers stand for ``n d``;
    when that saves nothing, a ``UserWarning`` says so.

    Raises
    ------
    ValueError
        unless ``1 <= r <= min(n, d)``.
    """
    P = checks.points(P)
    n, d = P.shape
    r = checks.positive_int(r, "r")
    if r > min(n, d):
        raise ValueError(f"r = {r}, but P of shape {P.shape} has rank at most {min(n, d)}")
    if r * (n + d) >= n * d:
        warnings.warn(
            f"r = {r} saves nothing: r (n + d) = {r * (n + d)} parameters stand for n d = {n * d}; "
            f"it pays for r < n d / (n + d) = {n * d / (n + d):.1f}",
            stacklevel=2,
        )
    left, singular, right = svd(P, full_matrices=False)
    root = np.sqrt(singular[:r])
    return left[:, :r] * root, right[:r].T * root
