"""One style for every figure of the book.

Each function returns the figure and demands ``alt``, the words that say what is seen for those who cannot see
it. A figure shows itself once, as the last expression of a cell, and carries its alt text in the output's
metadata, where the build of the site finds it. No pyplot, so no hidden state: a figure that is not shown is
not kept.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

import numpy as np
from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posgeom import checks
from posgeom.geometry.stress import optimal_scale

__all__ = ["PageFigure", "bars", "canvas", "heatmap", "lines", "scores", "shepard", "spectrum", "trajectory"]

# Okabe and Ito's palette, told apart by colour-blind readers too; the light yellow is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DISTANCE_MAP = "cividis"
POSITION_MAP = "viridis"
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#4a4a4a",
    "axes.grid": True,
    "axes.labelsize": 11,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "image.interpolation": "nearest",
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.facecolor": "white",
}
WIDTH = 7.2
SCORE_TITLES = {"raw_stress": "raw stress", "scaled_stress": "scaled stress", "violation_rate": "violations"}
LEAST_STRESS = 1e-2
DPI = 150


class PageFigure(Figure):
    """A figure with alt text; as the last expression of a cell it displays itself as one PNG."""

    alt: str

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        return {"image/png": self.png()}, {"image/png": {"alt": self.alt}}

    def png(self) -> bytes:
        """The picture as PNG, on white."""
        with rc_context(STYLE):
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()


def canvas(
    rows: int = 1, columns: int = 1, *, alt: str, size: tuple[float, float] | None = None, **subplots
) -> tuple[PageFigure, np.ndarray]:
    """An empty figure in the book's style and its ``(rows, columns)`` array of axes.

    ``size`` is width and height in inches (default: 7.2 wide, 3.4 a row); ``subplots`` goes to matplotlib's
    ``Figure.subplots`` (``sharex``, ``width_ratios``, ...). ``ValueError`` for an ``alt`` without words.
    """
    if not (isinstance(alt, str) and alt.strip()):
        raise ValueError("alt is empty: say in words what the figure shows, for readers who cannot see it")
    with rc_context(STYLE):
        figure = PageFigure(figsize=size or (WIDTH, 3.4 * rows), layout="constrained")
        figure.alt = " ".join(alt.split())
        FigureCanvasAgg(figure)
        return figure, figure.subplots(rows, columns, squeeze=False, **subplots)


def heatmap(
    matrix: np.ndarray,
    *,
    alt: str,
    title: str | None = None,
    label: str = "distance",
    xlabel: str = "position",
    ylabel: str = "position",
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A matrix as a picture, ``matrix[0, 0]`` at the top left, with a colour bar named ``label``."""
    matrix = checks.finite_matrix(matrix, "matrix")
    figure, ax = _axes(ax, alt, size=(5.2, 4.3))
    with rc_context(STYLE):
        low, high = limits or (None, None)
        image = ax.imshow(matrix, cmap=DISTANCE_MAP, vmin=low, vmax=high)
        ax.grid(False)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        _title(ax, title)
        figure.colorbar(image, ax=ax, label=label, shrink=0.9)
    return figure


def lines(
    x: np.ndarray,
    curves: Mapping[str, np.ndarray],
    *,
    alt: str,
    xlabel: str,
    ylabel: str,
    bands: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
    log: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Curves over a common ``x``, with a marker each where the points are few.

    ``bands`` maps a curve's name to its lower and upper bound; ``reference`` draws dashed horizontal lines;
    ``log`` names the logarithmic axes: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
    """
    figure, ax = _axes(ax, alt)
    with rc_context(STYLE):
        for k, (name, y) in enumerate(curves.items()):
            colour = COLOURS[k % len(COLOURS)]
            marker = MARKERS[k % len(MARKERS)] if len(x) <= 40 else None
            ax.plot(x, y, label=name, color=colour, marker=marker, markersize=4.5)
            if bands and name in bands:
                ax.fill_between(x, *bands[name], color=colour, alpha=0.18, linewidth=0)
        _references(ax, reference, horizontal=True)
        _logarithmic(ax, log)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        _title(ax, title)
        if len(curves) + len(reference or {}) > 1:
            ax.legend()
    return figure


def bars(
    values: Mapping[str, float],
    *,
    alt: str,
    xlabel: str,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    reference: Mapping[str, float] | None = None,
    title: str | None = None,
    log: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Horizontal bars, the first on top, so that long names stay readable on a narrow screen.

    ``intervals`` maps a name to its lower and upper bound; ``reference`` draws dashed vertical lines.
    """
    figure, ax = _axes(ax, alt, size=(WIDTH, 1.2 + 0.36 * len(values)))
    with rc_context(STYLE):
        names, heights = list(values), np.array(list(values.values()), dtype=float)
        places = np.arange(len(names))[::-1]
        ax.barh(places, heights, color=COLOURS[0], height=0.66)
        for place, name in zip(places, names, strict=True):
            if intervals and name in intervals:
                ax.plot(
                    intervals[name], [place, place], color="#1a1a1a", linewidth=1.6, marker="|", markersize=9
                )
        ax.set_yticks(places, names)
        ax.grid(False, axis="y")
        _references(ax, reference, horizontal=False)
        _logarithmic(ax, log)
        ax.set_xlabel(xlabel)
        _title(ax, title)
        if reference:
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(3, len(reference)))
    return figure


def scores(
    tables: Mapping[str, Iterable],
    *,
    alt: str,
    columns: Mapping[str, str] = SCORE_TITLES,
    title: str | None = None,
) -> Figure:
    """Tables of schemes side by side: one panel a score, one line a scheme, one mark a table.

    Parameters
    ----------
    tables
        name -> the rows of one comparison, each with ``scheme`` and the scores as attributes
        (``posgeom.encodings.comparison.Comparison``). The lines are in the order of the first table.
    columns
        score -> the title of its panel. Raw stress is drawn on a logarithmic axis from 0.01, with what is
        smaller at its edge, and a dashed line at 1, where no encoding at all is; the panel of scaled stress
        has a dotted line at each table's simplex, which holds no information.

    A score without a value (NaN) has no mark. ``ValueError`` without a table or a row.
    """
    tables = {name: list(rows) for name, rows in tables.items()}
    names = list(dict.fromkeys(row.scheme for rows in tables.values() for row in rows))
    if not names:
        raise ValueError("tables hold no row: there is no scheme to draw")
    size = (WIDTH, 1.3 + 0.3 * len(names) + 0.25 * (len(tables) > 3))
    figure, axes = canvas(1, len(columns), alt=alt, size=size, sharey=True)
    places = {name: len(names) - 1 - k for k, name in enumerate(names)}
    spread = np.linspace(0.22, -0.22, len(tables)) if len(tables) > 1 else [0.0]
    with rc_context(STYLE):
        for ax, (score, heading) in zip(axes[0], columns.items(), strict=True):
            for k, (table, rows) in enumerate(tables.items()):
                colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
                values = np.array([getattr(row, score) for row in rows], dtype=float)
                height = np.array([places[row.scheme] for row in rows]) + spread[k]
                if score == "raw_stress":
                    values = np.maximum(values, LEAST_STRESS)
                ax.plot(values, height, marker, color=colour, markersize=5, label=table, clip_on=False)
                if score == "scaled_stress":
                    for row in rows:
                        if row.scheme == "simplex":
                            ax.axvline(row.scaled_stress, color=colour, linestyle=":", linewidth=1.2)
            if score == "raw_stress":
                ax.axvline(1.0, color="#1a1a1a", linestyle="--", linewidth=1.0)
                ax.set_xscale("log")
                ax.set_xlim(left=LEAST_STRESS)
            elif score in ("scaled_stress", "violation_rate"):
                ax.set_xlim(left=0)
            ax.set_title(heading, fontsize=11)
        axes[0, 0].set_yticks(list(places.values()), list(places))
        axes[0, 0].set_ylim(-0.6, len(names) - 0.4)
        if title:
            figure.suptitle(title, x=0.0, ha="left", fontsize=12)
        if len(tables) > 1:
            figure.legend(
                *axes[0, 0].get_legend_handles_labels(), loc="outside lower right", ncols=min(4, len(tables))
            )
    return figure


def shepard(
    E: np.ndarray, D: np.ndarray, *, alt: str, title: str | None = None, ax: Axes | None = None
) -> Figure:
    """Shepard diagram: each pair of positions at its corpus distance and its distance in the encoding.

    Pairs on the solid diagonal are reproduced exactly; the dashed line is where they would lie if only the
    scale of the encoding were wrong.
    """
    E, D = checks.square_dissimilarity(E, "E"), checks.square_dissimilarity(D, "D")
    checks.same_shape(E, D)
    if len(D) < 2:
        raise ValueError("D has one position, and a Shepard diagram shows pairs: it needs two or more")
    figure, ax = _axes(ax, alt, size=(5.0, 4.6))
    with rc_context(STYLE):
        upper = np.triu_indices(len(D), 1)
        d, e = D[upper], E[upper]
        density = min(1.0, 3000 / len(d))
        ax.scatter(d, e, s=7, alpha=0.15 + 0.55 * density, linewidths=0, rasterized=True)
        end = d.max() * 1.04
        ax.plot([0, end], [0, end], color="#1a1a1a", linewidth=1.2, label="exact")
        scale = optimal_scale(E, D)
        ax.plot(
            [0, end], [0, end / scale], color=COLOURS[1], linestyle="--", linewidth=1.2, label="best scale"
        )
        ax.set(xlabel="distance in the corpus", ylabel="distance in the encoding", xlim=(0, end))
        ax.set_ylim(0, max(e.max() * 1.04, 1e-12))
        _title(ax, title)
        ax.legend(loc="upper left")
    return figure


def spectrum(
    eigenvalues: Mapping[str, np.ndarray] | np.ndarray,
    *,
    alt: str,
    title: str | None = None,
    log: str = "y",
    ax: Axes | None = None,
) -> Figure:
    """Positive eigenvalues in descending order, one spectrum or several by name."""
    spectra = eigenvalues if isinstance(eigenvalues, Mapping) else {"": eigenvalues}
    figure, ax = _axes(ax, alt)
    with rc_context(STYLE):
        for k, (name, values) in enumerate(spectra.items()):
            values = np.sort(np.asarray(values, dtype=float))[::-1]
            values = values[values > 1e-10 * values.max(initial=0.0)]
            marker = MARKERS[k % len(MARKERS)] if len(values) <= 80 else None
            ax.plot(np.arange(1, len(values) + 1), values, label=name, marker=marker, markersize=3.5)
        _logarithmic(ax, log)
        ax.set(xlabel="index of the eigenvalue", ylabel="eigenvalue")
        _title(ax, title)
        if len(spectra) > 1:
            ax.legend()
    return figure


def trajectory(points: np.ndarray, *, alt: str, title: str | None = None, ax: Axes | None = None) -> Figure:
    """The positions as a path in the plane of the first two columns, coloured from first to last."""
    points = checks.points(points, "points")
    if points.shape[1] < 2:
        raise ValueError(f"points has {points.shape[1]} columns, but a path in the plane needs two")
    figure, ax = _axes(ax, alt, size=(5.6, 4.4))
    with rc_context(STYLE):
        x, y = points[:, 0], points[:, 1]
        ax.plot(x, y, color="#9a9a9a", linewidth=0.9, zorder=1)
        dots = ax.scatter(x, y, c=np.arange(len(points)), cmap=POSITION_MAP, s=24, zorder=2, linewidths=0)
        for i in sorted({0, len(points) - 1}):
            ax.annotate(str(i), (x[i], y[i]), xytext=(5, 5), textcoords="offset points", fontsize=10)
        ax.set(xlabel="first axis", ylabel="second axis")
        ax.set_aspect("equal", adjustable="datalim")
        _title(ax, title)
        figure.colorbar(dots, ax=ax, label="position", shrink=0.9)
    return figure


def _axes(ax: Axes | None, alt: str, size: tuple[float, float] | None = None) -> tuple[Figure, Axes]:
    """The axes to draw on: those given (their figure has its own alt text), or those of a new figure."""
    if ax is not None:
        return ax.figure, ax
    figure, axes = canvas(alt=alt, size=size)
    return figure, axes[0, 0]


def _title(ax: Axes, title: str | None) -> None:
    if title:
        ax.set_title(title)


def _references(ax: Axes, reference: Mapping[str, float] | None, *, horizontal: bool) -> None:
    for k, (name, value) in enumerate((reference or {}).items()):
        draw = ax.axhline if horizontal else ax.axvline
        draw(value, color="#1a1a1a", linestyle=("--", ":", "-.")[k % 3], linewidth=1.2, label=name)


def _logarithmic(ax: Axes, log: str) -> None:
    if log not in ("", "x", "y", "xy"):
        raise ValueError(f"log must be '', 'x', 'y' or 'xy', not {log!r}")
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
