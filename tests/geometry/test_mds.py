"""Classical scaling, SMACOF and low-rank factors."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.manifold import smacof as sklearn_smacof

import posgeom.geometry.mds as mds_module
from posgeom.corpora.synthetic import blocks, smooth, stationary
from posgeom.geometry.distances import euclidean_distances, fisher_rao_distances, hellinger_distances
from posgeom.geometry.mds import classical_mds, effective_rank, gram_matrix, low_rank, smacof
from posgeom.geometry.stress import optimal_scale, stress

TRIANGLE = np.sqrt(2) * (1 - np.eye(3))


def noisy_distances(n, d, rng, noise=0.1):
    D = euclidean_distances(rng.normal(size=(n, d)))
    D += np.abs(np.triu(rng.normal(0, noise, (n, n)), 1)) if noise else 0
    return np.triu(D, 1) + np.triu(D, 1).T


def test_gram_matrix_of_three_points_on_a_line():
    # points 0, 1, 3, centred at -4/3, -1/3, 5/3
    centred = np.array([-4, -1, 5]) / 3
    np.testing.assert_allclose(
        gram_matrix([[0, 1, 3], [1, 0, 2], [3, 2, 0]]), np.outer(centred, centred), atol=1e-15
    )


@given(st.integers(2, 9), st.integers(1, 5), st.integers(0, 10**6))
def test_points_are_recovered_up_to_an_isometry(n, d, seed):
    P = np.random.default_rng(seed).normal(size=(n, d))
    E = euclidean_distances(P)
    result = classical_mds(E, d)
    np.testing.assert_allclose(euclidean_distances(result.points), E, atol=1e-7)
    np.testing.assert_allclose(result.points.mean(axis=0), 0, atol=1e-9)
    assert result.rank == min(d, n - 1)
    assert result.negative_mass < 1e-12


def test_rank_does_not_depend_on_the_unit():
    D = hellinger_distances(smooth(30, 12, length_scale=6, rng=0).distributions)
    for scale in (1.0, 1e-5, 1e5):
        assert classical_mds(scale * D).rank == classical_mds(D).rank == 12


def test_zero_stress_at_the_rank_and_not_below():
    D = hellinger_distances(blocks(24, 40, n_blocks=5, rng=1).distributions)
    rank = classical_mds(D).rank
    assert rank == 4
    assert stress(euclidean_distances(classical_mds(D, rank).points), D) < 1e-24
    assert stress(euclidean_distances(classical_mds(D, rank - 1).points), D) > 1e-4


def test_hellinger_gram_is_that_of_the_centred_roots():
    mu = smooth(20, 30, length_scale=5, rng=2).distributions
    roots = np.sqrt(mu) - np.sqrt(mu).mean(axis=0)
    np.testing.assert_allclose(gram_matrix(hellinger_distances(mu)), roots @ roots.T, atol=1e-13)
    assert classical_mds(hellinger_distances(mu)).negative_mass < 1e-13


def test_arcs_need_negative_eigenvalues():
    # Corners of the simplex and the midpoints of its edges: each midpoint halves an arc of length pi, but two
    # midpoints are 2 arccos(1/2) = 2 pi / 3 apart, not half a side as in the plane.
    mu = np.vstack([np.eye(3), (1 - np.eye(3)) / 2])
    D = fisher_rao_distances(mu)
    np.testing.assert_allclose([D[0, 1], D[0, 4], D[3, 4]], [np.pi, np.pi / 2, 2 * np.pi / 3])
    result = classical_mds(D)
    assert result.eigenvalues[-1] < -0.1
    negative = -result.eigenvalues[result.eigenvalues < 0].sum()
    assert (
        result.negative_mass == pytest.approx(negative / np.abs(result.eigenvalues).sum()) and negative > 0.1
    )
    assert result.points.shape == (6, result.rank)


def test_width_beyond_the_positive_eigenvalues_gives_zero_columns():
    D = np.array([[0, 1, 1, 3.0], [1, 0, 1, 3], [1, 1, 0, 3], [3, 3, 3, 0]])
    D[0, 1] = D[1, 0] = 5.0  # breaks the triangle inequality: negative eigenvalues
    result = classical_mds(D, 7)
    positive = int((result.eigenvalues > 1e-9).sum())
    assert result.eigenvalues[-1] < -1e-3
    assert result.points.shape == (4, 7) and np.isfinite(result.points).all()
    assert (result.points[:, positive:] == 0).all() and (
        np.abs(result.points[:, :positive]).max(axis=0) > 0
    ).all()


def test_no_geometry_at_all():
    result = classical_mds(np.zeros((4, 4)), 2)
    assert (result.points == 0).all() and result.rank == 0 and result.negative_mass == 0
    assert classical_mds(np.zeros((4, 4))).points.shape == (4, 0)
    n = mds_module.PARTIAL_FROM
    assert (classical_mds(np.zeros((n, n)), 3).points == 0).all()


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_cmds_never_stretches(seed):
    mu = np.random.default_rng(seed).dirichlet(np.full(6, 0.4), size=8)
    D = hellinger_distances(mu)
    for d in (1, 2, 4):
        E = euclidean_distances(classical_mds(D, d).points)
        assert (E <= D + 1e-7).all()
        assert optimal_scale(E, D) >= 1 - 1e-9


def test_permuting_positions_permutes_points():
    rng = np.random.default_rng(4)
    D = noisy_distances(12, 4, rng, noise=0)
    order = rng.permutation(12)
    P = classical_mds(D, 3).points
    Q = classical_mds(D[np.ix_(order, order)], 3).points
    np.testing.assert_allclose(Q, P[order], atol=1e-9)


def test_partial_solver_equals_the_full_one_and_is_what_runs(monkeypatch):
    rng = np.random.default_rng(5)
    D = noisy_distances(mds_module.PARTIAL_FROM, 30, rng)
    partial = classical_mds(D, 6)
    assert "eigenvalues" not in partial.__dict__, "the whole spectrum was decomposed for six columns"
    monkeypatch.setattr(mds_module, "PARTIAL_FROM", 10**9)
    full = classical_mds(D, 6)
    np.testing.assert_allclose(partial.points, full.points, atol=1e-8)
    np.testing.assert_allclose(partial.eigenvalues, full.eigenvalues, atol=1e-8)
    assert partial.eigenvalues.shape == (len(D),)


def test_partial_solver_on_a_rank_one_line():
    n = mds_module.PARTIAL_FROM
    i = np.arange(n, dtype=float)
    result = classical_mds(np.abs(i[:, None] - i), 5)
    np.testing.assert_allclose(np.abs(result.points[:, 0]), np.abs(i - i.mean()), rtol=1e-9, atol=1e-7)
    assert (result.points[:, 1:] == 0).all()
    assert result.eigenvalues[0] == pytest.approx(n * (n**2 - 1) / 12)


@pytest.mark.parametrize(
    ("D", "words"),
    [
        (np.zeros((3, 2)), r"D has shape \(3, 2\).*square.*euclidean_distances"),
        ([[0, 1], [2, 0]], r"not symmetric: D\[0, 1\] = 1 but D\[1, 0\] = 2"),
        ([[0, -1], [-1, 0]], r"D\[0, 1\] = -1 is negative"),
        ([[0, np.nan], [np.nan, 0]], r"D\[0, 1\] is nan"),
        ([[1, 0.5], [0.5, 1]], r"D\[0, 0\] = 1, but a position is at distance 0"),
        (np.random.default_rng(0).normal(size=(4, 4)), "if these are points, pass euclidean_distances"),
        (np.zeros((0, 0)), "empty"),
    ],
)
def test_what_is_no_dissimilarity_is_refused(D, words):
    for scaling in (classical_mds, lambda D: smacof(D, 2), gram_matrix):
        with pytest.raises(ValueError, match=words):
            scaling(D)


@pytest.mark.parametrize("d", [0, -1, 1.5, "two"])
def test_a_width_that_is_no_positive_integer_is_refused(d):
    with pytest.raises(ValueError, match="d must be"):
        classical_mds(TRIANGLE, d)


def test_effective_rank_by_hand():
    assert effective_rank([4.0, 1e-9, 1e-11, 0.0, -2.0]) == 2
    assert effective_rank([4.0, 1e-9], rtol=1e-3) == 1
    assert effective_rank([1.0, -100.0], rtol=0.1) == 0
    assert effective_rank([0.0, 0.0]) == 0


def test_three_one_hot_distributions_on_a_line():
    """The counterexample to 'CMDS minimises the stress': 1/6 at best against 1/9."""
    D = hellinger_distances(np.eye(3))
    np.testing.assert_allclose(D, TRIANGLE, atol=1e-15)
    best = np.sqrt(2) * np.array([-2 / 3, 0, 2 / 3])
    assert stress(euclidean_distances(best[:, None]), D) == pytest.approx(1 / 9, abs=1e-14)
    # Both non-zero eigenvalues are 1, so any unit vector orthogonal to (1, 1, 1) is a CMDS axis.
    angles = np.linspace(0, np.pi, 3601)
    plane = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    axes = np.cos(angles)[:, None] * plane[0] + np.sin(angles)[:, None] * plane[1]
    scores = [stress(euclidean_distances(axis[:, None]), D) for axis in axes]
    assert min(scores) == pytest.approx(1 / 6, abs=1e-6)
    assert stress(euclidean_distances(smacof(D, 1, init=best[:, None] * 1.3).points), D) == pytest.approx(
        1 / 9
    )


@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
@settings(max_examples=25, deadline=None)
def test_smacof_never_ends_above_its_start(seed, d, classical):
    rng = np.random.default_rng(seed)
    D = noisy_distances(9, 4, rng, noise=0.5)
    start = classical_mds(D, d).points if classical else rng.normal(size=(9, d))
    for max_iter in (1, 3, 500):
        end = smacof(D, d, init=start, max_iter=max_iter).points
        assert stress(euclidean_distances(end), D) <= stress(euclidean_distances(start), D) * (1 + 1e-12)


LAWS = {
    "smooth": smooth(40, 60, length_scale=8, rng=0),
    "stationary": stationary(40, window=12),
    "blocks": blocks(40, 60, n_blocks=5, rng=0),
}


# On the sliding window in three dimensions the last steps lead into a neighbouring valley, 0.04 % higher.
@pytest.mark.parametrize(
    ("name", "d", "rtol"),
    [(name, d, 1e-3 if (name, d) == ("stationary", 3) else 1e-6) for name in LAWS for d in (1, 2, 3)],
)
def test_smacof_reaches_the_stress_of_scikit_learn_from_the_same_start(name, d, rtol):
    D = hellinger_distances(LAWS[name].distributions)
    start = classical_mds(D, d).points
    reference = sklearn_smacof(
        D, n_components=d, init=start, n_init=1, max_iter=20_000, eps=1e-12, normalized_stress=False
    )[0]
    ours = smacof(D, d, init=start, max_iter=5000, tol=1e-12)
    assert ours.converged
    expected = stress(euclidean_distances(reference), D)
    assert stress(euclidean_distances(ours.points), D) == pytest.approx(expected, rel=rtol)


def test_smacof_needs_several_times_fewer_passes():
    rng = np.random.default_rng(7)
    for d in (2, 5):
        D = noisy_distances(60, 12, rng)
        start = classical_mds(D, d).points
        _, raw, sklearn_passes = sklearn_smacof(
            D,
            n_components=d,
            init=start,
            n_init=1,
            max_iter=20_000,
            eps=1e-9,
            return_n_iter=True,
            normalized_stress=False,
        )
        goal = raw / (D[np.triu_indices(60, 1)] ** 2).sum()
        ours = smacof(D, d, init=start, max_iter=sklearn_passes // 3)
        assert stress(euclidean_distances(ours.points), D) <= goal * (1 + 1e-4)


def test_scale_is_right_at_a_fixed_point():
    D = hellinger_distances(smooth(40, 60, length_scale=5, strength=2, rng=1).distributions)
    result = smacof(D, 2, tol=1e-12, max_iter=20_000)
    assert optimal_scale(euclidean_distances(result.points), D) == pytest.approx(1, abs=1e-5)


def test_smacof_is_equivariant_in_the_unit():
    D = noisy_distances(15, 5, np.random.default_rng(8))
    start = classical_mds(D, 2).points
    small = smacof(1e-4 * D, 2, init=1e-4 * start).points
    np.testing.assert_allclose(
        stress(euclidean_distances(small), 1e-4 * D),
        stress(euclidean_distances(smacof(D, 2, init=start).points), D),
        rtol=1e-6,
    )


def test_the_best_of_several_starts_is_kept_and_ties_are_drawn():
    # On a line, the order of the start decides the end: a good order and two bad ones.
    i = np.arange(6.0)
    D = np.abs(i[:, None] - i)
    good, bad = i[:, None], np.array([3.0, 0, 4, 1, 5, 2])[:, None]
    assert stress(euclidean_distances(smacof(D, 1, init=np.stack([bad, good]), rng=0).points), D) < 1e-20
    mirrored = np.stack([good, -good])
    ends = {float(np.sign(smacof(D, 1, init=mirrored, rng=seed).points[0, 0])) for seed in range(20)}
    assert ends == {-1.0, 1.0}
    first, second = (smacof(D, 1, init=mirrored, rng=3).points for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_smacof_says_when_it_ran_out_of_passes_and_never_takes_more():
    D = noisy_distances(30, 8, np.random.default_rng(9))
    for max_iter in (1, 2, 5, 17, 40, 41, 42, 43):
        limited = smacof(D, 2, max_iter=max_iter)
        assert limited.passes <= max_iter and not limited.converged
    assert smacof(D, 2, max_iter=5000).converged


def test_smacof_on_a_line_is_plain_majorisation_to_its_end():
    D = noisy_distances(20, 6, np.random.default_rng(13))
    start = classical_mds(D, 1).points
    reference, _, passes = sklearn_smacof(
        D, n_components=1, init=start, n_init=1, eps=1e-9, return_n_iter=True, normalized_stress=False
    )
    ours = smacof(D, 1, init=start)
    np.testing.assert_allclose(euclidean_distances(ours.points), euclidean_distances(reference), atol=1e-9)
    assert ours.converged and ours.passes <= passes + 2


def test_a_start_of_the_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"init must have shape \(3, 2\)"):
        smacof(TRIANGLE, 2, init=np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"init\[0, 0\] is nan"):
        smacof(TRIANGLE, 1, init=np.full((3, 1), np.nan))


def test_low_rank_is_exact_at_the_rank_and_optimal_below():
    P = np.random.default_rng(10).normal(size=(7, 3)) @ np.random.default_rng(11).normal(size=(3, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        A, B = low_rank(P, 3)
    assert A.shape == (7, 3) and B.shape == (50, 3)
    np.testing.assert_allclose(A @ B.T, P, atol=1e-12)
    A, B = low_rank(P, 2)
    assert np.linalg.norm(P - A @ B.T) == pytest.approx(np.linalg.svd(P)[1][2])


def test_low_rank_says_when_it_saves_nothing():
    P = np.random.default_rng(12).normal(size=(6, 3))
    low_rank(P, 1)  # 9 numbers for 18
    with pytest.warns(
        UserWarning, match=r"r \(n \+ d\) = 18 parameters stand for n d = 18; it pays for r < .* = 2.0"
    ):
        low_rank(P, 2)
    with pytest.raises(ValueError, match="rank at most 3"):
        low_rank(P, 4)
