"""The verdicts follow from the records: each rule is tried on other numbers, and sees the verdict flip."""

from __future__ import annotations

import re

import nbformat
import pytest
import yaml

from tools import build, verdicts

ROOT = build.ROOT
CLAIMS = verdicts.load_claims(ROOT / "book" / "claims.yml")
FLIPS = [(claim, flip) for claim in CLAIMS for flip in claim.flips]
# Every claim of the paper that the book is about, with the verdict that its science expects.
VERDICTS = {
    "T1": "qualified",
    "T4": "refuted",
    "C5": "qualified",
    "P6 optimality": "refuted",
    "P6 curvature": "refuted",
    "S": "qualified",
    "R8": "qualified",
    "A1": "qualified",
    "E1": "qualified",
    "E2": "qualified",
    "E3": "qualified",
    "E4": "open",
    "O1": "refuted",
}


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, object]]:
    """What the chapters record, as tests/expected.yml has it: the rules can be tried without running them."""
    sections = yaml.safe_load((ROOT / "tests" / "expected.yml").read_text(encoding="utf-8"))
    return {
        f"c{name[:2]}": {key: entry["value"] for key, entry in section.items() if key != "unchecked"}
        for name, section in sections.items()
    }


def test_each_claim_has_its_verdict(expected):
    assert {claim.id: verdicts.verdict(claim, expected) for claim in CLAIMS} == VERDICTS


@pytest.mark.parametrize(("claim", "flip"), FLIPS, ids=lambda value: getattr(value, "id", ""))
def test_a_changed_record_changes_the_verdict(claim, flip, expected):
    before = verdicts.verdict(claim, expected)
    after = verdicts.verdict(claim, verdicts.changed(expected, flip.records))
    assert after == flip.verdict != before


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_verdict_that_a_claim_can_get_is_reached(claim, expected):
    reached = {verdicts.verdict(claim, expected), *(flip.verdict for flip in claim.flips)}
    assert reached == {word for word, _ in claim.rules} == set(claim.reading)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_changes_only_records_that_its_rules_use(claim):
    used = " ".join(condition for _, condition in claim.rules)
    for flip in claim.flips:
        assert all(re.search(rf"\b{re.escape(name)}\b", used) for name in flip.records)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_no_record_of_a_claim_needs_the_text_of_sst2(claim):
    sections = yaml.safe_load((ROOT / "tests" / "expected.yml").read_text(encoding="utf-8"))
    by_chapter = {f"c{name[:2]}": section for name, section in sections.items()}
    assert not [name for chapter, name in claim.names if "needs" in by_chapter[chapter][name]]


def test_the_runs_lead_to_the_same_verdicts(book, runs):
    assert not [name for name, run in runs.items() if run.error]
    records = verdicts.load_records(book.build / "records")
    assert {claim.id: verdicts.verdict(claim, records) for claim in CLAIMS} == VERDICTS


def test_each_claim_that_a_chapter_judges_is_on_the_page():
    known = {claim.id.split()[0] for claim in CLAIMS}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        table = text.split("## Verdict")[1] if "## Verdict" in text else ""
        named = set(re.findall(r"^\| ([A-Z]\d?),", table, re.M))
        assert named <= known, path.name


def test_the_page_has_every_claim_with_its_numbers(expected):
    titles = {f"{number:02d}": f"{number:02d}_chapter" for number in range(1, 13)}
    page = verdicts.render(CLAIMS, expected, titles)
    assert all(f"## {claim.id}: {claim.title}" in page for claim in CLAIMS)
    assert f"stress {expected['c05']['three_words_cmds']:.4f}" in page
    other = verdicts.render(CLAIMS, verdicts.changed(expected, {"c05.rank_of_chance": 12}), titles)
    assert "give 12 in the setting" in other and "give 12 in the setting" not in page


def test_a_page_without_the_marker_is_an_error(expected):
    with pytest.raises(verdicts.ClaimError, match="must hold the line"):
        verdicts.fill("# Verdicts\n", CLAIMS, expected, {})


def test_a_record_that_is_missing_is_named(expected):
    lacking = {chapter: dict(values) for chapter, values in expected.items()}
    del lacking["c05"]["rank_of_chance"]
    claim = next(claim for claim in CLAIMS if claim.id == "R8")
    with pytest.raises(verdicts.ClaimError, match=r"R8: no chapter has recorded c05\.rank_of_chance"):
        verdicts.verdict(claim, lacking)


GOOD = """
- id: X
  title: t
  paper: p
  evidence: ["{c01.a}"]
  rules: [{supported: c01.a > 1}, {refuted: true}]
  reading: {supported: s, refuted: r}
  flips: []
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  paper: p\n", "", "keys of a claim"),
        ("supported: c01.a > 1", "maybe: c01.a > 1", "a verdict is one of"),
        ("{refuted: true}", "{refuted: c01.a < 1}", "must be true"),
        (", refuted: r", "", "no reading for the verdict refuted"),
        ("  flips: []\n", "  flips: []\n" + GOOD, "more than one claim"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_an_error(old, new, says, tmp_path):
    path = tmp_path / "claims.yml"
    path.write_text(GOOD, encoding="utf-8")
    assert [claim.id for claim in verdicts.load_claims(path)] == ["X"]
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(verdicts.ClaimError, match=says):
        verdicts.load_claims(path)


def test_a_rule_that_is_no_expression_is_an_error(tmp_path):
    path = tmp_path / "claims.yml"
    path.write_text(GOOD.replace("c01.a > 1", "c01.a >"), encoding="utf-8")
    (claim,) = verdicts.load_claims(path)
    with pytest.raises(verdicts.ClaimError, match="X: the rule 'c01.a >' is no expression"):
        verdicts.verdict(claim, {"c01": {"a": 1}})
