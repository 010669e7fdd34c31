"""The figures that a reader moves: their numbers, their bundle, and each moved by mouse and by keyboard."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from bs4 import BeautifulSoup

from posbook import interactive
from posgeom.geometry.distances import euclidean_distances
from posgeom.geometry.mds import classical_mds
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import optimal_scale, stress
from tools import check_site

WHY_NOT = check_site.why_not()
in_a_browser = pytest.mark.skipif(bool(WHY_NOT), reason=f"no browser: {WHY_NOT}")

rng = np.random.default_rng(3)
A, B = (euclidean_distances(rng.normal(size=(20, 6))) for _ in range(2))
E = euclidean_distances(5 * rng.normal(size=(20, 3)))
FIGURES = {
    "map": interactive.mds_map(
        {"one": {"as counted": A, "noise removed": B}, "two": {"as counted": B}}, alt="M"
    ),
    "scale": interactive.stress_at_scale({"wide": E, "line": A}, B, alt="S"),
    "triples": interactive.violation_triples({"first": A, "second": B}, alt="T"),
}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_a_figure_brings_its_twin_its_words_and_nothing_from_elsewhere(figure):
    data, metadata = figure._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG") and metadata["image/png"]["alt"] == figure.alt
    still = BeautifulSoup(data["text/html"], "html.parser")
    assert still.find("img")["alt"] == figure.alt
    assert not still.select("select, input, button, svg, p"), "without its script only the picture is shown"
    made = re.search(r', ("<div .*")\);\}</script>$', data["text/html"])[1]
    live = BeautifulSoup(json.loads(made), "html.parser")
    assert live.find("p", attrs={"aria-live": "polite"}) and live.select("select, input")
    for control in live.select("select, input"):
        assert live.find("label", attrs={"for": control["id"]}), control
    assert re.findall(r"https?://[^\"]+", data["text/html"]) == ["http://www.w3.org/2000/svg"]
    assert len(data["text/html"]) < 300_000
    assert figure._repr_mimebundle_() == figure._repr_mimebundle_()


def test_the_numbers_are_those_of_the_package():
    found = FIGURES["map"].data["corpora"]["one"]["noise removed"]["stress"]
    wanted = [stress(euclidean_distances(classical_mds(B, d).points), B) for d in (1, 4)]
    assert np.allclose([found[0], found[3]], wanted, rtol=1e-3)
    wide = FIGURES["scale"].data["schemes"]["wide"]
    for s in (0.1, 1.0, 3.0):
        assert np.isclose(1 - 2 * s * wide["slope"] + s**2 * wide["square"], stress(s * E, B))
    assert FIGURES["triples"].data["matrices"]["second"]["rate"] == violation_rate(B)


def test_what_cannot_be_drawn_is_refused_by_name():
    with pytest.raises(ValueError, match="corpora is empty"):
        interactive.mds_map({}, alt="M")
    with pytest.raises(ValueError, match=r"schemes\['none'\] is zero"):
        interactive.stress_at_scale({"none": np.zeros((20, 20))}, A, alt="S")
    with pytest.raises(ValueError, match="one size for all"):
        interactive.violation_triples({"a": A, "b": A[:9, :9]}, alt="T")
    with pytest.raises(ValueError, match="3 to 64"):
        interactive.violation_triples({"a": A[:2, :2]}, alt="T")
    with pytest.raises(ValueError, match="alt is empty"):
        interactive.violation_triples({"a": A}, alt=" ")


@pytest.fixture(scope="module")
def browser():
    with check_site.browser() as opened:
        yield opened


@pytest.fixture
def tab(browser, request):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    errors = []
    page.on("pageerror", lambda error: errors.append(error.message))
    text = FIGURES[request.param].html
    page.set_content(f"<!DOCTYPE html><html lang='en'><body style='background:#111'>{text}</body></html>")
    page.evaluate(check_site.SCRIPT)
    assert page.evaluate("checkSite.overflow()") is None
    yield page
    assert errors == []
    page.close()


def words(tab) -> str:
    return tab.inner_text(".posgeom-words")


def control(tab, name: str):
    return tab.locator(f'[data-name="{name}"]')


def click_at(slider, share: float) -> None:
    box = slider.bounding_box()
    slider.click(position={"x": box["width"] * share, "y": box["height"] / 2})


@in_a_browser
@pytest.mark.parametrize("tab", ["map"], indirect=True)
def test_the_map_follows_mouse_and_keyboard(tab):
    def shown() -> float:
        return float(re.search(r"stress of ([\d.e-]+)\.", words(tab))[1])

    def wanted(D, d) -> float:
        return pytest.approx(stress(euclidean_distances(classical_mds(D, d).points), D), rel=1e-3)

    assert shown() == wanted(A, 2)
    control(tab, "axes").focus()
    tab.keyboard.press("ArrowRight")
    assert shown() == wanted(A, 3)
    click_at(control(tab, "axes"), 0.01)
    assert "1 axis" in words(tab) and shown() == wanted(A, 1)
    control(tab, "treatment").focus()
    tab.keyboard.press("n")
    assert "noise removed" in words(tab) and shown() == wanted(B, 1)
    control(tab, "corpus").select_option("two")
    assert words(tab).startswith("two, as counted") and shown() == wanted(B, 1)


@in_a_browser
@pytest.mark.parametrize("tab", ["scale"], indirect=True)
def test_the_scale_follows_mouse_and_keyboard(tab):
    def shown() -> float:
        return float(re.search(r": stress ([\d.e+-]+)\. ", words(tab))[1])

    assert shown() == pytest.approx(stress(E, B), rel=1e-3)
    control(tab, "scale").focus()
    tab.keyboard.press("ArrowLeft")
    assert shown() == pytest.approx(stress(10**-0.01 * E, B), rel=1e-3)
    control(tab, "best").click()
    assert shown() == pytest.approx(stress(E, B, scale="optimal"), rel=2e-3)
    assert f"Best scale {optimal_scale(E, B):.3g}" in words(tab)
    click_at(control(tab, "scale"), 0.5)
    moved = 10 ** float(control(tab, "scale").input_value())
    assert shown() == pytest.approx(stress(moved * E, B), rel=1e-3)
    control(tab, "scheme").select_option("line")
    assert shown() == pytest.approx(stress(moved * A, B), rel=1e-3)


@in_a_browser
@pytest.mark.parametrize("tab", ["triples"], indirect=True)
def test_triples_are_picked_by_mouse_and_keyboard(tab):
    assert f"{100 * violation_rate(A):.2f} %" in words(tab)
    control(tab, "i").focus()
    tab.keyboard.press("Home")
    control(tab, "j").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    control(tab, "k").focus()
    tab.keyboard.press("End")
    assert f"D[0,1] = {A[0, 1]:.4f} at lag 1, D[0,19] = {A[0, 19]:.4f} at lag 19" in words(tab)
    assert ("A violation" in words(tab)) == (A[0, 1] > A[0, 19])
    tab.locator('[data-row="4"][data-column="5"]').click()
    tab.locator('[data-row="4"][data-column="9"]').click()
    assert "D[4,5]" in words(tab) and "D[4,9]" in words(tab)
    assert ("A violation" in words(tab)) == (A[4, 5] > A[4, 9])
    control(tab, "j").fill("4")
    assert "must differ" in words(tab)
    control(tab, "matrix").select_option("second")
    assert f"{100 * violation_rate(B):.2f} %" in words(tab)


@in_a_browser
@pytest.mark.parametrize("tab", list(FIGURES), indirect=True)
def test_axe_finds_nothing_serious_and_the_print_has_the_twin(tab):
    tab.evaluate(check_site.axe_source())
    found = tab.evaluate("() => axe.run(document.querySelector('.posgeom-moves'))")["violations"]
    assert [one["id"] for one in found if one["impact"] in check_site.IMPACTS] == []
    assert tab.is_visible("svg") and not tab.is_visible(".posgeom-twin")
    tab.emulate_media(media="print")
    assert tab.is_visible(".posgeom-twin") and not tab.is_visible(".posgeom-live")
