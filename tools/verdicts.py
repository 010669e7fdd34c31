"""The verdicts of the book: from the claims in book/claims.yml and the numbers that the chapters recorded.

    python tools/verdicts.py     print the verdict of each claim on the runs in _build/records

A claim has rules, ``verdict: condition``, tried in their order; the first condition that holds decides. A
condition is a Python expression in which ``c05.smacof_imdb_d5`` is the record of that name of chapter 5.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, SimpleNamespace

import yaml

VERDICTS = ("supported", "qualified", "refuted", "open")
KEYS = ("id", "title", "paper", "evidence", "rules", "reading", "flips")
MARKER = "<!-- the verdicts stand here -->"
RECORD = re.compile(r"\bc(\d\d)\.(\w+)")

Records = Mapping[str, Mapping[str, object]]  # chapter, as "c05" -> name of the record -> value


class ClaimError(ValueError):
    """A claim that cannot be judged; the message names it and what it lacks."""


@dataclass(frozen=True)
class Flip:
    """Other values for some records, and the verdict that they would lead to."""

    records: Mapping[str, object]
    verdict: str
    says: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the sentences that put numbers beside it, and the rules that judge them."""

    id: str
    title: str
    paper: str
    evidence: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]
    reading: Mapping[str, str]
    flips: tuple[Flip, ...]

    @property
    def names(self) -> set[tuple[str, str]]:
        """(chapter, record) of every number that the claim uses."""
        texts = [*self.evidence, *(condition for _, condition in self.rules), *self.reading.values()]
        return {(f"c{chapter}", name) for text in texts for chapter, name in RECORD.findall(text)}

    @property
    def chapters(self) -> list[str]:
        """The numbers of the chapters that it rests on, in order."""
        return sorted({chapter.removeprefix("c") for chapter, _ in self.names})


def load_claims(path: Path) -> list[Claim]:
    """The claims of a file, each complete and each with a rule that always holds at its end.

    Raises
    ------
    ClaimError
        for a key that is missing or unknown, a verdict that does not exist, two claims of one id, or a claim
        whose last rule is not ``true``.
    """
    claims = [_claim(entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))]
    twice = {claim.id for claim in claims if sum(other.id == claim.id for other in claims) > 1}
    if twice:
        raise ClaimError(f"{path.name}: more than one claim of the id {', '.join(sorted(twice))}")
    return claims


def _claim(entry: Mapping[str, object]) -> Claim:
    name = entry.get("id", "a claim without id")
    if set(entry) != set(KEYS):
        raise ClaimError(f"{name}: the keys of a claim are {', '.join(KEYS)}, not {', '.join(entry)}")
    rules = tuple((verdict, str(condition)) for rule in entry["rules"] for verdict, condition in rule.items())
    flips = tuple(Flip(flip["records"], flip["verdict"], flip["says"]) for flip in entry["flips"])
    if rules[-1][1] != "True":
        raise ClaimError(f"{name}: the condition of the last rule must be true, so that there is a verdict")
    said = {verdict for verdict, _ in rules} | {flip.verdict for flip in flips}
    if unknown := said - set(VERDICTS):
        raise ClaimError(f"{name}: a verdict is one of {', '.join(VERDICTS)}, not {', '.join(unknown)}")
    if missing := {verdict for verdict, _ in rules} - set(entry["reading"]):
        raise ClaimError(f"{name}: no reading for the verdict {', '.join(sorted(missing))}")
    return Claim(
        name, entry["title"], entry["paper"], tuple(entry["evidence"]), rules, entry["reading"], flips
    )


def load_records(folder: Path) -> dict[str, dict[str, object]]:
    """What each chapter recorded in its last run: the files ``NN_name.json`` of a folder."""
    entries = {
        f"c{path.name[:2]}": json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("[0-9][0-9]_*.json"))
    }
    return {
        chapter: {name: entry["value"] for name, entry in named.items()} for chapter, named in entries.items()
    }


def verdict(claim: Claim, records: Records) -> str:
    """The verdict of the first rule whose condition holds.

    Raises
    ------
    ClaimError
        for a record that the claim uses and no chapter has.
    """
    spaces = _spaces(claim, records)
    return next(word for word, condition in claim.rules if eval(_compiled(claim, condition), {}, spaces))


def _compiled(claim: Claim, condition: str) -> CodeType:
    try:
        return compile(condition, f"claims.yml, {claim.id}", "eval")
    except SyntaxError as error:
        raise ClaimError(f"{claim.id}: the rule {condition!r} is no expression: {error.msg}") from error


def _spaces(claim: Claim, records: Records) -> dict[str, SimpleNamespace]:
    lacking = sorted(
        f"{chapter}.{name}" for chapter, name in claim.names if name not in records.get(chapter, {})
    )
    if lacking:
        raise ClaimError(f"{claim.id}: no chapter has recorded {', '.join(lacking)}")
    return {chapter: SimpleNamespace(**values) for chapter, values in records.items()}


def changed(records: Records, changes: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The records with other values for some, named as in ``c05.rank_sst2``."""
    result = {chapter: dict(values) for chapter, values in records.items()}
    for name, value in changes.items():
        chapter, _, record = name.partition(".")
        result[chapter][record] = value
    return result


# --- the page -------------------------------------------------------------------------------------------


def render(claims: Sequence[Claim], records: Records, titles: Mapping[str, str]) -> str:
    """The verdicts as MyST: a table of all, then one section a claim. ``titles``: "05" -> its page."""
    rows = [
        f"| [{claim.id}](#{_anchor(claim)}) | {claim.title} | **{verdict(claim, records)}** "
        f"| {', '.join(_link(chapter, titles) for chapter in claim.chapters)} |"
        for claim in claims
    ]
    table = ["| claim | what it is about | verdict | chapters |", "|---|---|---|---|", *rows]
    return "\n".join([*table, "", *(_section(claim, records) for claim in claims)])


def _section(claim: Claim, records: Records) -> str:
    spaces = _spaces(claim, records)
    word = verdict(claim, records)
    lines = [
        f"({_anchor(claim)})=",
        f"## {claim.id}: {claim.title}",
        "",
        f"*The paper reports:* {claim.paper}",
        "",
        *(f"- {sentence.format(**spaces)}" for sentence in claim.evidence),
        "",
        f"**{word.capitalize()}.** {claim.reading[word].format(**spaces)}",
        "",
        "```{dropdown} The rule, and what would change the verdict",
        "The first condition that holds decides.",
        "",
        *(f"- *{each}* if `{condition}`" for each, condition in claim.rules[:-1]),
        f"- *{claim.rules[-1][0]}* otherwise",
        "",
        *(f"It would be *{flip.verdict}* {flip.says}." for flip in claim.flips),
        "```",
        "",
    ]
    return "\n".join(lines)


def _anchor(claim: Claim) -> str:
    return "verdict-" + re.sub(r"\W+", "-", claim.id.lower())


def _link(chapter: str, titles: Mapping[str, str]) -> str:
    return f"{{doc}}`{int(chapter)} <../notebooks/{titles[chapter]}>`"


def fill(frame: str, claims: Sequence[Claim], records: Records, titles: Mapping[str, str]) -> str:
    """The page of verdicts: its frame, with the verdicts where the marker stands."""
    if frame.count(MARKER) != 1:
        raise ClaimError(f"the page of verdicts must hold the line {MARKER} once")
    return frame.replace(MARKER, render(claims, records, titles))


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    records = load_records(root / "_build" / "records")
    for claim in load_claims(root / "book" / "claims.yml"):
        print(f"{claim.id:16} {verdict(claim, records)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
