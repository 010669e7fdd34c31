"""Windows and sentences: what is kept, what is moved."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from posgeom.counts.windows import (
    from_sentences,
    random_windows,
    sentences,
    shuffled_sentences,
    windows_inside,
)

ENDS = (0, 1)
texts_of_ids = st.lists(st.integers(0, 5), min_size=0, max_size=30).map(lambda x: np.array(x, dtype=np.int64))


def test_random_windows_run_along_the_joined_stream_and_around_its_end():
    texts = [np.arange(3), np.arange(3, 10)]
    windows = random_windows(texts, 4, 500, rng=0)
    assert windows.shape == (500, 4)
    np.testing.assert_array_equal(np.diff(windows, axis=1) % 10, 1)
    assert {tuple(row) for row in windows} >= {(8, 9, 0, 1), (2, 3, 4, 5)}


def test_every_token_is_equally_likely_at_every_position_of_a_random_window():
    windows = random_windows([np.arange(8), np.arange(8, 13)], 5, 26_000, rng=0)
    for position in range(5):
        assert chisquare(np.bincount(windows[:, position], minlength=13)).pvalue > 1e-4


def test_windows_inside_stay_inside_and_keep_texts_without_room_whole():
    texts = [np.arange(3), np.arange(10, 14), np.arange(100, 150)]
    starts = set()
    for seed in range(60):
        windows = windows_inside(texts, 4, rng=seed)
        assert windows.shape == (2, 4)
        np.testing.assert_array_equal(windows[0], texts[1])
        np.testing.assert_array_equal(np.diff(windows[1]), 1)
        assert 100 <= windows[1, 0] and windows[1, -1] < 150
        starts.add(int(windows[1, 0]))
    assert len(starts) > 20


def test_sentences_by_hand():
    parts = sentences(np.array([5, 6, 0, 0, 1, 7, 1, 8]), ENDS)
    assert [part.tolist() for part in parts] == [[5, 6, 0, 0, 1], [7, 1], [8]]
    assert sentences(np.array([], dtype=int), ENDS) == []
    assert [part.tolist() for part in sentences(np.array([0, 5]), ENDS)] == [[0], [5]]


@given(texts_of_ids)
def test_sentences_join_to_their_text(text):
    parts = sentences(text, ENDS)
    assert all(part.size for part in parts)
    np.testing.assert_array_equal(np.concatenate([*parts, text[:0]]), text)
    # No mark stands inside a sentence before a word.
    for part in parts:
        mark = np.isin(part, ENDS)
        assert not (mark[:-1] & ~mark[1:]).any()


def test_shuffled_sentences_keep_each_sentence_whole():
    text = np.array([2, 0, 3, 3, 0, 4, 4, 4, 0, 5, 1])
    before = Counter(tuple(part) for part in sentences(text, ENDS))
    seen = set()
    for seed in range(40):
        (after,) = shuffled_sentences([text], ENDS, rng=seed)
        assert Counter(tuple(part) for part in sentences(after, ENDS)) == before
        seen.add(tuple(after))
    assert len(seen) > 10


def test_texts_from_sentences_are_sentences_one_after_the_other():
    pool = [np.array([2, 0]), np.array([3, 3, 0])]
    texts = from_sentences(pool, 7, 300, rng=0)
    assert texts.shape == (300, 7)
    for text in texts:
        for part in sentences(text, ENDS)[:-1]:
            assert part.tolist() in ([2, 0], [3, 3, 0])
    # Both begin half of the texts, short or long: a draw of sentences, not of tokens.
    assert 110 < (texts[:, 0] == 2).sum() < 190


def test_openings_come_first_whole_or_cut():
    openings = [np.array([9, 9, 9]), np.arange(20)]
    texts = from_sentences([np.array([2, 0])], 5, 2, openings=openings, rng=0)
    assert texts.tolist() == [[9, 9, 9, 2, 0], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: random_windows([np.arange(3)], 4, 1, rng=0), "too few"),
        (lambda: windows_inside([np.arange(3)], 4, rng=0), "longest has 3"),
        (lambda: from_sentences([], 4, 1, rng=0), "pool"),
        (lambda: from_sentences([np.array([], int)], 4, 1, rng=0), "pool"),
        (lambda: from_sentences([np.arange(2)], 4, 2, openings=[np.arange(1)], rng=0), "openings"),
        (lambda: random_windows([np.arange(9)], 4, 1, rng=None), "rng"),
    ],
)
def test_errors_name_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()
