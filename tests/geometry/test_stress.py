"""Stress, its scale, and the rank scores."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression

from posgeom import checks
from posgeom.geometry.stress import kruskal_stress1, optimal_scale, rank_agreement, stress


def matrix(*pairs):
    """A dissimilarity from its upper triangle, row by row."""
    n = int((1 + np.sqrt(1 + 8 * len(pairs))) / 2)
    D = np.zeros((n, n))
    D[np.triu_indices(n, 1)] = pairs
    return D + D.T


def random_pair(seed, n=8):
    rng = np.random.default_rng(seed)
    pairs = n * (n - 1) // 2
    return matrix(*rng.random(pairs)), matrix(*(0.2 + rng.random(pairs)))


def test_stress_by_hand():
    E, D = matrix(1, 2, 3), matrix(2, 2, 1)
    assert stress(E, D) == pytest.approx((1 + 0 + 4) / 9)
    # <e, d> = 9, <e, e> = 14: s = 9/14 and 1 - 81/(14 * 9)
    assert optimal_scale(E, D) == pytest.approx(9 / 14)
    assert stress(E, D, scale="optimal") == pytest.approx(1 - 81 / 126)


def test_nothing_and_everything():
    D = matrix(1, 2, 3)
    assert stress(D, D) == 0
    assert stress(0 * D, D) == stress(0 * D, D, scale="optimal") == 1
    assert optimal_scale(0 * D, D) == 1


@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_raw_stress_under_a_scale_is_the_quadratic(seed, s):
    E, D = random_pair(seed)
    upper = np.triu_indices(8, 1)
    e, d = E[upper], D[upper]
    assert stress(s * E, D) == pytest.approx(1 - 2 * s * (e @ d) / (d @ d) + s**2 * (e @ e) / (d @ d))
    assert stress(s * E, D, scale="optimal") == pytest.approx(stress(E, D, scale="optimal"))
    for unit in (7, 1e-170, 1e160):
        assert stress(unit * E, unit * D) == pytest.approx(stress(E, D))


@given(st.integers(0, 10**6))
def test_optimal_scale_is_optimal(seed):
    E, D = random_pair(seed)
    found = minimize_scalar(
        lambda s: stress(s * E, D), bounds=(0, 10), method="bounded", options={"xatol": 1e-10}
    )
    assert optimal_scale(E, D) == pytest.approx(found.x, abs=1e-6)
    assert 0 <= stress(E, D, scale="optimal") <= min(1, stress(E, D) + 1e-12)


@given(st.integers(0, 10**6), st.permutations(range(8)))
def test_scores_do_not_depend_on_the_names_of_positions(seed, order):
    E, D = random_pair(seed)
    P = np.ix_(order, order)
    assert stress(E[P], D[P]) == pytest.approx(stress(E, D))
    assert kruskal_stress1(E[P], D[P]) == pytest.approx(kruskal_stress1(E, D))
    assert rank_agreement(E[P], D[P]) == pytest.approx(rank_agreement(E, D))


def test_kruskal_by_hand():
    # in order of d, e is 1, 3, 2: the last two are pooled to 2.5, and 2 * 0.5^2 / 14 remains
    assert kruskal_stress1(matrix(1, 3, 2), matrix(1, 2, 3)) == pytest.approx(np.sqrt(0.5 / 14))
    assert kruskal_stress1(matrix(5, 5, 5), matrix(1, 2, 3)) == 0
    assert kruskal_stress1(matrix(0, 0, 0), matrix(1, 2, 3)) == 0
    # tied d: the pair may take either order
    assert kruskal_stress1(matrix(3, 1, 4), matrix(1, 1, 2)) == 0


@given(st.integers(0, 10**6))
def test_kruskal_agrees_with_scikit_learn(seed):
    E, D = random_pair(seed)
    upper = np.triu_indices(8, 1)
    e, d = E[upper], D[upper]
    fitted = IsotonicRegression().fit_transform(d, e)
    assert kruskal_stress1(E, D) == pytest.approx(np.sqrt(((e - fitted) ** 2).sum() / (e**2).sum()))
    assert kruskal_stress1(E, D**3) == pytest.approx(kruskal_stress1(E, D))


def test_rank_agreement_by_hand():
    # ranks 1 3 2 against 1 2 3: rho = 1 - 6 * 2 / (3 * 8), tau = (2 - 1) / 3
    assert rank_agreement(matrix(1, 3, 2), matrix(1, 2, 3)) == pytest.approx((0.5, 1 / 3))
    assert rank_agreement(matrix(1, 4, 9), matrix(1, 2, 3)) == pytest.approx((1, 1))
    assert np.isnan(rank_agreement(matrix(1, 1, 1), matrix(1, 2, 3))).all()


@pytest.mark.parametrize(
    ("E", "D", "options", "words"),
    [
        (np.zeros((2, 2)), matrix(1, 2, 3), {}, r"E has shape \(2, 2\) and D has shape \(3, 3\)"),
        (np.zeros((3, 2)), matrix(1, 2, 3), {}, r"E has shape \(3, 2\).*euclidean_distances\(E\)"),
        (matrix(1, 2, 3), 0 * matrix(1, 2, 3), {}, "D is zero for every pair"),
        (
            matrix(1, 2, 3),
            matrix(1, 2, 3),
            {"scale": "best"},
            "scale must be 'none' or 'optimal', not 'best'",
        ),
        (matrix(1, -2, 3), matrix(1, 2, 3), {}, r"E\[0, 2\] = -2 is negative"),
    ],
)
def test_bad_arguments_are_named(E, D, options, words):
    with pytest.raises(ValueError, match=words):
        stress(E, D, **options)


def test_asymmetry_is_found_wherever_it_is(monkeypatch):
    monkeypatch.setattr(checks, "TILE", 3)
    for i, j in combinations(range(8), 2):
        D = 1.0 - np.eye(8)
        D[i, j] += 1e-12
        assert (checks.square_dissimilarity(D, "D") == (D + D.T) / 2).all()
        D[i, j] = 1.5
        with pytest.raises(ValueError, match=rf"D\[{i}, {j}\] = 1.5 but D\[{j}, {i}\] = 1"):
            checks.square_dissimilarity(D, "D")
