"""Positional counts against counting by hand, and maximal phrases against looking at every pair."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse, stats

from posgeom.counts import positions
from posgeom.counts.phrases import balanced, maximal_phrases
from posgeom.counts.positions import PositionalCounts, load_counts, shuffled
from posgeom.counts.tokens import encode, load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [[2, 0, 1], [2, 2], [], [0, 2, 1, 3]]
BY_HAND = [[1, 0, 2, 0], [1, 0, 2, 0], [0, 2, 0, 0], [0, 0, 0, 1]]

ragged = st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=12).filter(any)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def naive(texts, n, vocab_size):
    counts = np.zeros((n, vocab_size), dtype=np.int64)
    for text in texts:
        for position, word in enumerate(text[:n]):
            counts[position, word] += 1
    return counts


# Counting


def test_counts_by_hand():
    counted = PositionalCounts.from_ids(TEXTS, vocab_size=4)
    assert counted.counts.toarray().tolist() == BY_HAND
    assert counted.totals.tolist() == [3, 3, 2, 1]
    assert (counted.n, counted.vocab_size) == (4, 4)
    assert counted.counts.format == "csr" and counted.counts.dtype == np.int64
    assert repr(counted) == "PositionalCounts(n=4, V=4, texts 3 at position 0 and 1 at position 3)"


def test_distributions_by_hand():
    mu = PositionalCounts.from_ids(TEXTS, vocab_size=4).distributions()
    expected = [[1 / 3, 0, 2 / 3, 0], [1 / 3, 0, 2 / 3, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(mu.toarray(), expected)
    assert mu.format == "csr" and mu.dtype == np.float64


def test_one_text_gives_one_hot_distributions():
    counted = PositionalCounts.from_ids([[3, 1, 1]], vocab_size=4)
    assert counted.totals.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(counted.distributions().toarray(), np.eye(4)[[3, 1, 1]])


@given(ragged, st.integers(1, 10) | st.none())
def test_counting_is_the_loop_over_texts_and_positions(texts, n):
    counted = PositionalCounts.from_ids(texts, n=n, vocab_size=7)
    rows = n if n is not None else max(map(len, texts))
    np.testing.assert_array_equal(counted.counts.toarray(), naive(texts, rows, 7))
    np.testing.assert_array_equal(counted.totals, [sum(len(text) > i for text in texts) for i in range(rows)])


@given(ragged, st.integers(1, 20))
def test_blocks_change_nothing(texts, size):
    whole = PositionalCounts.from_ids(texts, vocab_size=7)
    usual, positions.BLOCK_TOKENS = positions.BLOCK_TOKENS, size
    try:
        assert PositionalCounts.from_ids(texts, vocab_size=7) == whole
        square = np.arange(24).reshape(6, 4) % 7
        assert PositionalCounts.from_ids(square, vocab_size=7) == PositionalCounts(naive(square, 4, 7))
    finally:
        positions.BLOCK_TOKENS = usual


def test_an_array_a_list_and_an_iterator_count_alike():
    ids = np.random.default_rng(0).integers(0, 9, (30, 5))
    expected = PositionalCounts(naive(ids, 5, 9))
    for given_as in (ids, ids.astype(np.uint16), list(ids), ids.tolist(), iter(ids.tolist()), tuple(ids)):
        assert PositionalCounts.from_ids(given_as, vocab_size=9) == expected
    assert PositionalCounts.from_ids(ids, n=3, vocab_size=9) == PositionalCounts(naive(ids, 3, 9))
    assert PositionalCounts.from_ids(ids, n=7, vocab_size=9).totals.tolist() == [30] * 5 + [0] * 2


def test_no_dense_table_is_made():
    """A dense (512, 30,522) table of int64 would weigh 125 MB."""
    ids = np.random.default_rng(0).zipf(1.5, (500, 512)) % 30_522
    tracemalloc.start()
    counted = PositionalCounts.from_ids(ids, vocab_size=30_522)
    counted.distributions()
    (counted + counted).trim(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counted.totals.tolist() == [500] * 512
    assert peak < 60e6


@pytest.mark.parametrize(
    ("ids", "arguments", "message"),
    [
        ([[0, 1], [2], [1, 0, 4]], {}, r"text 2, position 2: id 4 is outside the vocabulary, 0 … 3"),
        ([[0], [], [0, -1]], {}, r"text 2, position 1: id -1 is outside"),
        (np.array([[0, 1], [4, 0]]), {}, r"text 1, position 0: id 4 is outside"),
        ([], {}, "ids holds no text"),
        (np.zeros((0, 3), dtype=int), {}, "ids holds no text"),
        ([[], []], {}, "every text of ids is empty"),
        (np.zeros((2, 0), dtype=int), {}, "every text of ids is empty"),
        (np.array([0, 1]), {}, r"\(M, n\) array of integers or a list of texts, not int64 of shape \(2,\)"),
        (np.array([[0.0]]), {}, "not float64"),
        ([0, 1], {}, "text 0 of ids must be a row of integers, not int64 with 0 axes"),
        ([[0], [0.5]], {}, "text 1 of ids must be a row of integers, not float64"),
        (["fish"], {}, "text 0 of ids must be a row of integers"),
        ([[[0]]], {}, "text 0 of ids must be a row of integers, not int64 with 2 axes"),
        ([[0]], {"n": 0}, "n must be at least 1"),
        ([[0]], {"n": 2.5}, "n must be an integer"),
        ([[0]], {"vocab_size": 0}, "vocab_size must be at least 1"),
    ],
)
def test_ids_that_cannot_be_counted_are_named(ids, arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionalCounts.from_ids(ids, **{"vocab_size": 4, **arguments})


def test_the_text_at_fault_is_named_across_blocks(monkeypatch):
    monkeypatch.setattr(positions, "BLOCK_TOKENS", 4)
    with pytest.raises(ValueError, match="text 5, position 1: id 9"):
        PositionalCounts.from_ids([[0, 1, 2], [0, 1], [], [1, 1, 1, 1, 1], [0], [0, 9]], vocab_size=4)


def test_an_empty_position_is_named():
    counted = PositionalCounts.from_ids([[0, 1], [1]], n=4, vocab_size=2)
    assert counted.totals.tolist() == [2, 1, 0, 0]
    with pytest.raises(
        ValueError, match=r"position 2 has no distribution: no text reaches it \(2 of 4 positions"
    ):
        counted.distributions()


# Texts

LINES = ["The fish swims.", "Fish!", "A red fish, a blue fish"]


@pytest.mark.parametrize(
    ("special_tokens", "n"),
    [("drop", 4), ("drop", 6), ("drop_cls", 5), ("drop_cls", 7), ("keep", 6), ("keep", 8)],
)
def test_from_texts_fills_n_positions(tokenizer, special_tokens, n):
    max_len = n + {"drop": 2, "drop_cls": 1, "keep": 0}[special_tokens]
    ids = [row.tolist() for row in encode(LINES, tokenizer, max_len=max_len, special_tokens=special_tokens)]
    counted = PositionalCounts.from_texts(LINES, tokenizer, n=n, special_tokens=special_tokens)
    assert max(map(len, ids)) == counted.n == n and counted.vocab_size == 30_522
    for position in range(n):
        expected = Counter(row[position] for row in ids if len(row) > position)
        row = counted.counts[position]
        assert dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) == expected


def test_the_last_position_of_texts_that_are_cut_is_sep(tokenizer):
    counted = PositionalCounts.from_texts(
        ["one two three four"] * 3, tokenizer, n=3, special_tokens="drop_cls"
    )
    assert counted.counts[2].indices.tolist() == [102] and counted.totals.tolist() == [3, 3, 3]


def test_texts_that_are_too_short_are_told(tokenizer):
    # the fish swim ##s . | fish ! | a red fish , a blue fish
    longest = PositionalCounts.from_texts(LINES, tokenizer, n=7, special_tokens="drop")
    assert longest.totals.tolist() == [3, 3, 2, 2, 2, 1, 1]
    for special_tokens, tokens in (("drop", 7), ("drop_cls", 8), ("keep", 9)):
        message = (
            rf"no text reaches position 9 \(n = 10\): the longest has {tokens} tokens with special_tokens="
        )
        with pytest.raises(ValueError, match=message):
            PositionalCounts.from_texts(LINES, tokenizer, n=10, special_tokens=special_tokens)
    with pytest.raises(ValueError, match="the longest has 0 tokens"):
        PositionalCounts.from_texts([" ", ""], tokenizer, n=1, special_tokens="drop")
    with pytest.raises(ValueError, match="texts holds no text"):
        PositionalCounts.from_texts([], tokenizer, n=1, special_tokens="drop")


def test_n_must_leave_room_for_text(tokenizer):
    with pytest.raises(
        ValueError, match="n = 2 leaves no room for text with special_tokens='keep': use n >= 3"
    ):
        PositionalCounts.from_texts(LINES, tokenizer, n=2, special_tokens="keep")
    with pytest.raises(ValueError, match="use n >= 2"):
        PositionalCounts.from_texts(LINES, tokenizer, n=1, special_tokens="drop_cls")
    assert PositionalCounts.from_texts(LINES, tokenizer, n=1, special_tokens="drop").totals.tolist() == [3]
    with pytest.raises(ValueError, match="special_tokens must be one of"):
        PositionalCounts.from_texts(LINES, tokenizer, n=3, special_tokens="cls")


# Merging, trimming, equality


@given(ragged, ragged)
def test_merged_counts_are_the_counts_of_both_corpora(first, second):
    a, b = (PositionalCounts.from_ids(texts, vocab_size=7) for texts in (first, second))
    both = PositionalCounts.from_ids(first + second, vocab_size=7)
    assert a + b == b + a == sum([a, b]) == both
    np.testing.assert_array_equal((a + b).totals, both.totals)


def test_counts_of_two_vocabularies_do_not_merge():
    a, b = (PositionalCounts.from_ids([[0]], vocab_size=size) for size in (3, 4))
    with pytest.raises(ValueError, match="over 3 tokens with counts over 4"):
        a + b
    with pytest.raises(TypeError):
        a + 1


def test_trim_keeps_the_longest_prefix():
    counted = PositionalCounts(np.diag([5, 3, 3, 1, 4]))
    assert counted.trim(1) == counted
    assert counted.trim(2) == counted.trim(3) == PositionalCounts(np.diag([5, 3, 3, 1, 4])[:3])
    assert counted.trim(5).totals.tolist() == [5]
    with pytest.raises(ValueError, match="min_count = 6, but position 0 has only 5 texts"):
        counted.trim(6)
    with pytest.raises(ValueError, match="min_count must be at least 1"):
        counted.trim(0)


def test_equality_and_hash():
    a = PositionalCounts(np.array([[1, 0, 2]]))
    for same in (
        sparse.csr_matrix([[1, 0, 2]]),
        sparse.coo_array(([1, 1, 1, 0], ([0, 0, 0, 0], [2, 0, 2, 1])), shape=(1, 3)),
    ):
        assert a == PositionalCounts(same) and hash(a) == hash(PositionalCounts(same))
    unsorted = sparse.csr_matrix(([1, 1, 1], [2, 0, 2], [0, 3]), shape=(1, 3))
    assert PositionalCounts(unsorted) == a and PositionalCounts(unsorted).counts.nnz == 2
    for other in ([[1, 0, 3]], [[1, 2, 0]], [[1, 0, 2, 0]], [[1, 0, 2], [0, 0, 0]]):
        assert a != PositionalCounts(np.array(other))
    assert a != "counts"


def test_counts_cannot_be_changed():
    given_matrix = sparse.csr_matrix([[1, 0, 2]])
    counted = PositionalCounts(given_matrix)
    given_matrix.data[:] = 9
    with pytest.raises(AttributeError):
        counted.counts = given_matrix
    with pytest.raises(AttributeError):
        counted.note = "mine"
    with pytest.raises(ValueError, match="read-only"):
        counted.counts.data[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        counted.totals[0] = 5
    own = counted.counts
    own.data = np.array([9, 9])
    mu = counted.distributions()
    mu.data[:] = 0
    assert counted.counts.toarray().tolist() == [[1, 0, 2]] and counted.totals.tolist() == [3]
    assert copy.deepcopy(counted) == pickle.loads(pickle.dumps(counted)) == counted


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.array([[1, 2], [0, -3]]), r"counts\[1, 1\] is -3: a count is at least 0"),
        (np.array([[0.5, 1.0]]), "counts must be integers, not float64"),
        (np.array([1, 2]), r"counts must be \(n, V\) with n, V >= 1, not of shape \(2,\)"),
        (np.zeros((0, 3), dtype=int), r"not of shape \(0, 3\)"),
    ],
)
def test_what_cannot_be_counts_is_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        PositionalCounts(counts)
    if counts.ndim == 2:
        with pytest.raises(ValueError, match=message):
            PositionalCounts(sparse.csr_matrix(counts))


# Files


@given(
    arrays.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.integers(0, 2**40))
)
@settings(max_examples=25)
def test_save_and_load(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("counts") / "counts.npz"
    counted = PositionalCounts(counts)
    counted.save(path)
    assert PositionalCounts.load(path) == PositionalCounts.load(str(path)) == counted
    np.testing.assert_array_equal(sparse.load_npz(path).toarray(), counts)


def test_equal_counts_give_equal_files_with_usual_permissions(tmp_path):
    counted = PositionalCounts.from_ids(TEXTS, vocab_size=4)
    for name in ("a.npz", "b"):
        counted.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b").read_bytes()
    (tmp_path / "plain").touch()
    assert (tmp_path / "a.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b", "plain"]
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive["data"].tolist() == [1, 2, 1, 2, 2, 1]


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path):
    """The disk's limit, played by the process's own limit on the size of a file."""
    resource = pytest.importorskip("resource", reason="limits on a process are those of POSIX")
    path = tmp_path / "counts.npz"
    old = PositionalCounts.from_ids(TEXTS, vocab_size=4)
    old.save(path)
    code = (
        "import numpy as np, sys; from posgeom.counts.positions import PositionalCounts\n"
        "counts = PositionalCounts(np.random.default_rng(0).integers(0, 2**60, (100, 100)))\n"
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "counts.save(sys.argv[1])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    run = subprocess.run([sys.executable, "-c", code, path], env=environment, capture_output=True, text=True)
    assert run.returncode == 1 and "OSError" in run.stderr
    assert PositionalCounts.load(path) == old
    assert [file.name for file in tmp_path.iterdir()] == ["counts.npz"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000


def test_a_file_that_is_no_counts_is_refused(tmp_path):
    path = tmp_path / "counts.npz"
    with pytest.raises(ValueError, match="cannot be read as a file of counts: No such file"):
        PositionalCounts.load(path)

    def refused(message: str = "is not a file of positional counts") -> None:
        with pytest.raises(ValueError, match=message):
            PositionalCounts.load(path)

    path.write_bytes(b"fish")
    refused()
    path.write_bytes(b"")
    refused()
    np.savez(path, words=np.arange(3))
    refused()
    with open(path, "wb") as file:
        np.save(file, np.eye(2))
    refused()
    sparse.save_npz(path, sparse.csr_matrix([[0.5]]))
    refused("counts must be integers")
    sparse.save_npz(path, sparse.csr_matrix([[-1]]))
    refused("a count is at least 0")
    good = {"format": "csr", "shape": (1, 2), "data": [1], "indices": [0], "indptr": [0, 1]}
    for change in (
        {"indices": [7]},
        {"indices": [-1]},
        {"indptr": [0, 5]},
        {"indptr": [1, 0]},
        {"shape": (4, 2)},
    ):
        np.savez(path, **{**good, **change})
        refused()
    np.savez(path, **good)
    assert PositionalCounts.load(path).counts.toarray().tolist() == [[1, 0]]
    saved = PositionalCounts.from_ids(TEXTS, vocab_size=4)
    saved.save(path)
    path.write_bytes(path.read_bytes()[:-40])
    refused()


class Loud:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


def test_no_pickle_is_ever_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "counts.npz"
    np.savez(path, format=np.array([Loud()], dtype=object))
    with pytest.raises(ValueError, match="not a file of positional counts"):
        PositionalCounts.load(path)
    path.write_bytes(pickle.dumps(Loud()))
    with pytest.raises(ValueError, match="not a file of positional counts"):
        PositionalCounts.load(path)
    assert not (tmp_path / "executed").exists()


# The exchangeable null


@given(ragged, st.integers(0, 2**32))
def test_shuffled_texts_keep_their_words(texts, seed):
    null = shuffled(texts, seed)
    assert [sorted(row.tolist()) for row in null] == [sorted(text) for text in texts]
    again = PositionalCounts.shuffled(texts, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(null, again, strict=True))


def test_shuffled_arrays_keep_shape_type_and_words():
    ids = np.arange(60, dtype=np.int32).reshape(6, 10)
    before = ids.copy()
    null = shuffled(ids, 0)
    assert null.shape == ids.shape and null.dtype == np.int32
    np.testing.assert_array_equal(np.sort(null, axis=1), ids)
    np.testing.assert_array_equal(ids, before)
    assert len({tuple(row % 10) for row in null}) > 1, "rows must be shuffled independently"


def test_every_order_is_equally_likely():
    rows = np.tile([0, 1, 2], (6000, 1))
    for ids in (rows, list(rows)):
        orders = Counter(tuple(row.tolist()) for row in shuffled(ids, 5))
        assert len(orders) == 6 and stats.chisquare(list(orders.values())).pvalue > 1e-3


def test_shuffled_refuses_what_is_not_ids():
    with pytest.raises(ValueError, match=r"not an array of shape \(3,\)"):
        shuffled(np.arange(3), 0)
    with pytest.raises(ValueError, match="text 1 of ids"):
        shuffled([[1], ["a"]], 0)
    with pytest.raises(ValueError, match="rng is None"):
        shuffled([[1]], None)


# Maximal phrases and balanced sets


def brute_force(texts):
    def inside(a, b):
        return any(a == b[k : k + len(a)] for k in range(len(b) - len(a) + 1))

    first = [k for k, text in enumerate(texts) if text not in texts[:k]]
    return [k for k in first if not any(inside(texts[k], texts[m]) for m in first if m != k)]


def test_maximal_phrases_by_hand():
    texts = [[7, 8], [5, 7, 8, 9], [8, 9, 5], [5, 7, 9], [5, 7, 8, 9], [], [9], [8, 9, 5]]
    assert maximal_phrases(texts).tolist() == brute_force(texts) == [1, 2, 3]


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=14))
@settings(max_examples=300)
def test_maximal_phrases_are_those_of_the_search_over_all_pairs(texts):
    assert maximal_phrases([np.array(text, dtype=np.int32) for text in texts]).tolist() == brute_force(texts)


def test_maximal_phrases_of_long_texts():
    rng = np.random.default_rng(0)
    long = rng.integers(0, 5, (8, 300)).tolist()
    texts = [
        text[a:b] for text in long for a, b in ((0, 300), (0, 299), (1, 300), (37, 200), (250, 251), (0, 128))
    ]
    texts = [texts[k] for k in rng.permutation(len(texts))]
    assert [texts[k] for k in maximal_phrases(texts)] == [text for text in texts if len(text) == 300]


def test_maximal_phrases_do_not_run_across_texts():
    assert maximal_phrases([[1, 2], [3, 4], [2, 3]]).tolist() == [0, 1, 2]
    assert maximal_phrases([[0, -1], [1, 0]]).tolist() == [0, 1]
    assert maximal_phrases([]).tolist() == []
    assert maximal_phrases([[], []]).tolist() == [0]
    with pytest.raises(ValueError, match="text 1 of ids"):
        maximal_phrases([[1], [0.5]])


def test_balanced_keeps_the_start_of_long_texts():
    texts = [np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7, 8, 9])]
    assert balanced(texts, 3).tolist() == [[1, 2, 3], [6, 7, 8]]
    assert balanced(texts, 2).tolist() == [[1, 2], [4, 5], [6, 7]]
    with pytest.raises(ValueError, match="no text has n = 5 tokens: the longest has 4"):
        balanced(texts, 5)
    with pytest.raises(ValueError, match="the longest has 0"):
        balanced([], 5)
    with pytest.raises(ValueError, match="n must be at least 1"):
        balanced(texts, 0)


def test_unknown_counts_are_named():
    with pytest.raises(ValueError, match="unknown counts 'imdb': choose from 'sst2', 'b_sst2'"):
        load_counts("imdb")
