"""Texts with a known positional law, for the tests of the diagnostic."""

from __future__ import annotations

import numpy as np

from posgeom.corpora.synthetic import independent
from posgeom.encodings.formulas import power_line


def arc_law(n: int, exponent: float, *, reach: float = 0.8, size: int = 40) -> np.ndarray:
    """Distributions along a short arc, so that distances follow the power line; reach 0 makes them equal."""
    line = power_line(n, exponent)[0]
    angle = reach * line / line[-1]
    first, second = np.zeros(size), np.zeros(size)
    first[: size // 2] = second[size // 2 :] = np.sqrt(2 / size)
    roots = np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second
    return roots**2


def arc_texts(texts: int, n: int, exponent: float, *, rng: int = 0, reach: float = 0.8) -> list[str]:
    """Texts of n words ``w0`` ... whose positions follow a power line."""
    ids = independent(arc_law(n, exponent, reach=reach)).sample(texts, rng)
    return [" ".join(f"w{word}" for word in text) for text in ids]
