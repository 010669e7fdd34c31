"""Figures that a reader moves: on the page, in Jupyter and in Colab, by mouse or keyboard, without a server.

Each function computes its numbers here and returns an :class:`InteractiveFigure`. As the last expression of a
cell it shows itself as HTML with a script of its own, and as a PNG twin for print and for readers without
scripts. The sentence below the controls says what is seen, and is read out when it changes. The script draws,
and evaluates no more than the closed form that the docstring names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
from collections.abc import Mapping

import numpy as np

from posgeom import checks, figures
from posgeom.geometry.distances import euclidean_distances
from posgeom.geometry.mds import classical_mds
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import optimal_scale, stress

__all__ = ["InteractiveFigure", "mds_map", "stress_at_scale", "violation_triples"]

MOST_AXES = 12
LEAST_LOG, MOST_LOG = -3.0, 2.0


class InteractiveFigure:
    """HTML that moves, and a PNG that does not, with the same words for those who see neither."""

    def __init__(self, kind: str, data: dict, controls: str, twin: figures.PageFigure) -> None:
        self.alt = twin.alt
        self.data = data
        self._png = twin.png()
        text = _in_a_script(data)
        name = "moves-" + hashlib.sha256((kind + text).encode()).hexdigest()[:10]
        # What moves is made by the script: Jupyter leaves scripts out of a stranger's notebook, and
        # controls that do nothing would be left of it.
        live = (
            f'<div class="posgeom-live"><div class="posgeom-controls">{controls}</div>'
            f'<svg role="img" aria-label="{html.escape(self.alt)}" viewBox="0 0 640 330"></svg>'
            '<p class="posgeom-words" aria-live="polite"></p></div>'
        )
        picture = base64.b64encode(self._png).decode()
        self.html = (
            f'<div class="posgeom-moves" id="{name}"><style>{_shipped("interactive.css")}</style>'
            f'<img class="posgeom-twin" alt="{html.escape(self.alt)}" src="data:image/png;base64,{picture}">'
            f"</div><script>{{{_shipped('interactive.js')}"
            f'posgeomFigure(document.getElementById("{name}"), "{kind}", {text}, {_in_a_script(live)});'
            "}</script>"
        ).replace("NAME", name)

    def __repr__(self) -> str:
        return f"InteractiveFigure({self.alt!r})"

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        return {"text/html": self.html, "image/png": self._png}, {"image/png": {"alt": self.alt}}


def mds_map(
    corpora: Mapping[str, Mapping[str, np.ndarray]], *, alt: str, most_axes: int = MOST_AXES
) -> InteractiveFigure:
    """Classical scaling of several corpora, each with and without a correction, and the stress it leaves.

    Parameters
    ----------
    corpora
        Name of a corpus -> name of a treatment (``"as counted"``, ``"noise removed"``) -> ``(n, n)``
        dissimilarities.
    alt
        What the static twin shows: the map of the first corpus under its first treatment.
    most_axes
        The reader chooses from 1 to so many axes; those that do not exist are zero.

    Raises
    ------
    ValueError
        for no corpus or no treatment, or malformed dissimilarities.
    """
    most_axes = checks.positive_int(most_axes, "most_axes")
    _some(corpora, "corpora")
    data = {}
    for name, treatments in corpora.items():
        _some(treatments, f"corpora[{name!r}]")
        data[name] = {}
        for treatment, D in treatments.items():
            D = checks.square_dissimilarity(D, f"corpora[{name!r}][{treatment!r}]")
            points = classical_mds(D, min(most_axes, len(D) - 1)).points
            lost = [stress(euclidean_distances(points[:, :d]), D) for d in range(1, points.shape[1] + 1)]
            plane = np.column_stack([points, np.zeros((len(D), 2))])[:, :2]
            lost += lost[-1:] * (most_axes - len(lost))
            data[name][treatment] = {"points": _short(plane, 4), "stress": _short(lost, 4)}
    first, (label, drawn) = next(iter(data)), next(iter(next(iter(data.values())).items()))
    twin, axes = figures.canvas(1, 2, alt=alt, size=(7.2, 3.4))
    figures.trajectory(np.array(drawn["points"]), alt=alt, title=f"{first}, {label}", ax=axes[0, 0])
    widths = np.arange(1, most_axes + 1)
    stresses = {"stress": np.array(drawn["stress"])}
    figures.lines(widths, stresses, alt=alt, xlabel="axes", ylabel="stress", ax=axes[0, 1])
    treatments = list(dict.fromkeys(treatment for both in data.values() for treatment in both))
    controls = (
        _choice("corpus", "Corpus", data)
        + _choice("treatment", "Distances", treatments)
        + _slider("axes", "Axes", 1, most_axes, 1, min(2, most_axes))
    )
    return InteractiveFigure("map", {"corpora": data}, controls, twin)


def stress_at_scale(schemes: Mapping[str, np.ndarray], D: np.ndarray, *, alt: str) -> InteractiveFigure:
    """The raw stress of each scheme as its scale is moved, with the best scale marked.

    .. math:: 1 - \\frac{2 s \\langle e, d\\rangle - s^2 \\langle e, e\\rangle}{\\langle d, d\\rangle}

    Parameters
    ----------
    schemes
        Name -> ``(n, n)`` dissimilarities of the encoding, not all zero.
    D
        ``(n, n)`` dissimilarities of the corpus.
    alt
        What the static twin shows: the curves of all schemes.

    Raises
    ------
    ValueError
        for no scheme, one of zeros, malformed dissimilarities, or a ``D`` of zeros.
    """
    _some(schemes, "schemes")
    data = {}
    for name, E in schemes.items():
        least, raw, best = stress(E, D, scale="optimal"), stress(E, D), optimal_scale(E, D)
        if not np.any(E):
            raise ValueError(f"schemes[{name!r}] is zero for every pair: no scale changes its stress")
        # (1 - least) = <e, d>^2 / (<e, e> <d, d>), and best = <e, d> / <e, e>.
        slope = (1 - least) / best
        data[name] = {"slope": slope, "square": slope / best, "best": best, "least": least, "raw": raw}
    twin, axes = figures.canvas(alt=alt, size=(7.2, 3.6))
    scale = np.logspace(LEAST_LOG, MOST_LOG, 400)
    curves = {name: 1 - 2 * scale * one["slope"] + scale**2 * one["square"] for name, one in data.items()}
    figures.lines(
        scale,
        curves,
        alt=alt,
        xlabel="scale",
        ylabel="stress",
        reference={"no encoding": 1},
        log="x",
        ax=axes[0, 0],
    )
    axes[0, 0].set_ylim(0, 2)
    controls = _choice("scheme", "Scheme", data) + _slider(
        "scale", "Scale (logarithmic)", LEAST_LOG, MOST_LOG, 0.01, 0
    )
    controls += '<button type="button" data-name="best">Go to the best scale</button>'
    return InteractiveFigure("scale", {"schemes": data}, controls, twin)


def violation_triples(matrices: Mapping[str, np.ndarray], *, alt: str) -> InteractiveFigure:
    """Triples of positions picked on a matrix of distances: does the nearer one lie farther away?

    A triple i, j, k with ``|i - j| < |i - k|`` is a violation if ``D[i, j] > D[i, k]``; the rate over all
    triples is :func:`posgeom.geometry.monotonicity.violation_rate`.

    Parameters
    ----------
    matrices
        Name -> ``(n, n)`` dissimilarities, 3 <= n <= 64, all of one size.
    alt
        What the static twin shows: the first of the matrices.

    Raises
    ------
    ValueError
        for no matrix, malformed ones, different sizes, or n outside 3 to 64.
    """
    _some(matrices, "matrices")
    data = {}
    for name, D in matrices.items():
        D = checks.square_dissimilarity(D, f"matrices[{name!r}]")
        if not 3 <= len(D) <= 64:
            raise ValueError(f"matrices[{name!r}] has {len(D)} positions; 3 to 64 can be picked from")
        data[name] = {"D": _short(D, 6), "rate": violation_rate(D)}
    sizes = {len(one["D"]) for one in data.values()}
    if len(sizes) > 1:
        raise ValueError(f"matrices have {sorted(sizes)} positions: one size for all")
    (n,) = sizes
    first = next(iter(matrices))
    twin = figures.heatmap(matrices[first], alt=alt, title=first)
    controls = _choice("matrix", "Distances", data)
    for name, start in (("i", n // 3), ("j", n // 3 + 1), ("k", min(n // 3 + 3, n - 1))):
        controls += _slider(name, f"Position {name}", 0, n - 1, 1, start)
    return InteractiveFigure("triples", {"matrices": data}, controls, twin)


def _shipped(name: str) -> str:
    return (importlib.resources.files("posbook") / "static" / name).read_text(encoding="utf-8")


def _in_a_script(value: object) -> str:
    # A name of a corpus must not end the script.
    return json.dumps(value, separators=(",", ":")).replace("</", "<\\/")


def _some(mapping: Mapping, name: str) -> None:
    if not mapping:
        raise ValueError(f"{name} is empty: name at least one")


def _short(values: object, digits: int) -> list:
    """The numbers with so many significant digits, as lists."""
    values = np.asarray(values, dtype=float)
    if values.ndim > 1:
        return [_short(row, digits) for row in values]
    return [float(f"{value:.{digits}g}") for value in values]


def _choice(name: str, label: str, options: object) -> str:
    entries = "".join(f"<option>{html.escape(str(option))}</option>" for option in options)
    select = f'<select id="NAME-{name}" data-name="{name}">{entries}</select>'
    return f'<label for="NAME-{name}">{label}</label>{select}'


def _slider(name: str, label: str, low: float, high: float, step: float, value: float) -> str:
    return (
        f'<label for="NAME-{name}">{label}</label><input type="range" id="NAME-{name}" data-name="{name}" '
        f'min="{low}" max="{high}" step="{step}" value="{value}">'
    )
