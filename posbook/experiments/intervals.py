"""How sure a mean over a few seeds is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

__all__ = ["mean_and_interval"]


def mean_and_interval(values: ArrayLike, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis, with Student's confidence interval for it.

    ``values`` is (k, ...), one row a seed or draw, k at least 2; returns mean, lower and upper end, each of
    shape (...). The interval is mean ± t · s/√k with the ``level`` quantile of Student's t at k - 1 degrees
    of freedom and s the sample standard deviation (Student 1908); it supposes independent, nearly normal
    rows.
    Raises ``ValueError`` for fewer than two rows, values that are not finite, or a level outside (0, 1).
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 0 or len(values) < 2:
        raise ValueError("values must have at least two rows: one run says nothing about its spread")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite: a run that diverged has no place in a mean")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    reach = student_t.ppf(0.5 + level / 2, len(values) - 1) * error
    return mean, mean - reach, mean + reach
