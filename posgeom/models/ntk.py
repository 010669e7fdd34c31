"""Do learned distances grow with lag? The linear model that has an answer, and the kernel regime around it.

The model ``z = A P W`` is linear in the positions P: attention A and readout W are frozen. Its gradient flow
is known in closed form for every start, and so is what the flow does to distances. A network is near such a
model as long as its tangent kernel stands still; the last functions measure whether it does.

Triples are (i, j, k) of different positions with ``|i - j| < |i - k|``, as in
:mod:`posgeom.geometry.monotonicity`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import gammaln, ndtr, softmax
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn.utils import parametrize

from posgeom import checks
from posgeom.corpora.synthetic import Law, independent
from posgeom.geometry import monotonicity
from posgeom.geometry.distances import euclidean_distances
from posgeom.models.encoder import Randomness, torch_generator

__all__ = [
    "Hypothesis",
    "LinearModel",
    "aitchison_distances",
    "arc_law",
    "clr",
    "cross_entropy_limit",
    "cross_entropy_velocity",
    "empirical_kernel",
    "hypothesis_of_monotonicity",
    "noisy_violation_rate",
    "ntk_parametrised",
    "order_changes",
    "relative_change",
    "reversal_probability",
    "share_with_slack",
    "simulate",
]

# Singular values below this share of the largest count as zero, in the flow and in its limit.
RANK_TOLERANCE = 1e-12
TERMS_AT_ONCE = 1 << 21


# --- The hypothesis, and a corpus that meets it


class Hypothesis(NamedTuple):
    """How far distances are from growing with lag: all 0 where the hypothesis holds to the letter."""

    violation_rate: float  # share of the triples with d_ij > d_ik
    broken_ties: float  # share of the triples with |i - j| = |i - k| that have d_ij != d_ik
    widest_tie: float  # largest |d_ij - d_ik| among those, in units of the mean distance


def hypothesis_of_monotonicity(D: np.ndarray, *, rtol: float = 1e-12) -> Hypothesis:
    """Is ``|i - j| <= |i - k|`` always accompanied by ``d_ij <= d_ik``?

    To the letter the condition speaks of ties too: two positions at one lag from i, on either side of it,
    must be equally far from it. ``D`` is ``(n, n)``, n >= 3; distances that differ by less than ``rtol``
    times the mean distance are equal.
    """
    D = checks.square_dissimilarity(D, "D")
    violations = monotonicity.violation_rate(D)
    n = len(D)
    i, j, k = np.array([(i, i - lag, i + lag) for i in range(n) for lag in range(1, min(i, n - 1 - i) + 1)]).T
    mean = D[np.triu_indices(n, 1)].mean()
    gap = np.abs(D[i, j] - D[i, k]) / mean if mean > 0 else np.zeros(len(i))
    return Hypothesis(violations, float((gap > rtol).mean()), float(gap.max()))


def arc_law(angles: np.ndarray, first: np.ndarray = (1.0, 0.0), last: np.ndarray = (0.0, 1.0)) -> Law:
    """The arc corpus: roots of the distributions on a quarter circle between two laws without a common word.

    .. math:: \\sqrt{\\mu_i} = \\cos t_i \\sqrt{\\alpha} + \\sin t_i \\sqrt{\\beta}, \\qquad
              d_H(i, j) = 2 \\sin \\tfrac12 |t_i - t_j|

    With equally spaced angles the Hellinger distance is an increasing function of the lag, ties included.

    Parameters
    ----------
    angles
        ``(n,)``, the t_i, in [0, pi / 2].
    first, last
        ``(V,)`` distributions alpha and beta; no word has positive probability in both.

    Returns
    -------
    The law: ``distributions`` ``(n, V)``, rows cos^2 t_i alpha + sin^2 t_i beta, and a sampler of texts.
    """
    angles = np.atleast_1d(np.asarray(angles, dtype=np.float64))
    if angles.ndim != 1 or not ((angles >= 0) & (angles <= np.pi / 2 + 1e-12)).all():
        raise ValueError("angles must be (n,) numbers from 0 to pi / 2, or a root would be negative")
    first, last = (
        checks.finite_matrix(np.atleast_2d(x), name)[0] for x, name in ((first, "first"), (last, "last"))
    )
    if first.shape != last.shape:
        raise ValueError(
            f"first has {len(first)} words and last has {len(last)}: give both the same vocabulary"
        )
    common = np.flatnonzero((first > 0) & (last > 0))
    if common.size:
        raise ValueError(
            f"word {common[0]} has positive probability in first and in last: they may share no word"
        )
    return independent(np.outer(np.cos(angles) ** 2, first) + np.outer(np.sin(angles) ** 2, last))


def share_with_slack(D: np.ndarray, slack: float) -> float:
    """Share of the triples with ``d_ik > slack * d_ij``: no readout of that condition can reverse them."""
    D = checks.square_dissimilarity(D, "D")
    if not (math.isfinite(slack) and slack >= 1):
        raise ValueError(
            f"slack must be a finite number >= 1, the condition number of a readout, not {slack!r}"
        )
    near, far = _triples(D)
    return float((far > slack * near).mean())


def order_changes(before: np.ndarray, after: np.ndarray) -> float:
    """Share of the triples in which j is nearer to i than k is in one dissimilarity and not in the other."""
    before, after = checks.square_dissimilarity(before, "before"), checks.square_dissimilarity(after, "after")
    checks.same_shape(before, after)
    (near, far), (new_near, new_far) = _triples(before), _triples(after)
    return float(((near < far) != (new_near < new_far)).mean())


def _triples(D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``D[i, j]`` and ``D[i, k]`` over all triples."""
    n = len(D)
    if n < 3:
        raise ValueError(f"a triple of distinct positions needs at least 3, and there are {n}")
    lag = np.abs(np.arange(n)[:, None] - np.arange(n))
    i, j, k = np.nonzero((lag[:, :, None] > 0) & (lag[:, :, None] < lag[:, None, :]))
    return D[i, j], D[i, k]


# --- The linear model


@dataclass(frozen=True, eq=False)
class LinearModel:
    """``z = A P W`` with loss ``L(P) = 1/2 ||A P W - T||_F^2``; only the positions P ``(n, d)`` are trained.

    Parameters
    ----------
    A
        ``(m, n)``: what each of m outputs makes of the positions, e.g. frozen attention weights (m = n), or
        the data of m sequences.
    W
        ``(d, q)``: the frozen readout.
    T
        ``(m, q)``: the targets, e.g. the roots of the positional distributions (q = V).
    """

    A: np.ndarray
    W: np.ndarray
    T: np.ndarray

    def __post_init__(self) -> None:
        for name in ("A", "W", "T"):
            object.__setattr__(self, name, checks.finite_matrix(getattr(self, name), name).copy())
        wanted = (self.A.shape[0], self.W.shape[1])
        if self.T.shape != wanted:
            raise ValueError(f"T has shape {self.T.shape}, but A P W has shape (m, q) = {wanted}")

    def loss(self, P: np.ndarray) -> float:
        """``1/2 ||A P W - T||_F^2``."""
        return float(0.5 * ((self.A @ self._table(P) @ self.W - self.T) ** 2).sum())

    def velocity(self, P: np.ndarray) -> np.ndarray:
        """``dP/dt = -A^T (A P W - T) W^T``, ``(n, d)``: minus the gradient of the loss."""
        return -self.A.T @ (self.A @ P @ self.W - self.T) @ self.W.T

    def flow(self, P0: np.ndarray, t: float) -> np.ndarray:
        """P at time t >= 0 (``math.inf`` allowed) of the gradient flow that starts at P0, ``(n, d)``.

        In the singular bases of A and W every coordinate goes its own way: with rate ``(s_a w_b)^2`` it
        forgets its start and approaches ``t_ab / (s_a w_b)``; with rate 0 it stays where it was for ever.
        """
        P0 = self._table(P0)
        if not t >= 0:
            raise ValueError(f"t must be a time >= 0, not {t!r}")
        rows, columns, gains, targets = self._modes
        moving = gains > 0
        forgotten = np.ones_like(gains)
        forgotten[moving] = -np.expm1(-(gains[moving] ** 2) * t)
        forgotten[~moving] = 0.0
        ends = np.divide(targets, gains, out=np.zeros_like(gains), where=moving)
        start = rows.T @ P0 @ columns
        return rows @ ((1 - forgotten) * start + forgotten * ends) @ columns.T

    def fixed_point(self, P0: np.ndarray) -> np.ndarray:
        """Where the flow ends: ``P0 - A^+ A P0 W W^+ + A^+ T W^+``, the minimiser of L nearest to P0."""
        P0 = self._table(P0)
        A_inverse, W_inverse = (np.linalg.pinv(x, rcond=RANK_TOLERANCE) for x in (self.A, self.W))
        return P0 - A_inverse @ self.A @ P0 @ self.W @ W_inverse + A_inverse @ self.T @ W_inverse

    @cached_property
    def _modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Bases of the rows (n, n) and of the columns (d, d) of P; gains s_a w_b and targets, (n, d)."""
        left, s, rows = _svd(self.A)
        columns, w, right = _svd(self.W)
        shape = (len(rows), len(columns))
        gains, targets = np.zeros(shape), np.zeros(shape)
        gains[: len(s), : len(w)] = np.outer(s, w)
        targets[: len(s), : len(w)] = left[:, : len(s)].T @ self.T @ right[: len(w)].T
        return rows.T, columns, gains, targets

    def _table(self, P: np.ndarray) -> np.ndarray:
        P = checks.points(P)
        wanted = (self.A.shape[1], self.W.shape[0])
        if P.shape != wanted:
            raise ValueError(f"P has shape {P.shape}, but A and W ask for (n, d) = {wanted}")
        return P


def simulate(
    velocity: Callable[[np.ndarray], np.ndarray],
    P0: np.ndarray,
    times: Sequence[float],
    *,
    rtol: float = 3e-14,
) -> np.ndarray:
    """``dP/dt = velocity(P)`` integrated from P0 at time 0 to each of ``times``, ``(len(times), n, d)``.

    A Runge-Kutta method of order 8 that knows nothing of any closed form (SciPy's DOP853). ``rtol`` bounds
    the error of a step relative to the entries; it cannot be below 2.3e-14.
    """
    P0 = checks.points(P0, "P0")
    times = np.asarray(times, dtype=np.float64)
    if times.ndim != 1 or not len(times) or times[0] < 0 or (np.diff(times) <= 0).any():
        raise ValueError("times must be rising numbers >= 0")
    atol = rtol * max(1.0, float(np.abs(P0).max()))
    now, state, found = 0.0, P0.ravel(), []
    for time in times:
        # Each of the times ends a step: between steps SciPy interpolates, and no tolerance bounds that.
        if time > now:
            solution = solve_ivp(
                lambda t, p: velocity(p.reshape(P0.shape)).ravel(),
                (now, time),
                state,
                method="DOP853",
                t_eval=[time],
                rtol=rtol,
                atol=atol,
            )
            if not solution.success:
                raise ValueError(f"velocity could not be integrated to time {time:g}: {solution.message}")
            now, state = time, solution.y[:, -1]
        found.append(state.reshape(P0.shape))
    return np.array(found)


def reversal_probability(
    near: np.ndarray, far: np.ndarray, *, sigma: float, dimensions: int, exact: bool = False
) -> np.ndarray:
    """How probably the start's noise makes the near position the farther one.

    Positions i, j, k keep independent normal coordinates of standard deviation sigma in ``dimensions`` = m
    directions that training does not reach, next to squared distances ``near`` (of i and j) and ``far`` (of i
    and k) in the others. With

    .. math:: \\lVert g_i - g_j \\rVert^2 - \\lVert g_i - g_k \\rVert^2
              \\sim \\sqrt{12}\\, \\sigma^2 \\sum_{l=1}^{m} \\xi_l \\eta_l , \\qquad
              P = E\\, \\Phi\\Bigl( \\frac{d_{ij}^2 - d_{ik}^2}{\\sigma^2 \\sqrt{12 \\chi^2_m}} \\Bigr)
              \\approx \\Phi\\Bigl( \\frac{d_{ij}^2 - d_{ik}^2}{\\sigma^2 \\sqrt{12 m}} \\Bigr) .

    Parameters
    ----------
    near, far
        squared distances, of one shape.
    sigma, dimensions
        > 0 and m >= 1.
    exact
        the mean over chi-squared (to about 1e-10) in place of its normal approximation.

    Returns
    -------
    probabilities in (0, 1), of the shape of ``near``.
    """
    near, far = np.asarray(near, dtype=np.float64), np.asarray(far, dtype=np.float64)
    dimensions = checks.positive_int(dimensions, "dimensions")
    if not (math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"sigma must be a finite number > 0, not {sigma!r}")
    argument = (near - far) / (math.sqrt(12) * sigma**2)
    if not exact:
        return ndtr(argument / math.sqrt(dimensions))
    # Trapezoids in the logarithm of half of chi-squared: the integrand falls off exponentially on both sides.
    y = np.arange(math.log(dimensions) - 80 / dimensions - 8, math.log(dimensions) + 8, 0.05)
    weights = np.exp(dimensions / 2 * y - np.exp(y) - gammaln(dimensions / 2))
    y, weights = y[weights > 1e-16], weights[weights > 1e-16]
    distinct, place = np.unique(argument, return_inverse=True)
    means = np.concatenate(
        [
            ndtr(part[:, None] * np.exp(-y / 2) / math.sqrt(2)) @ weights
            for part in np.array_split(distinct, 1 + distinct.size * y.size // TERMS_AT_ONCE)
        ]
    )
    return (means / weights.sum())[place].reshape(argument.shape)


def noisy_violation_rate(D: np.ndarray, *, sigma: float, dimensions: int, exact: bool = False) -> float:
    """The expected violation rate when normal noise in ``dimensions`` more directions comes on top of ``D``.

    The mean of :func:`reversal_probability` over all triples of ``D`` ``(n, n)``.
    """
    near, far = _triples(checks.square_dissimilarity(D, "D"))
    return float(
        reversal_probability(near**2, far**2, sigma=sigma, dimensions=dimensions, exact=exact).mean()
    )


def _svd(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Full singular value decomposition; what is zero up to rounding is exactly zero."""
    left, s, right = np.linalg.svd(x)
    return left, np.where(s > RANK_TOLERANCE * s.max(initial=0.0), s, 0.0), right


# --- Cross-entropy


def clr(mu: np.ndarray) -> np.ndarray:
    """Centred log ratios ``log mu_i - mean(log mu_i)``, row by row, ``(n, V)`` (Aitchison 1986).

    ``ValueError`` naming the first probability that is not positive: its logarithm is infinite.
    """
    mu = checks.finite_matrix(mu, "mu")
    if (mu <= 0).any():
        i, v = np.argwhere(mu <= 0)[0]
        raise ValueError(
            f"mu[{i}, {v}] = {mu[i, v]:g}, but log ratios need positive probabilities: add a pseudo-count"
        )
    logs = np.log(mu)
    return logs - logs.mean(axis=1, keepdims=True)


def aitchison_distances(mu: np.ndarray) -> np.ndarray:
    """Euclidean distances between centred log ratios, ``(n, n)``; see :func:`clr`."""
    return euclidean_distances(clr(mu))


def cross_entropy_velocity(mu: np.ndarray, W: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """``P -> dP/dt = (mu - softmax(P W)) W^T``: minus the gradient of ``sum_i KL(mu_i || softmax(p_i W))``.

    ``mu`` is ``(n, V)``, ``W`` is ``(d, V)``, P is ``(n, d)``.
    """
    mu, W = checks.finite_matrix(mu, "mu"), checks.finite_matrix(W, "W")
    if mu.shape[1] != W.shape[1]:
        raise ValueError(f"mu has {mu.shape[1]} words, but W reads out {W.shape[1]}")
    return lambda P: (mu - softmax(P @ W, axis=1)) @ W.T


def cross_entropy_limit(mu: np.ndarray, W: np.ndarray, P0: np.ndarray) -> np.ndarray:
    """Where that flow ends when ``K = W^T W`` is invertible (so d >= V), ``(n, d)``.

    .. math:: z_i = \\log \\mu_i + c_i \\mathbf 1, \\qquad
              c_i = \\frac{(p_i(0) W - \\log \\mu_i) K^{-1} \\mathbf 1}
                        {\\mathbf 1^\\top K^{-1} \\mathbf 1}, \\qquad
              P_\\infty = P_0 (I - W W^+) + z W^+

    With W^T W = I and a start at zero, z is ``clr(mu)``.
    """
    # Any shift of the logarithms will do: the constants c_i take it up.
    logs, W, P0 = clr(mu), checks.finite_matrix(W, "W"), checks.points(P0, "P0")
    if W.shape[1] != logs.shape[1] or P0.shape != (len(logs), W.shape[0]):
        raise ValueError(
            f"mu {logs.shape}, W {W.shape} and P0 {P0.shape} must have the shapes (n, V), (d, V) and (n, d)"
        )
    if np.linalg.matrix_rank(W, tol=RANK_TOLERANCE * np.linalg.norm(W, 2)) < W.shape[1]:
        raise ValueError(
            "W has rank below V, so not every law can be read out: use d >= V and independent columns"
        )
    inverse = np.linalg.pinv(W)
    weights = np.linalg.solve(W.T @ W, np.ones(W.shape[1]))
    constants = (P0 @ W - logs) @ weights / weights.sum()
    return P0 - P0 @ W @ inverse + (logs + constants[:, None]) @ inverse


# --- The tangent kernel of a network


def empirical_kernel(model: nn.Module, tokens: Tensor) -> np.ndarray:
    """The tangent kernel ``J J^T`` of a model at its parameters, ``(M, M)`` float64 (Jacot et al. 2018).

    J is the Jacobian of all M outputs ``model(tokens)``, flattened, by all parameters that require a
    gradient. It is held whole: M times the number of parameters.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("model has no parameter that requires a gradient")

    def outputs(values: dict[str, Tensor]) -> Tensor:
        return functional_call(model, values, (tokens,)).flatten()

    kernel = 0.0
    for jacobian in jacrev(outputs)(parameters).values():
        rows = jacobian.detach().flatten(1).double()  # (M, size of the parameter)
        kernel = kernel + (rows @ rows.T)
    return kernel.numpy()


def relative_change(before: np.ndarray, after: np.ndarray) -> float:
    """``||after - before||_F / ||before||_F``."""
    before, after = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if before.shape != after.shape:
        raise ValueError(f"before has shape {before.shape} and after has shape {after.shape}")
    size = np.linalg.norm(before)
    if size == 0:
        raise ValueError("before is zero, so no change is relative to it")
    return float(np.linalg.norm(after - before) / size)


def ntk_parametrised(model: nn.Module, *, rng: Randomness) -> nn.Module:
    """The model in the tangent kernel's parametrisation, drawn anew, in place; returns it.

    Every linear map becomes ``x -> (omega x) / sqrt(fan in) + b`` with standard normal omega and b = 0, and
    every table of vectors (embeddings, positions) standard normal. So one learning rate serves every width.
    """
    generator = torch_generator(rng)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if any(parametrize.is_parametrized(module) for module in linear):
        raise ValueError("model is parametrised already: build a new one")
    inside = {id(p) for module in linear for p in module.parameters()}
    with torch.no_grad():
        for p in model.parameters():
            if id(p) not in inside and p.ndim == 2:
                p.copy_(torch.randn(p.shape, generator=generator))
        for module in linear:
            parametrize.register_parametrization(module, "weight", _OverRoot(module.in_features))
            omega = module.parametrizations.weight.original
            omega.copy_(torch.randn(omega.shape, generator=generator))
            if module.bias is not None:
                module.bias.zero_()
    return model


class _OverRoot(nn.Module):
    """omega -> omega / sqrt(fan in)."""

    def __init__(self, fan_in: int) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(fan_in)

    def forward(self, omega: Tensor) -> Tensor:
        return self.scale * omega

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight / self.scale
