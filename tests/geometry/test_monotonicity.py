"""The violation rate against the definition, triple by triple."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posgeom.geometry.monotonicity as module
from posgeom.encodings.formulas import alibi_distances, power_line, random_gaussian
from posgeom.geometry.distances import euclidean_distances
from posgeom.geometry.monotonicity import violation_rate


def triple_loop(E):
    triples = [t for t in permutations(range(len(E)), 3) if abs(t[0] - t[1]) < abs(t[0] - t[2])]
    return sum(E[i, j] > E[i, k] for i, j, k in triples) / len(triples)


def symmetric(values, n):
    E = np.zeros((n, n))
    E[np.triu_indices(n, 1)] = values
    return E + E.T


@given(st.integers(3, 11), st.data())
def test_equals_the_triple_loop_ties_included(n, data):
    pairs = n * (n - 1) // 2
    values = data.draw(st.lists(st.integers(0, 4), min_size=pairs, max_size=pairs))
    E = symmetric(np.array(values, dtype=float), n)
    assert violation_rate(E) == triple_loop(E)


def test_by_hand_on_four_positions():
    # d01, d12, d23 have lag 1; d02, d13 lag 2; d03 lag 3. Ten comparisons: (01 02), (01 03), (02 03) from 0;
    # (10 13), (12 13) from 1; (21 20), (23 20) from 2; (32 31), (32 30), (31 30) from 3.
    # With d02 = 0 and all else 1, the violations are 01 > 02, 21 > 20 and 23 > 20.
    E = symmetric([1, 0, 1, 1, 1, 1], 4)
    assert violation_rate(E) == 3 / 10


def test_increasing_functions_of_lag_never_violate_and_decreasing_ones_always():
    lag = alibi_distances(30)
    assert violation_rate(lag) == 0
    assert violation_rate(np.sqrt(lag)) == 0
    assert violation_rate(np.where(lag > 0, 100 - lag, 0)) == 1
    assert violation_rate((lag > 0).astype(float)) == 0  # all tied: nothing is violated
    assert 0 < violation_rate(power_line(30, -1.0)) < 0.5


def test_exchangeable_encodings_violate_half():
    rates = [violation_rate(euclidean_distances(random_gaussian(24, 3, rng=seed))) for seed in range(200)]
    assert np.mean(rates) == pytest.approx(0.5, abs=4 * np.std(rates) / np.sqrt(200))
    assert np.std(rates) < 0.1


def test_blocks_of_rows_do_not_change_the_answer(monkeypatch):
    E = euclidean_distances(random_gaussian(50, 4, rng=0))
    whole = violation_rate(E)
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", 1)
    assert violation_rate(E) == whole


def test_unit_does_not_matter():
    E = euclidean_distances(random_gaussian(20, 4, rng=1))
    assert violation_rate(1e-9 * E) == violation_rate(E)


def test_two_positions_have_no_triple():
    with pytest.raises(ValueError, match="2 positions: a triple"):
        violation_rate(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="euclidean_distances"):
        violation_rate(np.zeros((4, 3)))
