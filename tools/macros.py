r"""The macros of the site's formulas, expanded into what every renderer knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
COMMAND = r"\\[A-Za-z]+"

Macros = Mapping[str, "str | list"]


@cache
def of_the_site() -> Macros:
    """Name -> meaning, or [meaning, 1] for a macro with an argument, as ``_config.yml`` has them."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]


def expand(formula: str, macros: Macros | None = None) -> str:
    """The formula with macros replaced by what they stand for; the site's, unless others are given."""
    for name, meaning in (of_the_site() if macros is None else macros).items():
        body = meaning if isinstance(meaning, str) else meaning[0]
        argument = "" if isinstance(meaning, str) else rf"\s*(?P<argument>{BRACES}|{COMMAND}|\w)"
        pattern = re.compile(rf"\\{name}(?![A-Za-z]){argument}")
        while found := pattern.search(formula):
            given = bare(found["argument"]) if argument else ""
            formula = formula[: found.start()] + body.replace("#1", given) + formula[found.end() :]
    return formula


def bare(group: str) -> str:
    """The content of a group in braces, or what stands for one without them."""
    return group[1:-1].strip() if group.startswith("{") else group
