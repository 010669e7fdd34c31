"""Closed forms against integrators, formulas against draws, and the tangent kernel against its definition."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from torch import nn

from posgeom.corpora.synthetic import stationary
from posgeom.encodings.formulas import alibi_distances, random_gaussian
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.geometry.monotonicity import violation_rate
from posgeom.models import ntk
from posgeom.models.encoder import Encoder, EncoderConfig


def triples(n):
    return [t for t in permutations(range(n), 3) if abs(t[0] - t[1]) < abs(t[0] - t[2])]


# --- The hypothesis and the arc corpus


def test_arc_law_is_an_arc_and_meets_the_hypothesis_to_the_letter():
    angles = np.linspace(0, np.pi / 2, 9)
    D = hellinger_distances(ntk.arc_law(angles).distributions)
    assert np.allclose(D, 2 * np.sin(np.abs(angles[:, None] - angles) / 2), atol=1e-15)
    assert ntk.hypothesis_of_monotonicity(D)[:2] == (0, 0)
    many = ntk.arc_law(angles, first=[0.5, 0.3, 0.2, 0, 0], last=[0, 0, 0, 0.9, 0.1])
    assert np.allclose(hellinger_distances(many.distributions), D, atol=1e-14)


def test_unequal_steps_break_ties_and_then_more():
    lag_one = np.array([0, 0.1, 0.21, 0.3])  # d(1, 0) < d(1, 2) and d(2, 3) < d(2, 1): 2 of the 2 ties
    found = ntk.hypothesis_of_monotonicity(np.abs(lag_one[:, None] - lag_one))
    assert (found.violation_rate, found.broken_ties) == (0, 1)
    # Pair distances .1, .21, .3, .11, .2, .09 have mean 1.01 / 6; the gaps of the ties are .01 and .02.
    assert found.widest_tie == pytest.approx(0.02 / (1.01 / 6))
    assert ntk.hypothesis_of_monotonicity(alibi_distances(7)) == (0, 0, 0)
    assert ntk.hypothesis_of_monotonicity(np.zeros((4, 4))) == (0, 0, 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ntk.arc_law([0, 2.0]), "angles"),
        (lambda: ntk.arc_law([0.1], first=[1, 0], last=[0, 0, 1]), "first has 2 words"),
        (lambda: ntk.arc_law([0.1], first=[0.5, 0.5], last=[0, 1]), "word 1"),
        (lambda: ntk.arc_law([0.1], first=[0.5, 0], last=[0, 1]), "row 0"),
        (lambda: ntk.hypothesis_of_monotonicity(np.zeros((2, 2))), "2 positions"),
        (lambda: ntk.share_with_slack(alibi_distances(5), 0.9), "slack"),
        (lambda: ntk.share_with_slack(np.zeros((2, 2)), 1), "at least 3"),
        (lambda: ntk.order_changes(alibi_distances(5), alibi_distances(4)), "shape"),
        (lambda: ntk.LinearModel(np.eye(3), np.eye(2), np.zeros((3, 3))), r"\(m, q\) = \(3, 2\)"),
        (
            lambda: ntk.LinearModel(np.eye(3), np.eye(2), np.zeros((3, 2))).flow(np.zeros((2, 2)), 1),
            "P has shape",
        ),
        (
            lambda: ntk.LinearModel(np.eye(3), np.eye(2), np.zeros((3, 2))).flow(np.zeros((3, 2)), -1),
            "t must be",
        ),
        (lambda: ntk.simulate(lambda P: P, np.ones((2, 2)), [1, 1]), "rising"),
        (lambda: ntk.reversal_probability(0, 1, sigma=0, dimensions=1), "sigma"),
        (lambda: ntk.reversal_probability(0, 1, sigma=1, dimensions=0), "dimensions"),
        (lambda: ntk.clr([[0.5, 0.5], [1, 0]]), r"mu\[1, 1\] = 0"),
        (lambda: ntk.cross_entropy_velocity(np.full((2, 3), 1 / 3), np.eye(2)), "3 words"),
        (
            lambda: ntk.cross_entropy_limit(np.full((2, 3), 1 / 3), np.eye(2, 3), np.zeros((2, 2))),
            "rank below V",
        ),
        (lambda: ntk.cross_entropy_limit(np.full((2, 3), 1 / 3), np.eye(3), np.zeros((2, 2))), "shapes"),
        (lambda: ntk.relative_change(np.zeros(2), np.ones(2)), "before is zero"),
        (lambda: ntk.relative_change(np.zeros(2), np.ones(3)), "shape"),
        (
            lambda: ntk.empirical_kernel(nn.Linear(2, 1).requires_grad_(False), torch.ones(1, 2)),
            "no parameter",
        ),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_slack_and_changes_of_order_count_triples():
    D = hellinger_distances(np.random.default_rng(0).dirichlet(np.ones(5), 6))
    counted = [D[i, k] > 1.3 * D[i, j] for i, j, k in triples(6)]
    assert ntk.share_with_slack(D, 1.3) == np.mean(counted)
    E = euclidean_distances(random_gaussian(6, 2, rng=1))
    changed = [(D[i, j] < D[i, k]) != (E[i, j] < E[i, k]) for i, j, k in triples(6)]
    assert ntk.order_changes(D, E) == np.mean(changed)
    assert ntk.order_changes(D, 3 * D) == 0


# --- The linear model


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_flow_equals_an_integrator_for_every_shape_and_rank(seed, m, n, d, q):
    rng = np.random.default_rng(seed)
    A, W, T, P0 = (rng.normal(size=shape) for shape in ((m, n), (d, q), (m, q), (n, d)))
    A[:, rng.integers(n)] = A[:, rng.integers(n)]  # often of lower rank
    model = ntk.LinearModel(A, W, T)
    times = [0.0, 0.03, 0.4, 3.0]
    for t, simulated in zip(times, ntk.simulate(model.velocity, P0, times), strict=True):
        # Over a thousand such models the integrator was off by 1e-11 of the entries at most.
        assert np.abs(model.flow(P0, t) - simulated).max() < 1e-9 * (1 + np.abs(simulated).max())


def test_flow_agrees_to_1e_12_on_a_plain_model():
    """With a margin of forty: 3e-14 is left, with fused multiplication and without."""
    rng = np.random.default_rng(0)
    A, W, T, P0 = (
        rng.normal(size=(5, 6)),
        rng.normal(size=(4, 3)),
        rng.normal(size=(5, 3)),
        rng.normal(size=(6, 4)),
    )
    A[4] = A[3]
    model = ntk.LinearModel(A, W, T)
    times = [0.01, 0.1, 1, 10, 100]
    simulated = ntk.simulate(model.velocity, P0, times)
    assert max(np.abs(model.flow(P0, t) - P).max() for t, P in zip(times, simulated, strict=True)) < 1e-12


def test_fixed_point_is_the_nearest_minimiser():
    rng = np.random.default_rng(1)
    A, W, T, P0 = (
        rng.normal(size=(3, 4)),
        rng.normal(size=(5, 2)),
        rng.normal(size=(3, 2)),
        rng.normal(size=(4, 5)),
    )
    A[2] = A[0] - A[1]  # T is out of reach
    model = ntk.LinearModel(A, W, T)
    P = model.fixed_point(P0)
    assert np.abs(model.velocity(P)).max() < 1e-12
    assert np.allclose(P, model.flow(P0, math.inf), atol=1e-12)
    # Vectorised least squares: vec(A P W) = (A kron W^T) vec(P); lstsq gives the least-norm correction.
    step = np.linalg.lstsq(np.kron(A, W.T), (T - A @ P0 @ W).ravel(), rcond=1e-12)[0]
    assert np.allclose(P - P0, step.reshape(4, 5), atol=1e-12)
    assert model.loss(P) < min(model.loss(P + 0.1 * rng.normal(size=P.shape)) for _ in range(20))


def test_velocity_is_minus_the_gradient():
    rng = np.random.default_rng(2)
    A, W, T, P = (torch.tensor(rng.normal(size=s)) for s in ((3, 4), (5, 2), (3, 2), (4, 5)))
    P.requires_grad_(True)
    (0.5 * ((A @ P @ W - T) ** 2).sum()).backward()
    model = ntk.LinearModel(A.numpy(), W.numpy(), T.numpy())
    assert np.allclose(model.velocity(P.detach().numpy()), -P.grad.numpy())
    mu, K = rng.dirichlet(np.ones(2), 4), W.numpy()
    P.grad = None
    (torch.tensor(mu) * (torch.tensor(mu).log() - torch.log_softmax(P @ W, dim=1))).sum().backward()
    assert np.allclose(ntk.cross_entropy_velocity(mu, K)(P.detach().numpy()), -P.grad.numpy())


def test_zero_start_and_isometric_readout_learn_the_hellinger_distances_at_every_time():
    roots = np.sqrt(ntk.arc_law(np.linspace(0.1, 1.4, 7), [0.6, 0.4, 0], [0, 0, 1]).distributions)
    W = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 3)))[0]
    D = hellinger_distances(roots**2)
    model = ntk.LinearModel(np.eye(7), W, roots)
    for t in (0.1, 1.0, math.inf):
        assert np.allclose(
            euclidean_distances(model.flow(np.zeros((7, 5)), t)), -np.expm1(-t) * D, atol=1e-14
        )
    mixing = 0.7 * np.eye(7) + 0.3 / 7
    P = ntk.LinearModel(mixing, W, roots).fixed_point(np.zeros((7, 5)))
    assert np.allclose(euclidean_distances(P), D / 0.7, atol=1e-13)


# --- Noise of the start


@pytest.mark.parametrize("dimensions", [1, 2, 5, 40])
def test_exact_reversal_probability_is_what_draws_show(dimensions):
    rng = np.random.default_rng(dimensions)
    i, j, k = rng.normal(size=(3, 100_000, dimensions)) * 0.7
    gap = np.sum((i - j) ** 2, axis=1) - np.sum((i - k) ** 2, axis=1)
    far = np.array([0.0, 0.3, 2.0, 6.0])
    found = ntk.reversal_probability(np.zeros(4), far, sigma=0.7, dimensions=dimensions, exact=True)
    assert np.allclose(found, [(gap > x).mean() for x in far], atol=5 * 0.5 / np.sqrt(100_000))


def test_exact_reversal_probability_in_two_dimensions_is_laplace():
    x = np.linspace(0, 30, 50).reshape(5, 10)
    found = ntk.reversal_probability(0 * x, x, sigma=1.5, dimensions=2, exact=True)
    assert np.allclose(found, 0.5 * np.exp(-x / (math.sqrt(12) * 1.5**2)), atol=1e-10)
    assert np.allclose(found + ntk.reversal_probability(x, 0 * x, sigma=1.5, dimensions=2, exact=True), 1)


def test_normal_approximation_is_the_design_formula_and_the_limit_of_the_exact_one():
    from scipy.stats import norm

    near, far = 0.2, 0.5
    for m in (3, 400):
        formula = norm.cdf((near - far) / (0.3**2 * math.sqrt(12 * m)))
        assert ntk.reversal_probability(near, far, sigma=0.3, dimensions=m) == pytest.approx(formula)
    exact = ntk.reversal_probability(near, far, sigma=0.3, dimensions=400, exact=True)
    assert exact == pytest.approx(formula, abs=1e-3)


def test_noisy_violation_rate_is_that_of_the_flow():
    n, d, V, sigma = 8, 12, 2, 0.4
    law = ntk.arc_law(np.linspace(0, np.pi / 2, n))
    D = hellinger_distances(law.distributions)
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.normal(size=(d, V)))[0]
    model = ntk.LinearModel(np.eye(n), W, np.sqrt(law.distributions))
    starts = sigma * rng.normal(size=(400, n, d))
    rates = [violation_rate(euclidean_distances(model.fixed_point(P0))) for P0 in starts]
    expected = ntk.noisy_violation_rate(D, sigma=sigma, dimensions=d - V, exact=True)
    assert np.mean(rates) == pytest.approx(expected, abs=4 * np.std(rates) / 20)
    assert 0.05 < expected < 0.45


# --- Cross-entropy


def test_aitchison_counterexample():
    mu = np.array([[0.3, 0.65, 0.05], [0.499, 0.499, 0.002], [0.65, 0.3, 0.05]])
    D, E = hellinger_distances(mu), ntk.aitchison_distances(mu)
    assert D[0, 1] == pytest.approx(D[1, 2]) and D[0, 2] > D[0, 1]
    # By hand: log ratios of 1 and 2 less their mean; of 1 and 3 they are (-x, x, 0) with x = log(65 / 30).
    ratios = np.log([0.3 / 0.499, 0.65 / 0.499, 0.05 / 0.002])
    assert (
        E[0, 1]
        == pytest.approx(np.sqrt(((ratios - ratios.mean()) ** 2).sum()))
        == pytest.approx(2.7822, abs=1e-4)
    )
    assert E[0, 2] == pytest.approx(np.sqrt(2) * np.log(65 / 30)) == pytest.approx(1.0935, abs=1e-4)
    assert (violation_rate(D), violation_rate(E)) == (0, 1)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_cross_entropy_limit_is_where_an_integrator_ends(start):
    rng = np.random.default_rng(3)
    mu, W, P0 = rng.dirichlet(np.full(4, 3.0), 3), rng.normal(size=(6, 4)), start * rng.normal(size=(3, 6))
    limit = ntk.cross_entropy_limit(mu, W, P0)
    assert np.allclose(softmax(limit @ W, axis=1), mu)
    assert (
        np.abs(ntk.simulate(ntk.cross_entropy_velocity(mu, W), P0, [3000.0], rtol=1e-11)[0] - limit).max()
        < 1e-7
    )


def test_cross_entropy_limit_of_an_isometric_readout_is_clr():
    mu = np.random.default_rng(4).dirichlet(np.ones(5), 6)
    W = np.linalg.qr(np.random.default_rng(5).normal(size=(7, 5)))[0]
    P = ntk.cross_entropy_limit(mu, W, np.zeros((6, 7)))
    assert np.allclose(P @ W, ntk.clr(mu))
    assert np.allclose(euclidean_distances(P), ntk.aitchison_distances(mu))
    assert np.allclose(ntk.clr(mu).sum(axis=1), 0)
    assert np.allclose(
        ntk.aitchison_distances(mu * [2, 1, 1, 3, 1]), ntk.aitchison_distances(mu)
    )  # no closure


# --- The tangent kernel


class Bilinear(nn.Module):
    """``A P W`` with P trained: its kernel is A A^T kron W^T W, whatever P is."""

    def __init__(self, A, P, W):
        super().__init__()
        self.A, self.W, self.P = torch.tensor(A), torch.tensor(W), nn.Parameter(torch.tensor(P))

    def forward(self, tokens):
        return self.A @ self.P @ self.W


def test_kernel_of_the_linear_model_is_a_kronecker_product():
    rng = np.random.default_rng(6)
    A, P, W = rng.normal(size=(3, 4)), rng.normal(size=(4, 2)), rng.normal(size=(2, 5))
    for table in (P, P + 1):
        kernel = ntk.empirical_kernel(Bilinear(A, table, W), torch.zeros(1))
        assert np.allclose(kernel, np.kron(A @ A.T, W.T @ W))


def test_kernel_of_an_encoder_is_the_gram_matrix_of_its_gradients():
    config = EncoderConfig(vocab_size=3, n=4, d=8, heads=2, readout="mean", outputs=2, dtype="float64")
    model = ntk.ntk_parametrised(Encoder(config), rng=0)
    tokens = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1], [1, 0, 0, 2]])
    rows = []
    for output in model(tokens).flatten():
        model.zero_grad()
        output.backward(retain_graph=True)
        rows.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    J = torch.stack(rows).numpy()
    assert np.allclose(ntk.empirical_kernel(model, tokens), J @ J.T)
    # What needs no gradient takes no part.
    model.scheme.table.requires_grad_(False)
    assert np.trace(ntk.empirical_kernel(model, tokens)) < np.trace(J @ J.T)


def test_ntk_parametrisation_draws_everything_standard_normal_and_keeps_the_scale_of_outputs():
    def built(d, seed):
        config = EncoderConfig(
            vocab_size=50, n=40, d=d, heads=d // 8, norm="none", readout="mean", outputs=1, dtype="float64"
        )
        return ntk.ntk_parametrised(Encoder(config), rng=seed)

    model = built(64, 0)
    query = model.blocks[0].attention.query
    omega = query.parametrizations.weight.original
    assert torch.allclose(query.weight, omega / 8)
    for table in (omega, model.embedding.weight, model.scheme.table):
        assert abs(table.mean()) < 0.1 and abs(table.std() - 1) < 0.1
    assert all(not p.any() for name, p in model.named_parameters() if name.endswith("bias"))
    assert torch.equal(omega, built(64, 0).blocks[0].attention.query.parametrizations.weight.original)
    tokens = torch.arange(40)[None] % 50
    narrow, wide = (np.std([built(d, seed)(tokens).item() for seed in range(60)]) for d in (16, 128))
    assert 0.5 < wide / narrow < 2
    with pytest.raises(ValueError, match="parametrised already"):
        ntk.ntk_parametrised(model, rng=0)


def test_relative_change():
    assert ntk.relative_change([[3, 4]], [[3, 4]]) == 0
    assert ntk.relative_change([[3, 4]], [[3, 9]]) == 1


def test_a_sliding_window_meets_the_hypothesis_too():
    D = hellinger_distances(stationary(12, window=12).distributions)
    assert ntk.hypothesis_of_monotonicity(D)[:2] == (0, 0)
