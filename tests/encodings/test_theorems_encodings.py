"""The statements that chapters 6 and 7 prove, each executed beyond the examples on the page."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import sici

from posgeom.corpora.synthetic import stationary
from posgeom.encodings.comparison import SCHEMES, compare_schemes, subspace_alignment
from posgeom.encodings.formulas import (
    alibi_distances,
    apply_rope,
    cosines,
    polynomials,
    random_gaussian,
    rope_distances,
    rope_frequencies,
    round_to_bfloat16,
    sinusoidal,
)
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.geometry.mds import classical_mds, gram_matrix
from posgeom.geometry.stress import optimal_scale, stress


def lags(n):
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)


def path_laplacian(n):
    return np.diag(np.r_[1, np.full(n - 2, 2), 1]) - np.eye(n, k=1) - np.eye(n, k=-1)


def ring_points(n, values):
    """The points of the circulant theorem, from the eigenvalues of waves 1 to n // 2."""
    i, columns = np.arange(n), []
    for k, value in enumerate(values, start=1):
        if 2 * k == n:
            columns.append(np.sqrt(value / n) * (-1.0) ** i)
        else:
            columns += [np.sqrt(2 * value / n) * wave(2 * np.pi * k * i / n) for wave in (np.cos, np.sin)]
    return np.column_stack(columns)


# --- rings and lines --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.integers(3, 24), st.data())
def test_stationary_on_a_ring_gives_fourier_points(n, data):
    weights = np.array(data.draw(st.lists(st.floats(0, 5), min_size=n // 2, max_size=n // 2)))
    D = euclidean_distances(ring_points(n, weights))
    first = D[0] ** 2
    np.testing.assert_allclose(D, D[0][(np.arange(n)[:, None] - np.arange(n)) % n], atol=1e-7)
    for k in range(1, n // 2 + 1):
        value = -0.5 * first @ np.cos(2 * np.pi * k * np.arange(n) / n)
        assert value == pytest.approx(weights[k - 1], abs=1e-10)
        wave = np.cos(2 * np.pi * k * np.arange(n) / n)
        np.testing.assert_allclose(gram_matrix(D) @ wave, value * wave, atol=1e-10)


@pytest.mark.parametrize(("n", "window"), [(6, 3), (7, 3), (16, 5), (31, 12)])
def test_a_window_on_a_ring_has_the_spectrum_of_its_length(n, window):
    D = hellinger_distances(stationary(n, window=window, circular=True).distributions)
    k = np.arange(1, n)
    values = (np.sin(np.pi * k * window / n) / np.sin(np.pi * k / n)) ** 2 / window
    np.testing.assert_allclose(classical_mds(D).eigenvalues[:-1], np.sort(values)[::-1], atol=1e-12)
    np.testing.assert_allclose(
        euclidean_distances(ring_points(n, values[: n // 2])), D, atol=1e-12 if n % 2 else 1e-7
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 60), st.floats(1e-3, 1e3))
def test_squared_distances_proportional_to_the_lag_are_the_inverse_of_the_path(n, c):
    D = np.sqrt(c * lags(n))
    B = gram_matrix(D)
    np.testing.assert_allclose(path_laplacian(n) @ B, c * (np.eye(n) - 1 / n), atol=1e-11 * c * n**2)
    k = np.arange(1, n)
    values = c / (4 * np.sin(np.pi * k / (2 * n)) ** 2)
    mds = classical_mds(D, n - 1)
    np.testing.assert_allclose(mds.eigenvalues[:-1], values, rtol=1e-9)
    np.testing.assert_allclose(
        np.abs((mds.points * cosines(n, n - 1)).sum(axis=0)), np.sqrt(values), rtol=1e-9
    )
    share = 6 / (4 * (n**2 - 1) * np.sin(np.pi / (2 * n)) ** 2)
    assert mds.eigenvalues[0] / mds.eigenvalues.sum() == pytest.approx(share, rel=1e-9)


def test_the_first_share_tends_to_six_over_pi_squared():
    def share(n):
        return 6 / (4 * (n**2 - 1) * math.sin(math.pi / (2 * n)) ** 2)

    assert share(2) == pytest.approx(1)
    assert share(10_000) == pytest.approx(6 / math.pi**2, abs=1e-7)


@pytest.mark.parametrize("n", [2, 5, 17])
def test_a_sliding_window_realises_it_exactly(n):
    for window in (max(1, n - 1), n, 3 * n):
        D = hellinger_distances(stationary(n, window=window).distributions)
        np.testing.assert_allclose(D**2, 2 / window * lags(n), atol=1e-13)


# --- the wide end -----------------------------------------------------------------------------------------

EPSILON = 1e-2
ONE_MINUS = {
    "Gaussian": lambda t: -np.expm1(-(t**2) / 2),
    "rational": lambda t: t**2 / (1 + t**2),
    "two cosines": lambda t: (2 - np.cos(t) - np.cos(3 * t)) / 2,
}


@pytest.mark.parametrize("kernel", ["Gaussian", "rational", "two cosines"])
def test_a_smooth_kernel_ends_in_polynomials(kernel):
    n, axes = 5, 3
    closeness = []
    for epsilon in (2 * EPSILON, EPSILON):
        points = classical_mds(np.sqrt(2 * ONE_MINUS[kernel](epsilon * lags(n))), axes).points
        unit = points / np.linalg.norm(points, axis=0)
        closeness.append(1 - (unit * polynomials(n, axes)).sum(axis=0) ** 2)
    # The angle falls like epsilon^2, so what is missing from the squared cosine falls like its fourth power.
    assert (closeness[1][:2] < 1e-4).all()
    assert closeness[0][0] / closeness[1][0] == pytest.approx(16, rel=0.1)


def test_too_few_frequencies_leave_no_third_polynomial():
    # One frequency is a circle: two axes and no more, so the condition on the support is needed.
    D = np.sqrt(2 * (1 - np.cos(0.3 * lags(6))))
    assert classical_mds(D).rank == 2


def test_eigenvalues_of_the_smooth_limit():
    n, epsilon = 6, 5e-3
    moment = {0: 1, 2: 1, 4: 3}
    M = np.empty((2, 2))
    for a, b in np.ndindex(2, 2):
        phase = (1j ** (a + 1) * (-1j) ** (b + 1)).real
        M[a, b] = phase * moment.get(a + b + 2, 0) / (math.factorial(a + 1) * math.factorial(b + 1))
    powers = np.column_stack([np.arange(n, dtype=float) ** j for j in (1, 2)])
    R = np.diag(np.diag(np.linalg.qr(powers - powers.mean(axis=0))[1]))
    tau = [1.0, *(np.linalg.det((R @ M @ R)[:r, :r]) for r in (1, 2))]
    values = classical_mds(np.sqrt(2 * ONE_MINUS["Gaussian"](epsilon * lags(n)))).eigenvalues
    for k in (1, 2):
        assert values[k - 1] / epsilon ** (2 * k) == pytest.approx(tau[k] / tau[k - 1], rel=1e-3)


@pytest.mark.parametrize(
    "one_minus",
    [lambda t: -np.expm1(-t), lambda t: np.minimum(t, 1), lambda t: t / (1 + t)],
    ids=["exponential", "box", "Cauchy-like"],
)
def test_a_kernel_with_a_kink_ends_in_cosines(one_minus):
    n = 24
    mds = classical_mds(np.sqrt(2 * one_minus(1e-7 * lags(n))), 4)
    unit = mds.points / np.linalg.norm(mds.points, axis=0)
    np.testing.assert_allclose(np.abs((unit * cosines(n, 4)).sum(axis=0)), 1, atol=1e-9)


# --- RoPE and width ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 12), st.integers(1, 8).map(lambda k: 2 * k), st.sampled_from(["interleaved", "half"]))
def test_rope_is_the_sinusoid_for_any_orthonormal_basis(n, d, layout):
    basis = np.linalg.qr(np.random.default_rng(n * d).normal(size=(d, d)))[0]
    squares = [
        euclidean_distances(apply_rope(np.tile(x, (n, 1)), np.arange(n), layout=layout)) ** 2 for x in basis
    ]
    np.testing.assert_allclose(np.mean(squares, axis=0), rope_distances(n, d) ** 2, atol=1e-12)
    np.testing.assert_allclose(
        rope_distances(n, d) ** 2, 2 / d * euclidean_distances(sinusoidal(n, d)) ** 2, atol=1e-12
    )


@given(st.integers(1, 600), st.integers(1, 400).map(lambda k: 2 * k))
def test_rope_distances_converge_in_the_width_as_stated(lag, d):
    integral = (sici(lag)[1] - sici(lag / 10000)[1]) / math.log(10000)
    squared = 2 - 4 / d * np.cos(lag * rope_frequencies(d)).sum()
    assert abs(squared - (2 - 2 * integral)) <= 4 * lag / d + 1e-12


def test_raw_stress_grows_linearly_also_where_the_encoding_fits_perfectly():
    D = rope_distances(30, 4096)
    raw = [stress(euclidean_distances(sinusoidal(30, d)), D) for d in (1024, 4096)]
    scaled = [stress(euclidean_distances(sinusoidal(30, d)), D, scale="optimal") for d in (1024, 4096)]
    assert raw[1] / raw[0] == pytest.approx(4, rel=0.1)
    assert max(scaled) < 1e-5 and scaled[1] < 1e-20


# --- ALiBi ------------------------------------------------------------------------------------------------


@given(st.integers(2, 12))
def test_alibi_has_full_rank_as_a_bias(n):
    S = alibi_distances(n)
    assert np.linalg.det(S) == pytest.approx((-1) ** (n - 1) * (n - 1) * 2.0 ** (n - 2), rel=1e-10)
    u = np.zeros(n)
    u[[0, -1]] = 1
    inverse = -path_laplacian(n) / 2 + np.outer(u, u) / (2 * (n - 1))
    np.testing.assert_allclose(inverse @ S, np.eye(n), atol=1e-12)


@given(st.integers(2, 100), st.floats(1e-3, 1e3))
def test_alibi_has_rank_one_as_a_geometry(n, slope):
    mds = classical_mds(alibi_distances(n, slope))
    assert mds.rank == 1
    assert mds.eigenvalues[0] == pytest.approx(slope**2 * n * (n**2 - 1) / 12, rel=1e-10)


def test_a_causal_alibi_head_is_a_bias_on_the_keys():
    rng = np.random.default_rng(0)
    scores, n = rng.normal(size=(9, 9)), 9
    allowed = np.tri(n, dtype=bool)

    def attention(x):
        x = np.where(allowed, np.exp(x), 0)
        return x / x.sum(axis=1, keepdims=True)

    keys = 0.7 * np.arange(n)[None, :]
    np.testing.assert_allclose(
        attention(scores - alibi_distances(n, 0.7)), attention(scores + keys), atol=1e-14
    )


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(2, 20), st.integers(0, 1000))
def test_rank_one_means_exactly_two_distributions(distinct, n, seed):
    rng = np.random.default_rng(seed)
    chosen = np.r_[np.arange(min(distinct, n)), rng.integers(0, distinct, size=max(0, n - distinct))]
    mu = rng.dirichlet(np.ones(30), size=distinct)[chosen]
    rank = classical_mds(hellinger_distances(mu)).rank
    assert rank == len(set(chosen.tolist())) - 1
    assert (rank == 1) == (len(set(chosen.tolist())) == 2)


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(0.01, 1.3))
def test_the_small_angle_defect_bounds_every_triple(seed, words, h):
    # Three points of the sphere with two equal steps: a middle one, and two at the same angle from it.
    rng = np.random.default_rng(seed)
    b = np.sqrt(rng.dirichlet(np.ones(words)))
    alpha = 2 * math.asin(h / 2)
    ends = []
    for _ in range(2):
        v = rng.normal(size=words)
        v -= (v @ b) * b
        ends.append(math.cos(alpha) * b + math.sin(alpha) * v / np.linalg.norm(v))
    far = np.linalg.norm(ends[0] - ends[1])
    assert far <= h * math.sqrt(4 - h**2) + 1e-12
    assert 2 * h - far >= h**3 / 4 - 1e-12


@given(st.integers(3, 40), st.floats(0.01, 1))
def test_the_arc_is_shift_equivariant_and_of_rank_two(n, share):
    alpha = share * math.pi / 2 / (n - 1)
    t = alpha * np.arange(n)
    D = hellinger_distances(np.column_stack([np.cos(t) ** 2, np.sin(t) ** 2]))
    np.testing.assert_allclose(D, 2 * np.sin(lags(n) * alpha / 2), atol=1e-7)
    values = classical_mds(D).eigenvalues
    assert values[1] > 0 and np.abs(values[2:]).max() < 1e-12


@given(st.integers(2, 30), st.floats(0.01, 3))
def test_alibis_kernel_is_positive_definite_of_full_rank(n, m):
    K = np.exp(-m * lags(n))
    sign, logarithm = np.linalg.slogdet(K)
    assert sign == 1 and logarithm == pytest.approx((n - 1) * math.log1p(-math.exp(-2 * m)), abs=1e-9)
    assert classical_mds(np.sqrt(2 * -np.expm1(-m * lags(n)))).rank == n - 1


# --- stress -----------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_every_raw_stress_lies_on_its_parabola(seed, scale):
    rng = np.random.default_rng(seed)
    E, D = (euclidean_distances(rng.normal(size=(7, 3))) for _ in range(2))
    e, d = E[np.triu_indices(7, 1)], D[np.triu_indices(7, 1)]
    c = e @ d / math.sqrt((e @ e) * (d @ d))
    u = scale * math.sqrt((e @ e) / (d @ d))
    assert stress(scale * E, D) == pytest.approx((u - c) ** 2 + 1 - c**2, rel=1e-9)
    assert stress(E, D, scale="optimal") == pytest.approx(1 - c**2, rel=1e-7, abs=1e-12)
    assert optimal_scale(E, D) * math.sqrt((e @ e) / (d @ d)) == pytest.approx(c)


def test_a_wide_random_encoding_tends_to_the_simplex():
    D = euclidean_distances(np.cumsum(np.random.default_rng(1).normal(size=(20, 5)), axis=0))
    table = {d: compare_schemes(D, SCHEMES, d=d, rng=0) for d in (8, 4096)}
    simplex = table[8]["simplex"].scaled_stress
    assert (
        abs(table[4096]["random"].scaled_stress - simplex)
        < 0.02
        < abs(table[8]["random"].scaled_stress - simplex)
    )
    E = euclidean_distances(random_gaussian(20, 4096, rng=0))
    assert E[np.triu_indices(20, 1)].std() / E[np.triu_indices(20, 1)].mean() < 2 / math.sqrt(2 * 4096)


def test_a_random_subspace_scores_its_share_of_the_centred_directions():
    n, r, rng = 15, 3, np.random.default_rng(0)
    X = rng.normal(size=(800, n, r))
    draws = [subspace_alignment(x - x.mean(axis=0), cosines(n, r)) for x in X]
    assert np.mean(draws) == pytest.approx(r / (n - 1), abs=4 * np.std(draws) / math.sqrt(len(draws)))


# --- eight bits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("octaves", range(8))
def test_how_many_positions_bfloat16_tells_apart(octaves):
    n = 2 ** (8 + octaves)
    assert len(np.unique(round_to_bfloat16(np.arange(n)))) == 256 + 128 * octaves + (octaves > 0)


def test_a_rounded_bias_is_off_by_less_than_a_256th():
    x = np.random.default_rng(0).uniform(1e-3, 1e5, 10_000).astype(np.float32)
    assert np.abs(round_to_bfloat16(x) / x - 1).max() <= 1 / 256
    assert np.abs(round_to_bfloat16(np.arange(257, 512, 2)) - np.arange(257, 512, 2)).max() == 1
