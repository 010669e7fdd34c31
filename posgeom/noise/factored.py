"""Corrected distances of many positions by their Gram matrix, which is never formed.

At even totals N the sampling floor is ``F_ij = (2/N) sum_v e(X_iv + X_jv)`` with ``e(c) = c/2 - h(c)``. What
two counts of a word share, ``e(a) + e(b) - e(a + b)``, is smooth in both, so to twelve digits it is a sum of
some twenty products of a function of a and a function of b. The Gram matrix of ``D2c`` is then made of sparse
factors and a diagonal: a product with a vector takes some steps for each count, and Lanczos finds the top of
the spectrum.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, hstack
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import gammaln

from posgeom import checks

__all__ = ["FactoredGram", "cross_gram", "excess", "leading", "leading_above", "shared"]

SUMMED_TO = 600
NODES = 48
DIGITS = 1e-12
# Where more than one in so many eigenvectors is wanted, a full decomposition is as fast.
PARTIAL_SHARE = 10


def excess(c: np.ndarray) -> np.ndarray:
    """``e(c) = c/2 - E sqrt(H (c - H))`` with ``H ~ Binomial(c, 1/2)``, for whole numbers c >= 0.

    From ``c/2 - sqrt(H (c - H)) = (H - c/2)^2 / (c/2 + sqrt(H (c - H)))``, which loses no digits; above 600
    from its expansion ``1/4 + 3/(16 c) + 11/(32 c^2) + 1.1142/c^3``, the last term fitted (error
    below 1e-10).
    """
    c = np.asarray(c)
    table = _summed_excess()
    beyond = np.maximum(c, SUMMED_TO).astype(np.float64)
    expansion = 1 / 4 + 3 / (16 * beyond) + 11 / (32 * beyond**2) + 1.1142 / beyond**3
    return np.where(c <= SUMMED_TO, table[np.minimum(c, SUMMED_TO)], expansion)


@lru_cache(1)
def _summed_excess() -> np.ndarray:
    c, k = np.ogrid[1 : SUMMED_TO + 1, : SUMMED_TO + 1]
    rest = np.maximum(c - k, 0)
    law = np.exp(gammaln(c + 1.0) - gammaln(k + 1.0) - gammaln(rest + 1.0) - c * np.log(2.0)) * (k <= c)
    terms = law * (k - c / 2) ** 2 / (c / 2 + np.sqrt(k * rest))
    return np.concatenate([[0.0], terms.sum(axis=1) / law.sum(axis=1)])


def shared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``e(a) + e(b) - e(a + b)``, ``(len(a), len(b))``: what a word adds to ``N (1 - F_ij / 2)`` beyond its
    parts.
    """
    return excess(a)[:, None] + excess(b)[None, :] - excess(np.add.outer(a, b))


def _factors(largest: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``u (len(values), r)`` and signs with ``shared(a, b) = sum_k sign_k u_k(a) u_k(b)`` up to ``largest``.

    By Nystroem's method from nodes that lie evenly on a logarithmic scale.
    """
    nodes = np.unique(np.geomspace(1, largest, NODES).round().astype(np.int64))
    eigenvalues, vectors = eigh(shared(nodes, nodes))
    kept = np.abs(eigenvalues) > DIGITS * np.abs(eigenvalues).max()
    u = shared(values, nodes) @ (vectors[:, kept] / np.sqrt(np.abs(eigenvalues[kept])))
    return u, np.sign(eigenvalues[kept])


class FactoredGram(LinearOperator):
    """``-1/2 J D2c J`` of counts with even totals, as an operator on vectors of n positions.

    ``D2c`` is :func:`posgeom.noise.correction.corrected_squared_distances` with the binomial allocation,
    whose closed form above counts of 600 is replaced by more digits.

    Parameters
    ----------
    counts
        ``(n, V)`` whole numbers >= 0, sparse or dense, with the same number of tokens in each row.

    Attributes
    ----------
    mean_plug_in, mean_corrected
        means over pairs of the squared Hellinger distances and of ``D2c``.

    Raises
    ------
    ValueError
        for fewer than 2 positions, or uneven totals.
    """

    def __init__(self, counts) -> None:
        counts = csr_matrix(counts, dtype=np.int64)
        n = counts.shape[0]
        totals = np.asarray(counts.sum(axis=1)).ravel()
        if n < 2 or totals.min() < 1 or np.ptp(totals) > 0:
            raise ValueError(
                "counts must have at least 2 positions with the same number of tokens, at least 1, at each: "
                f"these have {n} with {totals.min(initial=0)} to {totals.max(initial=0)} tokens"
            )
        super().__init__(np.float64, (n, n))
        total = int(totals[0])
        columns = counts.tocsc()
        columns = columns[:, np.diff(columns.indptr) > 0]
        roots = columns.sqrt() / np.sqrt(total)
        parts, signs = [roots], [np.ones(roots.shape[1])]
        # Words with small counts need few factors.
        most = np.asarray(columns.max(axis=0).todense()).ravel()
        edges = [0, *(1 << np.arange(int(most.max()).bit_length()))]
        edges[-1] = int(most.max())
        for low, high in zip(edges, edges[1:], strict=False):
            words = columns[:, (most > low) & (most <= high)]
            if words.nnz:
                values, where = np.unique(words.data, return_inverse=True)
                u, sign = _factors(high, values)
                for column, s in zip(u.T, sign, strict=True):
                    data = column[where] / np.sqrt(total)
                    parts.append(type(words)((data, words.indices, words.indptr), shape=words.shape))
                    signs.append(np.full(words.shape[1], -s))
        self._factor = hstack(parts, format="csr")
        self._transposed = self._factor.T.tocsr()
        self._signs = np.concatenate(signs)
        lengths = counts.copy()
        lengths.data = excess(2 * counts.data)
        # D2c has a diagonal of zeros, the factors have not.
        self._diagonal = np.asarray(lengths.sum(axis=1)).ravel() / total
        lengths.data = excess(counts.data)
        alone = np.asarray(lengths.sum(axis=1)).ravel() / total
        everywhere = np.asarray(self._factor.sum(axis=0)).ravel()
        width = roots.shape[1]
        pairs = n * (n - 1)
        plug_in = 2.0 * n**2 - 2.0 * everywhere[:width] @ everywhere[:width]
        factored = self._signs[width:] * everywhere[width:] @ everywhere[width:]
        floor = 4.0 * n * alone.sum() + 2.0 * factored - 2.0 * self._diagonal.sum()
        self.mean_plug_in = float(plug_in / pairs)
        self.mean_corrected = float((plug_in - floor) / pairs)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        x = x - x.mean()
        y = self._factor @ (self._signs * (self._transposed @ x)) - self._diagonal * x
        return y - y.mean()


def leading(gram, k: int, *, tol: float = 1e-10) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of a symmetric matrix or operator, descending, and eigenvectors ``(n, k)``.

    By Lanczos where k is small beside n. ``tol`` is the length of a residual as a share of its eigenvalue;
    the error of the eigenvalue is about its square.
    """
    n = gram.shape[0]
    k = min(checks.positive_int(k, "k"), n)
    if k * PARTIAL_SHARE > n:
        eigenvalues, vectors = eigh(gram @ np.eye(n))
    else:
        # A fixed start makes the answer repeatable; a constant one is mapped to 0 by a centred matrix.
        eigenvalues, vectors = eigsh(gram, k=k, which="LA", tol=tol, v0=np.cos(np.arange(n) ** 2 + 1.0))
    order = np.argsort(eigenvalues)[::-1][:k]
    return eigenvalues[order], vectors[:, order]


def leading_above(gram, level: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`leading`: all eigenvalues above ``level`` and some below it, at least k in all."""
    eigenvalues, vectors = leading(gram, k)
    while eigenvalues[-1] > level and len(eigenvalues) < gram.shape[0]:
        eigenvalues, vectors = leading(gram, 2 * len(eigenvalues))
    return eigenvalues, vectors


def cross_gram(first: csr_matrix, second: csr_matrix) -> LinearOperator:
    """``J (A B^T + B A^T) J / 2`` for the roots A, B ``(n, V)`` of two halves of texts, an operator."""
    transposed = [half.T.tocsr() for half in (first, second)]

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        x = x - x.mean()
        y = (first @ (transposed[1] @ x) + second @ (transposed[0] @ x)) / 2.0
        return y - y.mean()

    n = first.shape[0]
    return LinearOperator((n, n), matvec=product, dtype=np.float64)
