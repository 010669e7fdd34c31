"""The comparison of schemes and the power line: by hand, invariances, and a brute-force search."""

import html.parser
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posgeom.encodings.comparison import (
    SCHEMES,
    Comparison,
    Row,
    alibi_heads,
    compare_schemes,
    encoding_distances,
    subspace_alignment,
)
from posgeom.encodings.formulas import alibi_distances, alibi_slopes, power_line, sinusoidal, t5_buckets
from posgeom.geometry.distances import euclidean_distances
from posgeom.geometry.mds import classical_mds
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import optimal_scale, rank_agreement, stress
from posgeom.laws.power_line import PowerLine, fit_power_line, fitted_schemes

N = 24


def corpus(seed=0, n=N, width=30):
    return euclidean_distances(np.random.default_rng(seed).normal(size=(n, width))) + alibi_distances(n) / n


# --- compare_schemes ------------------------------------------------------------------------------------


def test_each_row_holds_the_scores_of_its_scheme_in_the_order_given():
    D = corpus()
    mine = alibi_distances(N, 0.3) ** 0.5
    table = compare_schemes(D, {"mine": mine, "line": lambda n, d, rng: alibi_distances(n)}, d=8, rng=0)
    assert [row.scheme for row in table] == list(table.schemes) == ["mine", "line"]
    row = table["mine"]
    assert row == table[0]
    assert row.raw_stress == stress(mine, D)
    assert row.best_scale == optimal_scale(mine, D)
    assert row.scaled_stress == stress(mine, D, scale="optimal")
    assert (row.spearman, row.kendall) == pytest.approx(rank_agreement(mine, D), abs=1e-12)
    assert row.violation_rate == violation_rate(mine)


def test_every_scheme_has_one_row():
    table = compare_schemes(corpus(), d=8, rng=0)
    assert table.schemes == tuple(SCHEMES)
    for row in table:
        assert row.raw_stress >= row.scaled_stress - 1e-12 >= -1e-12
        assert row.best_scale > 0


def test_reference_lines():
    D = corpus()
    table = compare_schemes(D, d=8, rng=0)
    assert table["NoPE"].raw_stress == 1.0 and table["NoPE"].scaled_stress == 1.0
    assert math.isnan(table["NoPE"].spearman) and math.isnan(table["simplex"].kendall)
    off = D[np.triu_indices(N, 1)]
    assert table["simplex"].scaled_stress == pytest.approx(1 - off.mean() ** 2 / (off**2).mean(), abs=1e-12)
    assert table["simplex"].best_scale == pytest.approx(off.mean(), abs=1e-12)


def test_the_simplex_fits_a_regular_simplex_exactly():
    D = 0.7 * (1 - np.eye(N))
    row = compare_schemes(D, d=8, rng=0)["simplex"]
    assert row.scaled_stress == pytest.approx(0, abs=1e-15) and row.best_scale == pytest.approx(0.7)


def test_rope_and_sinusoid_differ_by_their_scale_only():
    table = compare_schemes(corpus(), d=16, rng=0)
    rope, sinusoid = table["RoPE"], table["sinusoid"]
    assert rope.best_scale / sinusoid.best_scale == pytest.approx(math.sqrt(16 / 2), rel=1e-12)
    assert rope.scaled_stress == pytest.approx(sinusoid.scaled_stress, rel=1e-12)
    for score in ("spearman", "kendall", "violation_rate"):
        assert getattr(rope, score) == pytest.approx(getattr(sinusoid, score), abs=1e-12)
    assert abs(rope.raw_stress - sinusoid.raw_stress) > 0.1


def test_alibi_heads_share_all_scores_but_the_scale():
    table = compare_schemes(corpus(), alibi_heads(12), d=8, rng=0)
    assert len(table) == 12
    assert len({round(row.scaled_stress, 10) for row in table}) == 1
    assert len({round(row.kendall, 10) for row in table}) == 1
    np.testing.assert_allclose(
        [row.best_scale for row in table], table[0].best_scale * alibi_slopes(12)[0] / alibi_slopes(12)
    )
    assert table.schemes[8] == "ALiBi head 9 of 12 (slope 0.7071)"


def test_t5_row_is_the_bucket_of_the_lag():
    E = SCHEMES["T5 buckets"](300, 8, None)
    np.testing.assert_array_equal(E, E.T)
    # With 16 buckets a side lags 0 to 7 have their own; the others grow by 16^(1/8), the last starts at 91.
    assert list(E[0, [0, 7, 8, 11, 12, 90, 91, 299]]) == [0, 7, 8, 8, 9, 14, 15, 15]
    np.testing.assert_array_equal(E[0], t5_buckets(300)[:, 0])


def test_a_row_does_not_depend_on_which_others_are_there():
    D = corpus()
    whole = compare_schemes(D, d=8, rng=5)
    alone = compare_schemes(D, {"random": SCHEMES["random"]}, d=8, rng=np.random.default_rng(5))
    assert alone["random"] == whole["random"]
    assert compare_schemes(D, d=8, rng=6)["random"] != whole["random"]
    twins = compare_schemes(D, {"one": SCHEMES["random"], "two": SCHEMES["random"]}, d=8, rng=5)
    assert twins["one"].raw_stress != twins["two"].raw_stress


@settings(max_examples=15, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(0, 100))
def test_units_of_the_corpus_change_raw_stress_only(factor, seed):
    D = corpus(seed, n=9)
    before, after = (compare_schemes(x, d=6, rng=seed) for x in (D, factor * D))
    for one, other in zip(before, after, strict=True):
        assert other.scaled_stress == pytest.approx(one.scaled_stress, rel=1e-9)
        assert other.violation_rate == one.violation_rate
        assert other.kendall == pytest.approx(one.kendall, nan_ok=True)


def test_an_encoding_of_your_own_as_points_as_dissimilarity_or_as_callable():
    D, P = corpus(), np.random.default_rng(3).normal(size=(N, 5))
    table = compare_schemes(
        D,
        {
            "points": P,
            "list": P.tolist(),
            "distances": euclidean_distances(P),
            "callable points": lambda n, d, rng: P,
            "callable distances": lambda n, d, rng: euclidean_distances(P),
        },
        d=64,
        rng=0,
    )
    values = {
        tuple(getattr(row, score) for score in ("raw_stress", "best_scale", "kendall")) for row in table
    }
    assert len(values) == 1
    assert len(compare_schemes(D, SCHEMES | {"mine": P}, d=8, rng=0)) == len(SCHEMES) + 1


def test_n_by_n_is_always_a_dissimilarity():
    square_points = sinusoidal(N, N)
    with pytest.raises(ValueError, match=r"scheme 'mine'.*not symmetric.*euclidean_distances"):
        compare_schemes(corpus(), {"mine": square_points}, d=N, rng=0)
    with pytest.raises(ValueError, match=r"scheme 'mine'.*not symmetric.*euclidean_distances"):
        compare_schemes(corpus(), {"mine": lambda n, d, rng: sinusoidal(n, d)}, d=N, rng=0)
    table = compare_schemes(corpus(), {"mine": euclidean_distances(square_points)}, d=N, rng=0)
    assert table["mine"].raw_stress == stress(euclidean_distances(square_points), corpus())


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (np.ones((N - 1, 3)), rf"scheme 'mine' has shape \({N - 1}, 3\), but D has {N} positions"),
        (np.ones((3, N)), r"has shape \(3, 24\)"),
        (np.ones(N), r"has shape \(24,\)"),
        (np.ones((N, N, 1)), r"has shape \(24, 24, 1\)"),
        (np.ones((N, 0)), r"has shape \(24, 0\)"),
        (np.full((N, 3), np.nan), r"scheme 'mine'\[0, 0\] is nan"),
        (np.where(np.eye(N), 0, np.inf), r"scheme 'mine'\[0, 1\] is inf"),
        (np.triu(np.ones((N, N)), 1), "scheme 'mine' is not symmetric"),
        (np.ones((N, N)), r"scheme 'mine'\[0, 0\] = 1, but a position is at distance 0"),
        (np.eye(N) - 1, r"scheme 'mine'\[0, 1\] = -1 is negative"),
        (np.full((N, 3), "a"), "must hold real numbers"),
    ],
)
def test_a_faulty_encoding_is_named(encoding, message):
    for scheme in (encoding, lambda n, d, rng: encoding):
        with pytest.raises(ValueError, match=message):
            compare_schemes(corpus(), {"mine": scheme}, d=4, rng=0)


def test_the_error_of_a_scheme_says_whose_it_is():
    with pytest.raises(ValueError, match="d must be even") as caught:
        compare_schemes(corpus(), d=7, rng=0)
    assert "'RoPE', called with n = 24, d = 7" in caught.value.__notes__[0]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="schemes must map names"):
        compare_schemes(corpus(), corpus(), d=4, rng=0)
    with pytest.raises(ValueError, match="at least one"):
        compare_schemes(corpus(), {}, d=4, rng=0)
    with pytest.raises(ValueError, match="key 3"):
        compare_schemes(corpus(), {3: corpus()}, d=4, rng=0)
    with pytest.raises(ValueError, match="D is not symmetric"):
        compare_schemes(np.triu(corpus()), d=4, rng=0)
    with pytest.raises(ValueError, match="D is zero for every pair"):
        compare_schemes(np.zeros((5, 5)), d=4, rng=0)
    with pytest.raises(ValueError, match="d must be at least 1"):
        compare_schemes(corpus(), d=0, rng=0)
    with pytest.raises(ValueError, match="rng is None"):
        compare_schemes(corpus(), d=4, rng=None)


def test_rounding_orders_nothing():
    D, line = corpus(), alibi_distances(N)
    rng = np.random.default_rng(0)
    blurred = line + np.triu(rng.uniform(0, 1e-13, line.shape), 1)
    clean, rounded = compare_schemes(
        D, {"clean": line, "rounded": np.triu(blurred) + np.triu(blurred, 1).T}, d=4, rng=0
    )
    assert rounded.kendall == clean.kendall and rounded.spearman == clean.spearman
    assert rounded.violation_rate == clean.violation_rate == 0
    # A simplex of points is constant but for rounding: it has no order either.
    simplex = np.eye(N) * math.pi
    assert math.isnan(compare_schemes(D, {"points": euclidean_distances(simplex)}, d=4, rng=0)[0].kendall)


def test_two_positions_have_no_triples():
    table = compare_schemes(np.array([[0, 1.0], [1, 0]]), {"line": alibi_distances(2)}, d=4, rng=0)
    assert math.isnan(table["line"].violation_rate) and table["line"].raw_stress == 0


def test_encoding_distances_reads_whole_numbers():
    np.testing.assert_array_equal(encoding_distances([[0], [3], [7]], 3), [[0, 3, 7], [3, 0, 4], [7, 4, 0]])


def test_schemes_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        SCHEMES["mine"] = corpus()


def test_fitted_schemes_fit_what_they_were_made_from_and_not_another():
    D, other = corpus(0), corpus(1)
    own = compare_schemes(D, fitted_schemes(D), d=N, rng=0)
    assert own["MDS of these distances"].raw_stress == pytest.approx(0, abs=1e-10)
    assert own["best power line"].raw_stress == pytest.approx(fit_power_line(D).stress, rel=1e-9)
    assert own["best power line"].best_scale == pytest.approx(1, rel=1e-9)
    foreign = compare_schemes(other, fitted_schemes(D), d=N, rng=0)
    assert foreign["MDS of these distances"].raw_stress > 0.01
    narrow = compare_schemes(D, fitted_schemes(D), d=3, rng=0)["MDS of these distances"]
    assert narrow.raw_stress == stress(euclidean_distances(classical_mds(D, 3).points), D)


# --- the table ------------------------------------------------------------------------------------------


def row(scheme, **scores):
    given = dict.fromkeys(
        ("raw_stress", "best_scale", "scaled_stress", "spearman", "kendall", "violation_rate"), 0.5
    )
    return Row(scheme, **(given | scores))


TABLE = Comparison(
    (
        row("b", raw_stress=1234.5, spearman=math.nan, scaled_stress=0.2004),
        row("<a>", raw_stress=12.34, spearman=0.1, scaled_stress=0.1),
        row("c", raw_stress=0.0123, spearman=0.9, scaled_stress=0.2),
    )
)


def test_order_and_ranking():
    assert TABLE.sorted("raw_stress").schemes == ("c", "<a>", "b")
    assert TABLE.sorted("spearman").schemes == ("c", "<a>", "b")
    # b is a little worse than c, but equal to three digits: then the order of the table stands.
    assert TABLE.ranking("scaled_stress") == "<a> < b = c"
    assert TABLE.ranking("scaled_stress", digits=4) == "<a> < c < b"
    assert TABLE.ranking("spearman") == "c > <a>"
    assert TABLE.only("c", "b").schemes == ("c", "b")
    assert TABLE.column("raw_stress") == {"b": 1234.5, "<a>": 12.34, "c": 0.0123}
    with pytest.raises(ValueError, match="score must be one of raw_stress, scaled_stress"):
        TABLE.sorted("best_scale")
    with pytest.raises(ValueError, match="not 'stress'"):
        TABLE.column("stress")
    with pytest.raises(KeyError, match="no scheme 'z'; there are b, <a>, c"):
        TABLE["z"]


def test_table_in_a_terminal():
    lines = str(TABLE).splitlines()
    assert (
        lines[0].split() == "scheme raw stress best scale scaled stress Spearman Kendall violations".split()
    )
    assert lines[1].split() == ["b", "1,234", "0.500", "0.200", "–", "0.500", "0.500"] or "1,235" in lines[1]
    assert lines[2].split()[1] == "12.3" and lines[3].split()[1] == "0.012"
    assert len({len(line) for line in lines}) == 1


class Cells(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.rows[-1][-1] += data


def test_table_in_a_notebook():
    cells = Cells()
    cells.feed(TABLE._repr_html_())
    assert not cells.open
    assert [line[0] for line in cells.rows] == ["scheme", "b", "<a>", "c"]
    assert {len(line) for line in cells.rows} == {7}
    assert cells.rows[2][1:] == str(TABLE).splitlines()[2].split()[1:]


# --- the power line -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-2.9, 1.9, allow_subnormal=False), st.floats(1e-3, 1e3), st.integers(3, 40), st.integers(0, 5)
)
def test_a_power_line_is_found_again(exponent, scale, n, first):
    D = scale * power_line(n + first, exponent)[first:, first:]
    fit = fit_power_line(D, first=first)
    assert fit.stress < 1e-13
    assert fit.exponent == pytest.approx(exponent, abs=1e-5)
    assert fit.scale == pytest.approx(scale, rel=1e-4)
    assert not fit.at_bound


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 12))
def test_no_exponent_of_a_fine_grid_does_better(seed, n):
    rng = np.random.default_rng(seed)
    D = euclidean_distances(np.cumsum(rng.standard_t(2, size=(n, 2)), axis=0))
    fit = fit_power_line(D)
    best = min(stress(power_line(n, a), D, scale="optimal") for a in np.linspace(-3, 2, 1001))
    assert fit.stress <= best + 1e-12
    E = power_line(n, fit.exponent)
    assert stress(E, D, scale="optimal") == pytest.approx(fit.stress, abs=1e-9)
    assert optimal_scale(E, D) == pytest.approx(fit.scale, rel=1e-9)


def test_power_line_by_hand():
    # a = 1 is ALiBi's line; through 0, log 2, log 3 passes the logarithm.
    assert fit_power_line(alibi_distances(10, 0.25)) == PowerLine(
        pytest.approx(1, abs=1e-7), pytest.approx(0.25, rel=1e-6), pytest.approx(0, abs=1e-15), False
    )
    places = np.log([[1.0], [2.0], [3.0]])
    assert fit_power_line(euclidean_distances(places)).exponent == pytest.approx(0, abs=1e-7)
    nearly_zero = fit_power_line(euclidean_distances(places), bounds=(-5e-324, 5e-324))
    assert nearly_zero.stress < 1e-28 and nearly_zero.scale == pytest.approx(1)


def test_a_fit_at_the_end_of_the_interval_says_so():
    D = power_line(12, 1.5)
    fit = fit_power_line(D, bounds=(-3, 1))
    assert fit.at_bound and fit.exponent == 1.0
    assert fit.stress == pytest.approx(stress(power_line(12, 1.0), D, scale="optimal"))


@pytest.mark.parametrize("late", [0.5, 8.0])
def test_two_valleys(late):
    # Only the first pair and the last pair are apart: a low exponent explains one of them, a high one the
    # other, and something between is worse than both.
    D = np.zeros((12, 12))
    D[0, 1] = D[1, 0] = 1
    D[10, 11] = D[11, 10] = late
    heights = {a: stress(power_line(12, a), D, scale="optimal") for a in np.linspace(-8, 8, 161)}
    assert max(heights.values()) > max(heights[-8.0], heights[8.0]) + 1e-4
    fit = fit_power_line(D, bounds=(-8, 8))
    assert fit.at_bound and fit.exponent == min(heights, key=heights.get) == (-8 if late < 1 else 8)


def test_extreme_exponents_stay_finite():
    fit = fit_power_line(corpus(), bounds=(-60, 60), first=30)
    assert all(map(math.isfinite, (fit.exponent, fit.scale, fit.stress)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"D": np.zeros((4, 4))}, "D is zero for every pair"),
        ({"D": np.array([[0, 1.0], [1, 0]])}, "from 3 positions on"),
        ({"D": np.full((4, 4), np.nan)}, r"D\[0, 0\] is nan"),
        ({"D": corpus(), "bounds": (2, -3)}, "lower one first"),
        ({"D": corpus(), "bounds": (1, 1)}, "lower one first"),
        ({"D": corpus(), "bounds": (-math.inf, 1)}, "finite"),
        ({"D": corpus(), "bounds": 3}, "pair of numbers"),
        ({"D": corpus(), "bounds": (1, 2, 3)}, "pair of numbers"),
        ({"D": corpus(), "first": -1}, "first must be at least 0"),
    ],
)
def test_what_has_no_power_line_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_power_line(**arguments)


# --- axes -----------------------------------------------------------------------------------------------


def test_alignment_by_hand():
    x, y = np.array([[1.0], [0], [0]]), np.array([[1.0], [1], [0]])
    assert subspace_alignment(x, y) == pytest.approx(0.5)
    assert subspace_alignment(x, np.eye(3)[:, :2]) == pytest.approx(1)
    assert subspace_alignment(np.eye(3)[:, :2], x) == pytest.approx(0.5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_alignment_ignores_the_basis(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(9, 3)), rng.normal(size=(9, 4))
    value = subspace_alignment(A, B)
    assert 0 <= value <= 1 + 1e-12
    assert subspace_alignment(A @ rng.normal(size=(3, 3)) * 1e6, B * [1e-6, 1, 1, 1e6]) == pytest.approx(
        value
    )
    assert 3 * value == pytest.approx(4 * subspace_alignment(B, A))


def test_alignment_of_random_subspaces_averages_to_the_share_of_dimensions():
    rng = np.random.default_rng(0)
    draws = [subspace_alignment(rng.normal(size=(20, 3)), rng.normal(size=(20, 4))) for _ in range(600)]
    assert np.mean(draws) == pytest.approx(4 / 20, abs=4 * np.std(draws) / np.sqrt(600))


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        (np.ones((4, 2)), np.eye(4), "A of shape .* linearly dependent"),
        (np.eye(4), np.zeros((4, 1)), "B of shape .* linearly dependent"),
        (np.eye(4), np.eye(3), "A has 4 rows and B has 3"),
        (np.zeros((4, 0)), np.eye(4), "A of shape .* linearly dependent"),
    ],
)
def test_alignment_errors(A, B, message):
    with pytest.raises(ValueError, match=message):
        subspace_alignment(A, B)
