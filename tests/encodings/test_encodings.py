"""Encodings against hand-derived values, identities and the reference implementations."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.fft import dct

from posgeom.encodings.formulas import (
    alibi_distances,
    alibi_slopes,
    apply_rope,
    cosines,
    learned,
    polynomials,
    power_line,
    random_gaussian,
    rope_distances,
    rope_frequencies,
    round_to_bfloat16,
    sinusoidal,
    t5_buckets,
)
from posgeom.geometry.distances import euclidean_distances


def test_sinusoidal_by_hand():
    P = sinusoidal(3, 4, base=100.0)
    np.testing.assert_allclose(P[0], [0, 1, 0, 1])
    np.testing.assert_allclose(P[2], [np.sin(2), np.cos(2), np.sin(0.2), np.cos(0.2)])


@given(st.integers(1, 20), st.integers(1, 17))
def test_sinusoidal_has_the_width_asked_for_odd_too(n, d):
    P = sinusoidal(n, d)
    assert P.shape == (n, d) and P.dtype == np.float64
    if d % 2 == 0:
        np.testing.assert_allclose((P**2).sum(axis=1), d / 2)


def test_sinusoidal_distances_depend_on_the_lag_only():
    E = euclidean_distances(sinusoidal(40, 32))
    np.testing.assert_allclose(E[:-1, :-1], E[1:, 1:], atol=1e-12)


@given(st.integers(2, 30), st.integers(1, 20).map(lambda k: 2 * k), st.floats(2, 1e5))
def test_rope_is_the_sinusoid_up_to_a_constant(n, d, base):
    np.testing.assert_allclose(
        rope_distances(n, d, base), np.sqrt(2 / d) * euclidean_distances(sinusoidal(n, d, base)), atol=1e-12
    )


def test_rope_distance_is_the_mean_over_unit_vectors():
    n, d = 6, 8
    basis = np.eye(d)
    # The mean of x -> ||R_i x - R_j x||^2 over the unit sphere is its mean over any orthonormal basis.
    rotated = np.stack([apply_rope(np.tile(x, (n, 1)), np.arange(n)) for x in basis])
    squared = np.mean([euclidean_distances(r) ** 2 for r in rotated], axis=0)
    np.testing.assert_allclose(rope_distances(n, d), np.sqrt(squared), atol=1e-13)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_keeps_lengths_and_scores_see_only_the_lag(layout):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 7, 6))
    positions = np.array([0, 1, 5, 30, 31, 900, 2000])
    rotated = apply_rope(q, positions, layout=layout)
    np.testing.assert_allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(q, axis=1))
    scores = apply_rope(q, positions, layout=layout) @ apply_rope(k, positions, layout=layout).T
    shifted = apply_rope(q, positions + 77, layout=layout) @ apply_rope(k, positions + 77, layout=layout).T
    np.testing.assert_allclose(scores, shifted, atol=1e-10)
    assert np.abs(apply_rope(q, positions, layout=layout) - q)[1:].max() > 0.1


def test_rope_by_hand_in_both_layouts():
    x = np.array([[1.0, 0, 0, 0]])
    fast, slow = np.cos(3.0), np.sin(3.0)
    np.testing.assert_allclose(apply_rope(x, [3]), [[fast, slow, 0, 0]])
    np.testing.assert_allclose(apply_rope(x, [3], layout="half"), [[fast, 0, slow, 0]])


def test_the_layouts_are_one_permutation_apart():
    x = np.random.default_rng(1).normal(size=(2, 5, 8))
    half_to_interleaved = np.arange(8).reshape(2, 4).T.ravel()
    interleaved = apply_rope(x[..., half_to_interleaved], np.arange(5))
    np.testing.assert_allclose(
        apply_rope(x, np.arange(5), layout="half")[..., half_to_interleaved], interleaved
    )


def test_rope_agrees_with_transformers():
    torch = pytest.importorskip("torch")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    x = np.random.default_rng(2).normal(size=(1, 1, 9, 16)).astype(np.float32)
    angles = np.outer(np.arange(9), rope_frequencies(16))
    angles = torch.tensor(np.concatenate([angles, angles], axis=1), dtype=torch.float32)[None]
    expected, _ = llama.apply_rotary_pos_emb(torch.tensor(x), torch.tensor(x), angles.cos(), angles.sin())
    np.testing.assert_allclose(apply_rope(x, np.arange(9), layout="half"), expected.numpy(), atol=1e-5)


def test_rope_angles_are_float64_whatever_the_dtype_of_the_vectors():
    positions = np.arange(1_000_000, 1_000_004)
    x = np.tile(np.array([1, 0], dtype=np.float32), (4, 1))
    rotated = apply_rope(x, positions)
    assert rotated.dtype == np.float32
    np.testing.assert_allclose(rotated[:, 0], np.cos(positions.astype(np.float64)), atol=1e-6)
    half = apply_rope(x.astype(np.float16), positions)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half[:, 0], np.cos(positions.astype(np.float64)), atol=1e-3)


def test_alibi_slopes_of_powers_of_two():
    np.testing.assert_allclose(
        alibi_slopes(8), [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    )
    np.testing.assert_allclose(alibi_slopes(1), [2.0**-8])
    np.testing.assert_allclose(alibi_slopes(16)[:2], [2**-0.5, 2**-1])


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (3, [2.0**-4, 2.0**-8, 2.0**-2]),
        (6, [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]),
        (12, [*(2.0 ** -np.arange(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_alibi_slopes_of_other_numbers(heads, expected):
    np.testing.assert_allclose(alibi_slopes(heads), expected)


@given(st.integers(1, 200))
def test_alibi_slopes_are_distinct_and_in_the_unit_interval(heads):
    slopes = alibi_slopes(heads)
    assert slopes.shape == (heads,) and len(set(slopes)) == heads
    assert (slopes > 0).all() and (slopes < 1).all()


@pytest.mark.parametrize("heads", [3, 6, 8, 12, 16, 40])
def test_alibi_slopes_agree_with_transformers(heads):
    torch = pytest.importorskip("torch")
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    bias = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)
    np.testing.assert_allclose(alibi_slopes(heads), bias[:, 0, 1].numpy(), rtol=1e-6)


def test_alibi_distances_by_hand():
    np.testing.assert_array_equal(alibi_distances(3, 0.5), [[0, 0.5, 1], [0.5, 0, 0.5], [1, 0.5, 0]])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (16, 64), (8, 20)])
def test_t5_buckets_agree_with_transformers(bidirectional, n_buckets, max_distance):
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    n = 300
    relative = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    expected = t5.T5Attention._relative_position_bucket(relative, bidirectional, n_buckets, max_distance)
    ours = t5_buckets(n, n_buckets=n_buckets, max_distance=max_distance, bidirectional=bidirectional)
    np.testing.assert_array_equal(ours, expected.numpy())


def test_power_line_by_hand():
    np.testing.assert_allclose(power_line(4, 1.0), alibi_distances(4))
    np.testing.assert_allclose(power_line(4, 0.0)[0], np.log([1, 2, 3, 4]))
    np.testing.assert_allclose(power_line(4, -1.0)[0], [0, 1 / 2, 2 / 3, 3 / 4])
    np.testing.assert_allclose(power_line(3, 2.0)[1], [1.5, 0, 2.5])


@given(st.floats(-3, 3))
@example(5e-324)
@settings(max_examples=30)
def test_power_line_is_continuous_in_the_exponent(exponent):
    np.testing.assert_allclose(power_line(30, exponent), power_line(30, exponent + 1e-9), rtol=1e-6)


def test_random_tables_follow_rng_and_std():
    np.testing.assert_array_equal(
        random_gaussian(5, 3, rng=4), random_gaussian(5, 3, rng=np.random.default_rng(4))
    )
    assert np.std(random_gaussian(400, 100, std=3.0, rng=0)) == pytest.approx(3, rel=0.02)
    assert np.std(learned(400, 100, rng=0)) == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rope_distances(4, 3), "d must be even for RoPE"),
        (lambda: apply_rope(np.zeros((4, 3)), np.arange(4)), "d must be even for RoPE"),
        (lambda: apply_rope(np.zeros((4, 2)), np.arange(5)), r"positions must have shape \(4,\)"),
        (lambda: apply_rope(np.zeros((4, 2)), np.arange(4), layout="neox"), "layout must be"),
        (lambda: sinusoidal(0, 4), "n must be at least 1"),
        (lambda: sinusoidal(4, 4, base=-1), "base must be"),
        (lambda: alibi_slopes(0), "n_heads must be at least 1"),
        (lambda: alibi_distances(3, np.nan), "slope must be"),
        (lambda: random_gaussian(3, 2, rng=None), "rng is None"),
        (
            lambda: random_gaussian(3, 2, rng="seed"),
            "rng must be a numpy.random.Generator or an integer seed",
        ),
        (lambda: random_gaussian(3, 2, rng=-1), "rng must be a numpy.random.Generator or an integer seed"),
        (lambda: sinusoidal(3, 4, base="big"), "base must be a number"),
        (lambda: t5_buckets(9, n_buckets=7), "n_buckets must be even"),
        (lambda: power_line(3, np.inf), "exponent must be finite"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@given(st.integers(2, 40), st.data())
def test_cosines_are_scipys_dct_and_orthonormal(n, data):
    d = data.draw(st.integers(1, n - 1))
    C = cosines(n, d)
    np.testing.assert_allclose(C, dct(np.eye(n), type=2, norm="ortho")[:, 1 : d + 1], atol=1e-12)
    np.testing.assert_allclose(C.T @ C, np.eye(d), atol=1e-12)


@given(st.integers(2, 60), st.data())
def test_polynomials_have_the_degree_of_their_column_and_are_orthonormal(n, data):
    d = data.draw(st.integers(1, n - 1))
    P = polynomials(n, d)
    np.testing.assert_allclose(P.T @ P, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(P.sum(axis=0), 0, atol=1e-12)
    # A polynomial of degree k has constant k-th differences and is determined by its sign changes.
    for k in range(1, min(d, 4) + 1):
        differences = np.diff(P[:, k - 1], k)
        np.testing.assert_allclose(differences, differences[0], atol=1e-9)
        assert np.count_nonzero(np.diff(np.sign(P[np.abs(P[:, k - 1]) > 1e-9, k - 1]))) == k
        assert P[-1, k - 1] > 0


def test_polynomials_by_hand():
    by_hand = [[-(0.5**0.5), 6**-0.5], [0, -2 * 6**-0.5], [0.5**0.5, 6**-0.5]]
    np.testing.assert_allclose(polynomials(3, 2), by_hand, atol=1e-15)


@pytest.mark.parametrize("axes", [cosines, polynomials])
def test_axes_refuse_more_columns_than_centred_directions(axes):
    with pytest.raises(ValueError, match="d = 5, but n = 5 positions have only 4"):
        axes(5, 5)


def test_bfloat16_by_hand():
    halfway = [257, 259, 1 + 2.0**-8, -(1 + 3 * 2.0**-8)]
    np.testing.assert_array_equal(round_to_bfloat16(halfway), np.float32([256, 260, 1, -(1 + 2.0**-6)]))
    np.testing.assert_array_equal(round_to_bfloat16(np.arange(257)), np.arange(257))
    np.testing.assert_array_equal(
        round_to_bfloat16([np.inf, -np.inf, 3.4e38, 1e300]), np.float32([np.inf, -np.inf, np.inf, np.inf])
    )
    assert np.isnan(round_to_bfloat16(np.nan)) and np.isnan(round_to_bfloat16(np.float32([np.nan])))[0]


def test_bfloat16_is_torchs():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate(
        [bits.view(np.float32), np.arange(5000, dtype=np.float32), np.float32([0.0, -0.0, 1e-45])]
    )
    ours, theirs = round_to_bfloat16(x), torch.from_numpy(x).bfloat16().float().numpy()
    known = ~np.isnan(x)
    np.testing.assert_array_equal(ours[known].view(np.uint32), theirs[known].view(np.uint32))
    assert np.isnan(ours[~known]).all()
