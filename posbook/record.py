"""Numbers that the prose quotes and the tests check.

A number in the book is never typed: a cell computes it and calls :func:`record`, which does two things at
once. The page gets it, in the output format that MyST-NB's ``glue`` reads, so prose can write
``{glue:text}`name:.3f```. And the run's file gets it: the JSON file that the environment variable
``POSGEOM_RECORDS`` names maps every recorded name to its value, unit and tolerance.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import numpy as np

__all__ = ["record"]

GLUE_PREFIX = "application/papermill.record/"


def record(
    name: str, value: float | int | bool | str, *, unit: str | None = None, tol: float | None = None
) -> None:
    """Put one value in the page and in the run's JSON.

    Parameters
    ----------
    name
        a Python identifier in lower case, unique in its notebook.
    value
        a number, truth value or string (numpy scalars and arrays of one element count as the number they
        hold).
    unit
        what the number is measured in, e.g. ``"nats"``.
    tol
        the absolute tolerance within which a second run must find the number again.

    Raises
    ------
    ValueError
        for a name that is no lower-case identifier, a value of another kind, NaN or infinity, a negative
        ``tol``.
    """
    if not (isinstance(name, str) and name.isidentifier() and name == name.lower()):
        raise ValueError(f"name must be a lower-case Python identifier such as 'cmds_stress', not {name!r}")
    if tol is not None and not (isinstance(tol, int | float) and math.isfinite(tol) and tol >= 0):
        raise ValueError(f"tol of {name!r} must be a finite number >= 0, not {tol!r}")
    plain = _plain(name, value)
    _append(name, {"value": plain, "unit": unit, "tol": None if tol is None else float(tol)})
    _glue(name, plain)


def _plain(name: str, value: object) -> float | int | bool | str:
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise ValueError(
            f"value of {name!r} must be a number, a truth value or a string, not {type(value).__name__}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"value of {name!r} is {value}: a page cannot quote it")
    return value


def _append(name: str, entry: dict) -> None:
    destination = os.environ.get("POSGEOM_RECORDS")
    if not destination:
        return
    path = Path(destination)
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    entries[name] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def _glue(name: str, value: float | int | bool | str) -> None:
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return
    from IPython.display import display

    # MyST-NB's own glue is not importable in Colab; this is the output format that it reads.
    display(
        {GLUE_PREFIX + "text/plain": str(value)},
        metadata={"scrapbook": {"name": name, "mime_prefix": GLUE_PREFIX}},
        raw=True,
    )
