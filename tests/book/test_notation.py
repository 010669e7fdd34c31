"""The notation page: each symbol of the book is there, and each symbol there is of the book."""

from __future__ import annotations

import json

import pytest

from tools import build, notation
from tools.notation import Listed, Row, faults, formulas, symbols

PAGE = (build.ROOT / "book" / "notation.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def used():
    return notation.used_symbols()


def test_each_symbol_of_the_book_is_on_the_notation_page_and_nothing_else(used):
    found = faults(used, notation.listed(PAGE))
    assert not found, "\n".join(["mend book/notation.md (python tools/notation.py):", *found])


def test_the_book_has_many_symbols_and_every_chapter_some(used):
    chapters = {name for name in used if name.startswith("notebooks/")}
    assert len(chapters) >= 12 and all(used[name] for name in chapters)
    assert {r"\mu", "d_{H}", r"\hat{\mu}", r"P_{\infty}", "F"} <= set().union(*used.values())
    # From the claims, which the page of verdicts is made of.
    assert r"\Delta" in used["book/verdicts"]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (r"d_{ij}^2 = \norm{x_i - x_j}^2", {"d", "i", "j", "x", r"\rVert"}),
        (r"d_H(i, j) \le \dH(0, 1)", {"d_{H}", "i", "j"}),
        (r"d_{FR} = 2 \arccos \mathrm{BC}", {"d_{FR}", r"\operatorname{BC}"}),
        (r"\hat\mu_{iv}, \hat{\mu}, \hat \nu", {r"\hat{\mu}", r"\hat{\nu}", "i", "v"}),
        (r"D^2_{c,ij} = D^2_c - F_{ij}", {"D_{c}", "F", "i", "j"}),
        (r"P_\infty, R^*, \nu^\circ, W_q", {r"P_{\infty}", "R^{*}", r"\nu^{\circ}", "W_{q}"}),
        (r"w'_{\pi(k)} = h'^{(\ell+1)}", {"w", r"\pi", "k", "h", r"\ell"}),
        (r"f_{P, \beta}(\pi x)", {"f", "P", r"\beta", r"\pi", "x"}),
        (r"\tfrac12 \sum_{i<j} \bigl( \cos x \bigr)", {"i", "j", "x"}),
        (r"W^+ \mathbf 1 \mathbf{1}^\top, (A B)^\top", {"W", "^{+}", r"\mathbf{1}", r"^{\top}", "A", "B"}),
        (r"\E\,[X] \ge \text{the mean of } n", {r"\mathbb{E}", "X", "n"}),
        (r"\softmax(z) = \operatorname{softmax}(z)", {r"\operatorname{softmax}", "z"}),
        (r"\begin{pmatrix} a & 1 \\ 0 & b \end{pmatrix}", {"a", "b"}),
        (r"b^{-2k/d_H}", {"b", "k", "d_{H}"}),
    ],
)
def test_symbols_of_a_formula(formula, expected):
    assert symbols(formula) == expected


def test_symbols_without_indices_are_those_that_a_row_declares():
    assert symbols(r"W_q, \bar\theta_{(-1)}, g_a", indices=False) == {"W_{q}", r"\bar{\theta}", "g"}


def test_formulas_are_found_wherever_markdown_has_them():
    text = r"""
# A title with $a_1$

Text with $a_2$ and {math}`a_3`, not `$b_1$` and not \$b_2\$.

$$ a_4 $$ (eq-four)

```{prf:theorem} On $a_5$
:label: thm

A statement with $a_6$:

$$
a_7
$$
```

:::{admonition} About $a_8$
:class: tip
Text.
:::

```{math}
:label: eq-nine
a_9
```

| head | $a_{10}$ |
|---|---|
| cell | $a_{11}$ |

term
: a definition with $a_{12}$

\begin{align}
a_{13}
\end{align}

```python
price = "$b_3$"
```
"""
    found = " ".join(formulas(text))
    assert {f"a_{number}" for number in range(1, 10)} <= set(found.split())
    assert {f"a_{{{number}}}" for number in range(10, 14)} <= set(found.split())
    assert "b_" not in found


def test_the_caption_of_a_figure_belongs_to_its_page(tmp_path):
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "outputs": [], "source": "q = '$b$'"}
    cell["metadata"] = {"mystnb": {"figure": {"name": "fig", "caption": "Over $a$."}}}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "one.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    assert "".join(notation.texts(tmp_path, "one")) == "Over $a$."


USED = {"one": {"a", "b"}, "two": {"a", "c"}}


@pytest.mark.parametrize(
    ("used", "rows", "local", "fault"),
    [
        (USED, [("a", "one", "")], {"one": "b"}, "two uses c, which is not listed"),
        (USED, [("a", "one", "")], {"one": "b", "two": "cd"}, "d is listed for two, which does not use it"),
        (USED, [("a", "one", ""), ("z", "one", "")], {"one": "b", "two": "c"}, "z is said to come from one"),
        (USED, [("a", "", "")], {"one": "b", "two": "c"}, "a is said to come from no page"),
        (USED, [("a", "one", "")], {"one": "b", "two": "ac"}, "a has a meaning of its own in two"),
        (
            USED,
            [("a", "one", "two")],
            {"one": "b", "two": "c"},
            "a: see two, it says, which has no row for it",
        ),
        (USED, [("a", "one", "")], {"one": "b", "two": "c", "six": "a"}, "six has a table and is no page"),
    ],
)
def test_each_fault_is_found(used, rows, local, fault):
    listed = Listed(
        [Row(frozenset(own), first, frozenset([other] if other else [])) for own, first, other in rows],
        {page: set(own) for page, own in local.items()},
    )
    assert any(fault in line for line in faults(used, listed))


def test_a_page_without_faults_has_none():
    rows = [Row(frozenset("a"), "one", frozenset(["two"]))]
    assert faults(USED, Listed(rows, {"one": {"b"}, "two": {"a", "c"}})) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("| $F$ |", "| F |", "uses F, which is not listed"),
        ("| $F$ |", r"| $F$, $\aleph$ |", r"\aleph is said to come from"),
        ("; but see", " and", "has a meaning of its own in"),
        (
            "## Noise",
            "## Other\n\n| s | m |\n|---|---|\n| $\\beth$ | two | \n\n## Noise",
            r"\beth is said to come",
        ),
    ],
)
def test_a_change_of_the_page_is_seen(used, old, new, fault):
    assert old in PAGE
    found = faults(used, notation.listed(PAGE.replace(old, new, 1)))
    assert any(fault in line for line in found)


def test_a_new_symbol_in_a_page_is_seen(used):
    more = used | {"book/index": used["book/index"] | symbols(r"\daleth_i")}
    assert r"book/index uses \daleth, which is not listed" in faults(more, notation.listed(PAGE))
