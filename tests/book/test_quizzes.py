"""The self-checks of the chapters: a few questions each, one right answer, a reason for every other one."""

from __future__ import annotations

import re
from collections import Counter

import nbformat
import pytest

from tools import build

NOTEBOOKS = build.Book().notebooks()
QUESTION = re.compile(r"^\*\*(\d+)\.\*\* ", re.M)
OPTION = re.compile(r"^```\{dropdown\} ([a-e])\) (\S.*)\n\*(Yes|No)\.\* (\S.*)\n```$", re.M)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_quiz_has_one_right_answer_a_question_and_explains_the_others(name):
    cells = nbformat.read(NOTEBOOKS[name], as_version=4).cells
    ids = [cell.id for cell in cells]
    assert "check-yourself" in ids, "a chapter has a cell of questions, with the id check-yourself"
    quiz = cells[ids.index("check-yourself")].source
    assert quiz.startswith("## Check yourself\n")
    assert "## Exercises" in cells[ids.index("check-yourself") + 1].source
    start, *questions = re.split(r"^\*\*\d+\.\*\* ", quiz, flags=re.M)
    assert QUESTION.findall(quiz) == [str(k + 1) for k in range(len(questions))]
    assert 3 <= len(questions) <= 5
    for question in questions:
        options = OPTION.findall(question)
        assert len(options) == question.count("```{dropdown}") in (3, 4, 5)
        assert [letter for letter, *_ in options] == list("abcde")[: len(options)]
        assert [verdict for _, _, verdict, _ in options].count("Yes") == 1
        assert all(len(reason) > 20 for *_, reason in options)


def test_no_habit_of_the_key_answers_the_quizzes():
    """Neither one letter throughout nor the longest option gets far beyond guessing, which finds a third."""
    letters, longest, number = Counter(), 0, 0
    for path in NOTEBOOKS.values():
        cells = nbformat.read(path, as_version=4).cells
        quiz = next(cell.source for cell in cells if cell.id == "check-yourself")
        for question in re.split(r"^\*\*\d+\.\*\* ", quiz, flags=re.M)[1:]:
            options = OPTION.findall(question)
            ((letter, text),) = [option[:2] for option in options if option[2] == "Yes"]
            letters[letter] += 1
            longest += all(len(text) > len(option[1]) for option in options if option[2] == "No")
            number += 1
    assert max(letters.values()) <= 0.4 * number, letters
    assert longest <= 0.45 * number
