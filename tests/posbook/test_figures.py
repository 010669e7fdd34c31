"""Every figure has alt text, draws the data that it is given, and shows itself once."""

import numpy as np
import pytest

from posgeom import figures
from posgeom.encodings.comparison import SCHEMES, compare_schemes
from posgeom.encodings.formulas import random_gaussian
from posgeom.geometry.distances import euclidean_distances

E = euclidean_distances(random_gaussian(12, 3, rng=0))
D = euclidean_distances(random_gaussian(12, 3, rng=1))
x = np.arange(5)
TABLE = compare_schemes(
    D, {name: SCHEMES[name] for name in ("RoPE", "simplex", "NoPE")} | {"exact": D}, d=4, rng=0
)
DRAWINGS = {
    "heatmap": lambda **k: figures.heatmap(D, **k),
    "lines": lambda **k: figures.lines(
        x, {"a": x**2, "b": x}, xlabel="x", ylabel="y", bands={"a": (x, x**3)}, **k
    ),
    "bars": lambda **k: figures.bars(
        {"a": 1, "b": 2}, xlabel="y", intervals={"a": (0.5, 1.5)}, reference={"r": 1}, **k
    ),
    "scores": lambda **k: figures.scores({"one": TABLE, "two": TABLE}, **k),
    "shepard": lambda **k: figures.shepard(E, D, **k),
    "spectrum": lambda **k: figures.spectrum({"one": [3, 2, 1, 1e-14], "two": [1, 0.1]}, **k),
    "trajectory": lambda **k: figures.trajectory(random_gaussian(9, 2, rng=0), **k),
    "canvas": lambda **k: figures.canvas(2, 2, **k)[0],
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_a_figure_demands_alt_text_and_carries_it(draw):
    with pytest.raises(TypeError, match="alt"):
        draw()
    with pytest.raises(ValueError, match="alt is empty"):
        draw(alt="  ")
    data, metadata = draw(alt="What is\n  seen.")._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG") and set(data) == {"image/png"}
    assert metadata["image/png"]["alt"] == "What is seen."


def test_figures_are_opaque():
    from io import BytesIO

    from matplotlib.image import imread

    pixels = imread(BytesIO(figures.heatmap(D, alt="a").png()))
    assert pixels[0, 0].tolist() == [1, 1, 1, 1] and pixels[..., 3].min() == 1


def test_the_data_are_drawn():
    figure = figures.heatmap(D, alt="a", limits=(0, 2))
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), D)
    assert figure.axes[0].images[0].get_clim() == (0, 2)
    lines = figures.lines(x, {"a": x**2}, alt="a", xlabel="x", ylabel="y").axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), x**2)
    widths = [bar.get_width() for bar in figures.bars({"a": 1, "b": 2}, alt="a", xlabel="y").axes[0].patches]
    assert widths == [1, 2]
    offsets = figures.shepard(E, D, alt="a").axes[0].collections[0].get_offsets()
    upper = np.triu_indices(12, 1)
    np.testing.assert_array_equal(offsets, np.column_stack([D[upper], E[upper]]))
    (one, two) = figures.spectrum({"one": [3, 2, 1, 1e-14], "two": [1, 0.1]}, alt="a").axes[0].lines
    np.testing.assert_array_equal(one.get_ydata(), [3, 2, 1])


def test_scores_are_drawn_by_scheme_with_their_reference_lines():
    raw, kendall = figures.scores(
        {"one": TABLE}, alt="a", columns={"raw_stress": "raw", "kendall": "tau"}
    ).axes
    marks, no_encoding = raw.lines
    # What fits exactly has no place on a logarithmic axis: it is at the edge.
    np.testing.assert_allclose(marks.get_xdata(), [*(row.raw_stress for row in TABLE)][:3] + [0.01])
    assert list(marks.get_ydata()) == [3, 2, 1, 0] and no_encoding.get_xdata() == [1, 1]
    assert [label.get_text() for label in raw.get_yticklabels()] == list(TABLE.schemes)
    np.testing.assert_array_equal(kendall.lines[0].get_xdata(), [row.kendall for row in TABLE])
    (scaled,) = figures.scores({"one": TABLE}, alt="a", columns={"scaled_stress": "s"}).axes
    assert scaled.lines[1].get_xdata() == [TABLE["simplex"].scaled_stress] * 2


def test_several_panels_share_one_alt_text():
    figure, axes = figures.canvas(1, 2, alt="two maps")
    assert figures.heatmap(D, alt="left", ax=axes[0, 0]) is figure
    assert figure.alt == "two maps"


def test_bad_arguments_are_named():
    for nothing in ({}, {"one": []}):
        with pytest.raises(ValueError, match="no row"):
            figures.scores(nothing, alt="a")
    with pytest.raises(ValueError, match="needs two"):
        figures.trajectory(np.zeros((4, 1)), alt="a")
    with pytest.raises(ValueError, match="log must be"):
        figures.lines(x, {"a": x}, alt="a", xlabel="x", ylabel="y", log="z")
