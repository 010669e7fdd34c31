"""Ceilings and gaps of finite tasks against values derived by hand, in exact rationals where there are."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbook.experiments.tasks import (
    FiniteTask,
    a_before_b,
    automorphisms,
    bag_of_words,
    bayes_accuracy,
    bayes_risk,
    first_token,
    masked_prediction,
    positional_distributions,
    prefix_multiset,
    product_task,
    separation_gaps,
    up_to,
    up_to_reversal,
    up_to_swap,
)


def exact_gaps(cases: list[tuple[tuple[int, ...], Fraction, Fraction]]) -> list[list[Fraction]]:
    """Theorem B's formula for the squared loss over rationals and dictionaries: a second opinion."""
    weight, moment = defaultdict(Fraction), defaultdict(Fraction)
    for sequence, probability, target in cases:
        weight[sequence] += probability
        moment[sequence] += probability * target
    n = len(cases[0][0])
    gaps = [[Fraction(0)] * n for _ in range(n)]
    for i, j in itertools.combinations(range(n), 2):
        for x in weight:
            y = list(x)
            y[i], y[j] = y[j], y[i]
            y = tuple(y)
            if x < y and weight[x] and weight.get(y):
                w, v = weight[x], weight[y]
                gaps[i][j] += w * v / (w + v) * (moment[x] / w - moment[y] / v) ** 2
        gaps[j][i] = gaps[i][j]
    return gaps


def as_task(cases) -> FiniteTask:
    return FiniteTask(
        np.array([x for x, _, _ in cases]),
        np.array([float(p) for _, p, _ in cases]),
        np.array([float(y) for _, _, y in cases]),
    )


# --- ceilings


@pytest.mark.parametrize(("n", "V"), [(2, 3), (4, 3), (8, 4)])
def test_a_before_b_leaves_half_without_order(n, V):
    task = a_before_b(n, V)
    assert len(task.sequences) == n * (n - 1) * (V - 2) ** (n - 2)
    assert bayes_accuracy(task) == pytest.approx(1, abs=1e-12)
    assert bayes_accuracy(task, bag_of_words) == pytest.approx(1 / 2, abs=1e-12)
    assert bayes_accuracy(task, up_to_reversal) == pytest.approx(1 / 2, abs=1e-12)
    # The last token is a or b in 2 / n of the cases and then decides.
    assert bayes_accuracy(task, prefix_multiset) == pytest.approx(1 / 2 + 1 / n, abs=1e-12)
    assert bayes_risk(task, bag_of_words, loss="log") == pytest.approx(math.log(2), abs=1e-12)
    assert bayes_risk(task, bag_of_words) == pytest.approx(1 / 4, abs=1e-12)


def test_first_token_ceilings_are_the_exact_counts():
    task = first_token(8, 4)
    best = sum(max(Counter(x).values()) for x in itertools.product(range(4), repeat=8))
    assert Fraction(best, 8 * 4**8) == Fraction(231872, 524288)
    assert bayes_accuracy(task, bag_of_words) == 231872 / 524288
    # Reversal leaves two candidates, first and last token, which agree in 1 / 4 of the cases.
    assert bayes_accuracy(task, up_to_reversal) == 1 / 4 + 3 / 4 / 2
    assert bayes_accuracy(task) == 1


def test_the_end_of_a_causal_layer_knows_the_last_token_and_not_the_first():
    last_token = product_task(np.full((4, 3), 1 / 3), lambda x: x[:, -1])
    assert bayes_accuracy(last_token, prefix_multiset) == pytest.approx(1, abs=1e-12)
    assert bayes_accuracy(last_token, bag_of_words) < 0.7 > bayes_accuracy(first_token(4, 3), prefix_multiset)


def test_majority_wins_within_a_group():
    """Bag {0, 1}: order (0, 1) has 3/8 and label 0, order (1, 0) has 1/8 and label 1."""
    task = FiniteTask([[0, 1], [1, 0], [2, 2]], [3 / 8, 1 / 8, 1 / 2], [0, 1, 1])
    assert bayes_accuracy(task, bag_of_words) == 7 / 8
    assert bayes_risk(task, bag_of_words) == pytest.approx(1 / 2 * 3 / 4 * 1 / 4)
    entropy = -(3 / 4 * math.log(3 / 4) + 1 / 4 * math.log(1 / 4))
    assert bayes_risk(task, bag_of_words, loss="log") == pytest.approx(1 / 2 * entropy)


def test_the_symmetric_saddle_lies_at_four_thirds():
    """y = s1 s2 + s3 s4 for fair signs: E[y^2] = 2, and E[y | k plus signs] = ((2k - 4)^2 - 4) / 6."""
    explained = sum(Fraction(math.comb(4, k), 16) * Fraction((2 * k - 4) ** 2 - 4, 6) ** 2 for k in range(5))
    assert 2 - explained == Fraction(4, 3)
    task = product_task(
        np.full((4, 2), 0.5), lambda x: np.prod(2 * x[:, :2] - 1, axis=1) + np.prod(2 * x[:, 2:] - 1, axis=1)
    )
    assert bayes_risk(task, bag_of_words) == pytest.approx(4 / 3, abs=1e-14)
    assert bayes_risk(task) == 0


# --- gaps


def test_gaps_of_two_swapped_sequences_by_hand():
    task = FiniteTask([[0, 1], [1, 0], [2, 2]], [1 / 4, 1 / 4, 1 / 2], [3, 5, 7])
    assert separation_gaps(task)[0, 1] == 1 / 8 * 2**2  # w w' / (w + w') = 1/8
    assert separation_gaps(task, loss="log")[0, 1] == pytest.approx(math.log(2) / 2, abs=1e-15)


def test_gaps_of_a_linear_target_by_hand():
    """y = sum_i c_i x_i, independent Bern(b_i): the pair (i, j) costs q r / (q + r) (c_i - c_j)^2."""
    b, c = (
        [Fraction(3, 10), Fraction(1, 2), Fraction(7, 10)],
        [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)],
    )
    task = product_task(
        np.array([[1 - float(p), float(p)] for p in b]), lambda x: x @ np.array(c, dtype=float)
    )
    gaps = separation_gaps(task)
    for i, j in itertools.combinations(range(3), 2):
        q, r = b[i] * (1 - b[j]), b[j] * (1 - b[i])
        assert gaps[i, j] == pytest.approx(float(q * r / (q + r) * (c[i] - c[j]) ** 2), abs=1e-17)
    assert gaps[1, 2] == 0  # exactly: that exchange never matters


def test_the_log_gap_is_a_jensen_shannon_divergence():
    """Random labels: x has (0.9, 0.1) with weight 0.3, its swap (0.2, 0.8) with weight 0.7."""
    task = FiniteTask(
        [[0, 1], [0, 1], [1, 0], [1, 0]], [0.3 * 0.9, 0.3 * 0.1, 0.7 * 0.2, 0.7 * 0.8], [0, 1, 0, 1]
    )

    def entropy(p):
        return -p * math.log(p) - (1 - p) * math.log(1 - p)

    mixed = 0.3 * 0.1 + 0.7 * 0.8
    expected = entropy(mixed) - 0.3 * entropy(0.1) - 0.7 * entropy(0.8)
    assert separation_gaps(task, loss="log")[0, 1] == pytest.approx(expected, abs=1e-14)
    assert separation_gaps(task)[0, 1] == pytest.approx(0.3 * 0.7 * (0.1 - 0.8) ** 2, abs=1e-14)


def test_disjoint_supports_cost_nothing():
    """Each position has its own alphabet: the token gives its position away, no exchange is possible."""
    sequences = np.array([[a, 2 + b, 4 + c] for a, b, c in itertools.product(range(2), repeat=3)])
    task = FiniteTask(sequences, np.full(8, 1 / 8), sequences @ [1.0, -2.0, 5.0])
    assert not separation_gaps(task).any() and not separation_gaps(task, loss="log").any()


def test_a_bag_of_words_target_costs_nothing():
    task = product_task(np.full((4, 3), 1 / 3), lambda x: (x == 0).sum(axis=1) ** 2)
    assert not separation_gaps(task).any() and not separation_gaps(task, loss="log").any()


def test_only_the_pairs_across_blocks_cost():
    task = product_task(np.full((4, 2), 0.5), lambda x: (x[:, 0] + x[:, 1]) * (1 + x[:, 2] + x[:, 3]))
    gaps = separation_gaps(task)
    block = np.array([0, 0, 1, 1])
    assert ((gaps > 0) == (block[:, None] != block[None, :])).all()


def test_an_absent_partner_costs_nothing():
    assert separation_gaps(FiniteTask([[0, 1], [2, 3]], [0.5, 0.5], [0, 1]))[0, 1] == 0
    listed_with_zero = FiniteTask([[0, 1], [1, 0], [2, 3]], [0.5, 0.0, 0.5], [0, 9, 1])
    assert separation_gaps(listed_with_zero)[0, 1] == 0
    assert separation_gaps(listed_with_zero, loss="log")[0, 1] == 0
    assert bayes_accuracy(listed_with_zero, bag_of_words) == 1
    assert bayes_risk(listed_with_zero, bag_of_words) == 0


def test_long_sequences_of_a_large_vocabulary_do_not_overflow():
    """V^n = 40^20 has 107 bits: two sequences that agree in their low bits must stay two."""
    rng = np.random.default_rng(0)
    x = rng.permutation(40)[:20]
    y = x.copy()
    y[[3, 17]] = y[[17, 3]]
    filler = rng.integers(0, 40, (40, 20))
    task = FiniteTask(np.vstack([x, y, filler]), [0.25, 0.25] + [0.5 / 40] * 40, [0.0, 4.0] + [1.0] * 40)
    gaps = separation_gaps(task)
    assert gaps[3, 17] == 0.125 * 16
    assert np.count_nonzero(gaps) == 2


@st.composite
def rational_cases(draw):
    n, m = draw(st.integers(2, 4)), draw(st.integers(1, 12))
    tokens = st.lists(st.integers(-1, 1), min_size=n, max_size=n).map(tuple)
    masses = draw(st.lists(st.integers(0, 6), min_size=m, max_size=m).filter(any))
    total = sum(masses)
    return [(draw(tokens), Fraction(mass, total), Fraction(draw(st.integers(-3, 3)))) for mass in masses]


@settings(max_examples=60, deadline=None)
@given(rational_cases())
def test_gaps_equal_the_rational_formula(cases):
    expected = np.array([[float(gap) for gap in row] for row in exact_gaps(cases)])
    gaps = separation_gaps(as_task(cases))
    np.testing.assert_allclose(gaps, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(gaps, gaps.T)
    assert not np.diag(gaps).any()


@settings(max_examples=60, deadline=None)
@given(rational_cases(), st.sampled_from(["mse", "log"]))
def test_gaps_are_differences_of_bayes_risks(cases, loss):
    """What is lost by knowing only {x, τx}: computed by grouping cases, without the formula."""
    task = as_task(cases)
    gaps = separation_gaps(task, loss=loss)
    for i, j in itertools.combinations(range(task.n), 2):
        expected = bayes_risk(task, up_to_swap(i, j), loss=loss) - bayes_risk(task, loss=loss)
        assert gaps[i, j] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(rational_cases(), st.randoms(use_true_random=False))
def test_the_order_and_splitting_of_the_cases_do_not_matter(cases, random):
    split = [(x, p * part, y) for x, p, y in cases for part in (Fraction(1, 4), Fraction(3, 4))]
    random.shuffle(split)
    for loss in ("mse", "log"):
        np.testing.assert_allclose(
            separation_gaps(as_task(split), loss=loss), separation_gaps(as_task(cases), loss=loss), atol=1e-14
        )


@settings(max_examples=30, deadline=None)
@given(rational_cases(), st.integers(-5, 5), st.integers(1, 4))
def test_gaps_follow_the_scale_of_the_target_and_ignore_the_names_of_tokens(cases, shift, scale):
    moved = [(tuple(9 - 2 * t for t in x), p, scale * y + shift) for x, p, y in cases]
    np.testing.assert_allclose(
        separation_gaps(as_task(moved)), scale**2 * separation_gaps(as_task(cases)), atol=1e-12
    )
    np.testing.assert_allclose(
        separation_gaps(as_task(moved), loss="log"), separation_gaps(as_task(cases), loss="log"), atol=1e-12
    )


@settings(max_examples=30, deadline=None)
@given(rational_cases(), st.randoms(use_true_random=False))
def test_renaming_positions_renames_the_gaps(cases, random):
    order = list(range(len(cases[0][0])))
    random.shuffle(order)
    moved = [(tuple(x[k] for k in order), p, y) for x, p, y in cases]
    np.testing.assert_allclose(
        separation_gaps(as_task(moved)), separation_gaps(as_task(cases))[np.ix_(order, order)], atol=1e-14
    )


# --- symmetries


def test_the_symmetry_groups_of_the_schemes():
    i = np.arange(5)
    lag = i[None, :] - i[:, None]
    causal = np.where(lag <= 0, 0.0, -np.inf)
    padding = np.where(i < 3, 0.0, -np.inf)[None, :].repeat(5, axis=0)
    assert len(automorphisms(5)) == 120
    assert automorphisms(5, P=i[:, None]).tolist() == [[0, 1, 2, 3, 4]]
    assert automorphisms(5, P=np.array([[0], [1], [1], [2], [3]])).tolist() == [
        [0, 1, 2, 3, 4],
        [0, 2, 1, 3, 4],
    ]
    assert automorphisms(5, pairs=-abs(lag)).tolist() == [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]
    assert automorphisms(5, pairs=lag).tolist() == [[0, 1, 2, 3, 4]]
    assert automorphisms(5, pairs=causal).tolist() == [[0, 1, 2, 3, 4]]
    assert len(automorphisms(5, pairs=padding)) == 6 * 2  # the real ones among themselves, the padding too
    assert len(automorphisms(5, pairs=lag % 5)) == 5  # on a circle, the shifts
    two_heads = np.stack([-abs(lag), causal], axis=2)
    assert automorphisms(5, pairs=two_heads).tolist() == [[0, 1, 2, 3, 4]]


def test_symmetries_are_those_of_the_encoder():
    """A permutation is an automorphism of the data exactly when the encoder commutes with it."""
    import torch

    from posgeom.models.encoder import Encoder, EncoderConfig

    tokens = torch.randint(0, 7, (6, 4), generator=torch.Generator().manual_seed(0))
    i = np.arange(4)
    for position, pairs in (("none", None), ("alibi", abs(i[:, None] - i)), ("rope", i[:, None] - i)):
        encoder = Encoder(
            EncoderConfig(
                vocab_size=7, n=4, d=8, heads=2, position=position, embedding_std=1.0, dtype="float64"
            )
        ).eval()
        with torch.no_grad():
            before = encoder(tokens)
            commuting = [
                p
                for p in itertools.permutations(range(4))
                if (encoder(tokens[:, list(p)]) - before[:, list(p)]).abs().max() < 1e-12
            ]
        assert [tuple(p) for p in automorphisms(4, pairs=pairs).tolist()] == commuting


def test_up_to_all_permutations_is_the_bag():
    task = first_token(4, 3)
    assert bayes_accuracy(task, up_to(automorphisms(4))) == pytest.approx(bayes_accuracy(task, bag_of_words))
    assert bayes_accuracy(task, up_to([[0, 1, 2, 3]])) == pytest.approx(1)
    # A rotation by two leaves two candidates, which agree in one case of three.
    rotations = [[0, 1, 2, 3], [2, 3, 0, 1]]
    assert bayes_accuracy(task, up_to(rotations)) == pytest.approx(1 / 3 + 2 / 3 / 2)


def test_up_to_refuses_what_is_no_group():
    for group, message in (
        ([[0, 1, 2], [1, 2, 0]], "not closed"),
        ([[0, 1, 1]], "permutations of 0"),
        ([], "permutations of 0"),
        (automorphisms(7), "5040 permutations, more than 720"),
    ):
        with pytest.raises(ValueError, match=message):
            up_to(np.array(group))
    with pytest.raises(ValueError, match="permutes 3 positions, but the sequences have 4"):
        bayes_accuracy(first_token(4, 2), up_to([[0, 1, 2]]))
    with pytest.raises(ValueError, match="n must be at most 8"):
        automorphisms(9)
    with pytest.raises(ValueError, match="pairs has shape"):
        automorphisms(3, pairs=np.zeros((3, 2)))


# --- masked prediction


def test_masked_prediction_of_independent_tokens_by_hand():
    """Where the rest of the text says nothing, the Bayes risk is the mean entropy of the marginals."""
    marginals = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    task = masked_prediction(product_task(marginals, lambda x: x[:, 0]), 0.3)
    entropies = -(marginals * np.log(marginals)).sum(axis=1)
    assert bayes_risk(task, loss="log") == pytest.approx(entropies.mean(), abs=1e-12)
    assert len(task.sequences) == 27 * sum(k * math.comb(3, k) for k in range(4))
    assert ((task.sequences == 4).sum(axis=1) == 1).all()


def test_with_everything_masked_the_gap_is_two_jensen_shannon_divergences():
    marginals = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2]])
    task = masked_prediction(product_task(marginals, lambda x: x[:, 0]), 1.0)
    middle = marginals.mean(axis=0)
    divergence = (marginals * np.log(marginals / middle)).sum() / 2
    assert 2 * separation_gaps(task, loss="log")[0, 1] == pytest.approx(2 * divergence, abs=1e-14)


def test_the_masked_gap_is_at_least_the_bound_of_theorem_c():
    rng = np.random.default_rng(0)
    law = FiniteTask(rng.integers(0, 3, (12, 4)), rng.dirichlet(np.ones(12)), np.zeros(12))
    mu = positional_distributions(law)
    for rate in (0.2, 0.6):
        gaps = 4 * rate * separation_gaps(masked_prediction(law, rate), loss="log")
        for i, j in itertools.combinations(range(4), 2):
            middle = (mu[i] + mu[j]) / 2
            divergence = sum((m[m > 0] * np.log(m[m > 0] / middle[m > 0])).sum() / 2 for m in (mu[i], mu[j]))
            assert gaps[i, j] > rate**4 * 2 * divergence > 0


def test_masked_prediction_names_a_bad_rate():
    for rate in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"rate must be in \(0, 1\]"):
            masked_prediction(first_token(2, 2), rate)


# --- laws


def test_product_task_is_the_product_law_without_impossible_sequences():
    task = product_task([[0.25, 0.75], [1.0, 0.0]], lambda x: x[:, 0] - x[:, 1])
    np.testing.assert_array_equal(task.sequences, [[0, 0], [1, 0]])
    np.testing.assert_array_equal(task.probabilities, [0.25, 0.75])
    np.testing.assert_array_equal(task.targets, [0, 1])
    np.testing.assert_array_equal(positional_distributions(task), [[0.25, 0.75], [1.0, 0.0]])


def test_the_tokens_of_a_before_b_have_one_law_at_every_position():
    distributions = positional_distributions(a_before_b(5, 4))
    np.testing.assert_allclose(distributions, np.tile([0.2, 0.2, 0.3, 0.3], (5, 1)), atol=1e-12)


def test_samples_follow_the_law_and_the_seed():
    task = FiniteTask([[0, 1], [1, 0]], [0.2, 0.8], [5, 7])
    sequences, targets = task.sample(20_000, rng=1)
    assert abs((targets == 7).mean() - 0.8) < 5 * math.sqrt(0.16 / 20_000)
    np.testing.assert_array_equal(sequences[:, 0] == 1, targets == 7)
    np.testing.assert_array_equal(task.sample(5, rng=3)[1], task.sample(5, rng=3)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], []), "probabilities is empty"),
        ((np.empty((0, 3), int), [], []), "probabilities is empty"),
        (([[0, 1]], [0.9], [0]), "probabilities sum to 0.9, but a law sums to 1"),
        (([[0, 1], [1, 0]], [1.5, -0.5], [0, 0]), r"probabilities\[1\] = -0.5 is negative"),
        (([[0, 1], [1, 0]], [1.0, np.nan], [0, 0]), r"probabilities\[1\] is nan"),
        (([[0, 1], [1, 0]], [0.5, 0.5], [0, np.inf]), r"targets\[1\] is inf"),
        (([[0, 1], [1, 0]], [0.5, 0.5], ["no", "yes"]), "targets must be real numbers"),
        (([[0, 1]], [0.5, 0.5], [0, 0]), "one length, not 1, 2 and 2"),
        (([0, 1], [0.5, 0.5], [0, 0]), r"sequences must have shape \(m, n\)"),
        (([[0.5, 1.0]], [1.0], [0]), "sequences must hold integers"),
        (([[0, 1]], [[1.0]], [0]), r"probabilities must have shape \(m,\)"),
    ],
)
def test_a_law_that_is_none_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        FiniteTask(*arguments)


def test_other_bad_arguments_are_named():
    task = a_before_b(3, 3)
    with pytest.raises(ValueError, match="loss must be 'mse' or 'log', not 'hinge'"):
        separation_gaps(task, loss="hinge")
    with pytest.raises(ValueError, match="loss must be"):
        bayes_risk(task, loss="accuracy")
    with pytest.raises(ValueError, match="statistic must map"):
        bayes_accuracy(task, lambda x: x[:, 0])
    with pytest.raises(ValueError, match=r"marginals\[1\]"):
        product_task([[0.5, 0.5], [0.5, 0.6]], lambda x: x[:, 0])
    with pytest.raises(ValueError, match="n must be at least 2"):
        a_before_b(1, 4)
    with pytest.raises(ValueError, match="size must be at least 1"):
        task.sample(0, rng=0)
