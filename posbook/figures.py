"""The figures of the pages, in the one style that the report has too; each demands an alternative text."""

from posgeom.figures import (
    COLOURS,
    DISTANCE_MAP,
    MARKERS,
    POSITION_MAP,
    PageFigure,
    bars,
    canvas,
    heatmap,
    lines,
    scores,
    shepard,
    spectrum,
    trajectory,
)

__all__ = [
    "COLOURS",
    "DISTANCE_MAP",
    "MARKERS",
    "POSITION_MAP",
    "PageFigure",
    "bars",
    "canvas",
    "heatmap",
    "lines",
    "scores",
    "shepard",
    "spectrum",
    "trajectory",
]
