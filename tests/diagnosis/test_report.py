"""The diagnosis: numbers that are known beforehand, and what the report makes of them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from posgeom.corpora.files import CorpusError
from posgeom.corpora.named import load_corpus
from posgeom.counts.phrases import balanced
from posgeom.counts.positions import PositionalCounts
from posgeom.counts.running import CANDIDATES, DistinctTexts, Layout, Tally, counts_digest, digests
from posgeom.counts.tokenizers import open_tokenizer
from posgeom.counts.tokens import encode, load_tokenizer
from posgeom.diagnosis import report
from posgeom.diagnosis.measures import FITTED, FIXED, diagnose
from posgeom.diagnosis.printing import printable
from posgeom.diagnosis.reading import Settings
from posgeom.encodings.comparison import compare_schemes
from posgeom.geometry.distances import hellinger_distances
from posgeom.geometry.stress import stress
from posgeom.laws.power_line import fit_power_line
from posgeom.noise.correction import corrected_distances, corrected_squared_distances
from posgeom.noise.floor import sampling_floor
from posgeom.noise.nulls import centred_gram
from posgeom.noise.resampling import jackknife
from tests.corpora_for_tests import arc_law, arc_texts


@pytest.fixture(scope="module")
def arc():
    return diagnose(arc_texts(4000, 20, -0.5), tokenizer="whitespace")


@pytest.fixture(scope="module")
def flat():
    return diagnose(arc_texts(800, 12, -0.5, reach=0.0), tokenizer="whitespace")


# --- counting -------------------------------------------------------------------------------------------


def ragged(rng=0, texts=300, longest=40):
    rng = np.random.default_rng(rng)
    return [rng.integers(0, 50, rng.integers(0, longest)) for _ in range(texts)]


def tally_of(ids, lengths=(3, 5, 8, 20), groups=4):
    tally = Tally(Layout(lengths, groups, 50))
    for start in range(0, len(ids), 37):
        add(tally, ids[start : start + 37])
    return tally


def add(tally, ids):
    tally.add(tally.layout.count(ids, tally.texts), digests([str(text.tolist()) for text in ids]))


@pytest.mark.parametrize("n", [3, 5, 8, 20])
def test_every_candidate_n_can_be_had_from_one_tally(n):
    ids = ragged()
    parts = tally_of(ids).balanced(n)
    for group, part in enumerate(parts):
        own = [text for t, text in enumerate(ids) if t % 4 == group]
        assert PositionalCounts(part) == PositionalCounts.from_ids(balanced(own, n), vocab_size=50)
    assert [int(part[0].sum()) for part in parts] == tally_of(ids).texts_of(n).tolist()


def test_the_texts_that_reach_a_position_by_hand():
    tally = tally_of([np.array([1, 2, 3]), np.array([4]), np.array([], int), np.array([5, 6])])
    assert tally.reaching(5).tolist() == [3, 2, 1, 0, 0]
    assert (tally.texts, tally.tokens, tally.longest) == (4, 6, 3)


def test_counts_do_not_depend_on_how_often_they_are_summed(monkeypatch):
    whole = tally_of(ragged())
    monkeypatch.setattr("posgeom.counts.running.BLOCK_CELLS", 50)
    by_bits = tally_of(ragged())
    for a, b in zip(whole.balanced(8), by_bits.balanced(8), strict=True):
        assert (a != b).nnz == 0


def test_an_id_outside_the_vocabulary_names_its_text():
    texts = [np.array([1, 2]), np.array([], int), np.array([3, 10])]
    with pytest.raises(ValueError, match="text 7: the tokenizer gives the id 10"):
        Layout((3,), 2, 10).count(texts, 5)


def test_a_part_has_one_place_in_the_stream():
    layout, ids = Layout((3, 5, 8, 20), 4, 50), ragged(texts=30)
    first, second = layout.count(ids[:10], 0), layout.count(ids[10:], 10)
    keys = digests([str(text.tolist()) for text in ids])
    tally = Tally(layout)
    tally.add(first, keys[:10])
    for part, of in ((first, keys[:10]), (layout.count(ids[20:], 20), keys[20:]), (second, keys[10:29])):
        with pytest.raises(ValueError, match="does not follow the 10 texts"):
            tally.add(part, of)
    tally.add(second, keys[10:])
    assert tally.texts == 30 and tally.chain == tally_of(ids).chain


def test_a_tally_comes_back_from_its_file_and_goes_on(tmp_path):
    ids = ragged()
    half = tally_of(ids[:111])
    half.save(tmp_path / "state", {"corpus": "x"}, {"read": 111})
    again = Tally(half.layout)
    assert again.load(tmp_path / "state", {"corpus": "x"}) == {"read": 111}
    add(again, ids[111:])
    whole = tally_of(ids)
    assert (again.chain, again.texts, again.tokens) == (whole.chain, whole.texts, whole.tokens)
    assert again.distinct.repeated == whole.distinct.repeated
    for a, b in zip(again.balanced(8), whole.balanced(8), strict=True):
        assert (a != b).nnz == 0
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_state_of_another_run_or_of_nothing_is_refused(tmp_path):
    tally_of(ragged()).save(tmp_path / "state", {"corpus": "x", "n": 5})
    with pytest.raises(ValueError, match="another n: delete it"):
        Tally(Layout((3, 5, 8, 20), 4, 50)).load(tmp_path / "state", {"corpus": "x", "n": 6})
    (tmp_path / "no").write_bytes(b"no state")
    with pytest.raises(ValueError, match="is not the state of a count"):
        Tally(Layout((3, 5, 8, 20), 4, 50)).load(tmp_path / "no", {})


def test_repetitions_are_counted_exactly_and_then_estimated():
    keys = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
    stream = np.concatenate([keys, keys[:5000], keys[:1000]])
    exact, bounded = DistinctTexts(), DistinctTexts(room=1000)
    for part in np.array_split(stream, 40):
        exact.add(part)
        bounded.add(part)
    assert (exact.exact, exact.distinct, exact.repeated) == (True, 20_000, 6000)
    assert not bounded.exact and len(bounded.keys) <= 1000
    # A sample of some 600 texts: its error is a few per cent.
    assert abs(bounded.distinct / 20_000 - 1) < 0.15 and abs(bounded.repeated / 6000 - 1) < 0.3


# --- measuring ------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_book_s_functions():
    corpus = load_corpus("rotten_tomatoes")
    found = diagnose("rotten_tomatoes", n=20)
    ids = encode(corpus.texts, load_tokenizer(), max_len=10**6, special_tokens="drop")
    docs = balanced(ids, 20)
    counts = PositionalCounts.from_ids(docs, vocab_size=30_522)
    assert found.counts == counts and found.texts == len(docs)
    assert found.reading.reaching.tolist() == [sum(len(text) > i for text in ids) for i in range(20)]
    assert found.reading.tokens == sum(map(len, ids))
    assert found.reading.median_length == int(np.median([len(text) for text in ids]))
    squared = corrected_squared_distances(counts)
    np.testing.assert_allclose(found.squared, squared, atol=1e-12)
    np.testing.assert_allclose(found.plug_in, hellinger_distances(counts), atol=1e-14)
    pairs = np.triu_indices(20, 1)
    floor, plug_in = sampling_floor(counts)[pairs], hellinger_distances(counts)[pairs] ** 2
    assert found.noise_share.value == pytest.approx(floor.mean() / plug_in.mean(), abs=1e-12)
    # The edge from the counts, as corrected_distances draws it, and this one differ by their draws only.
    pooled = corrected_distances(counts, rank="edge", n_null=19, rng=1)
    assert found.rank == np.linalg.matrix_rank(centred_gram(pooled**2), tol=1e-8)
    clean = corrected_distances(counts, rank=found.rank)
    assert found.exponent.value == pytest.approx(fit_power_line(clean).exponent, abs=1e-6)
    rows = {row.scheme: row for row in found.table}
    for row in compare_schemes(clean, d=64, rng=0).only("sinusoid", "RoPE", "T5 buckets", "simplex"):
        assert rows[row.scheme].corrected.value == pytest.approx(row.scaled_stress, abs=1e-9)
    for row in compare_schemes(hellinger_distances(counts), d=64, rng=0).only("sinusoid", "T5 buckets"):
        assert rows[row.scheme].raw == pytest.approx(row.raw_stress)
        assert rows[row.scheme].plug_in == pytest.approx(row.scaled_stress)


def test_intervals_are_the_jackknife_over_texts():
    texts = arc_texts(400, 8, 0.5)
    found = diagnose(texts, tokenizer="whitespace", n=8, groups=5)
    ids = open_tokenizer("whitespace").ids(texts)

    def score(docs):
        counts = PositionalCounts.from_ids(docs, vocab_size=1 << 22)
        clean = corrected_distances(counts, rank=found.rank)
        E = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
        best = fit_power_line(clean)
        return np.array([best.exponent, stress(E, clean, scale="optimal")])

    by_hand = jackknife(score, np.stack(ids), groups=5)
    (line,) = (row.corrected for row in found.table if row.scheme == "ALiBi line (slope 1)")
    for k, interval in enumerate((found.exponent, line)):
        expected = (by_hand.estimate[k], by_hand.low[k], by_hand.high[k])
        np.testing.assert_allclose(interval, expected, atol=1e-6)


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 1.0])
def test_a_planted_power_line_is_found(exponent):
    found = diagnose(arc_texts(4000, 20, exponent), tokenizer="whitespace")
    assert found.n == 20 and found.rank >= 1
    assert found.exponent.low - 0.06 < exponent < found.exponent.high + 0.06
    truth = hellinger_distances(arc_law(20, exponent))
    pairs = np.triu_indices(20, 1)
    assert abs(found.squared[pairs].mean() / (truth[pairs] ** 2).mean() - 1) < 0.05
    rows = {row.scheme: row.corrected.value for row in found.table}
    assert rows[FITTED] < 0.02 < rows["simplex"]
    if exponent == 1.0:
        assert found.best.scheme == "ALiBi line (slope 1)"


def test_texts_without_order_have_no_structure(flat):
    assert flat.rank == 0 and flat.line is None and flat.best is None and flat.ties == ()
    assert flat.noise_share.low < 1 < flat.noise_share.high
    assert all(row.corrected is None for row in flat.table)
    advice = report.advise(flat)
    assert "no positional structure beyond sampling noise" in advice.recommendation
    assert "fits best" not in report.as_text(flat)


def test_the_same_word_everywhere_is_no_structure_and_no_error():
    found = diagnose(["a a a a", "a a a a a", "a a a"] * 5, tokenizer="whitespace", n=3)
    assert found.rank == 0 and not found.plug_in.any() and found.table == ()
    assert "Every position holds the same words" in report.as_text(found)
    assert "Every position holds the same words" in report.as_html(found)
    json.dumps(found.as_dict(), allow_nan=False)


def test_n_is_the_last_candidate_that_half_of_the_texts_reach():
    lengths = [3] * 2 + [11] * 2 + [13] * 4
    texts = [" ".join(f"w{(t * k) % 7}" for k in range(length)) for t, length in enumerate(lengths)]
    assert diagnose(texts, tokenizer="whitespace").n == 12
    assert diagnose(texts + [texts[0] + " x"], tokenizer="whitespace").n == 10
    assert 12 in CANDIDATES and 10 in CANDIDATES and 11 not in CANDIDATES
    assert diagnose(texts, tokenizer="whitespace", n=11).n == 11


def test_special_tokens_stand_around_the_text():
    texts = load_corpus("rotten_tomatoes").texts[:200]
    tokenizer = load_tokenizer()
    for mode in ("keep", "drop_cls"):
        found = diagnose(texts, n=12, special_tokens=mode)
        room = {"keep": 12, "drop_cls": 13}[mode]
        ids = encode(texts, tokenizer, max_len=room, special_tokens=mode)
        expected = PositionalCounts.from_ids([text for text in ids if len(text) == 12], vocab_size=30_522)
        # A text with exactly one token less than the room is not cut: it has n tokens with [SEP] too.
        assert found.counts == expected


def test_repeated_texts_are_told_and_can_be_left_out():
    texts = arc_texts(300, 10, -0.5)
    twice = texts + texts[:60]
    found = diagnose(twice, tokenizer="whitespace")
    assert (found.reading.repeated, found.reading.repeated_exact) == (60, True)
    assert "repeat another one" in " ".join(report.advise(found).limits)
    once = diagnose(twice, tokenizer="whitespace", deduplicate=True)
    assert once.counts == diagnose(texts, tokenizer="whitespace").counts
    assert (once.reading.texts, once.reading.repeated, once.reading.dropped) == (360, 60, 60)
    assert "repeat another one" not in " ".join(report.advise(once).limits)


def test_a_pool_of_processes_changes_no_number(monkeypatch):
    texts = arc_texts(300, 8, -0.5)
    alone = diagnose(texts, tokenizer="whitespace")
    monkeypatch.setattr("posgeom.diagnosis.measures.POOL_PAYS", -1.0)
    together = diagnose(texts, tokenizer="whitespace", jobs=2)
    assert json.dumps(alone.as_dict()) == json.dumps(together.as_dict())


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"n": 0}, "n must be at least 1, not 0"),
        ({"n": -3}, "n must be at least 1, not -3"),
        ({"n": 2}, "n must be from 3 to 8,192 positions, not 2"),
        ({"n": 2.5}, "n must be an integer"),
        ({"shuffles": 18}, "shuffles must be at least 19"),
        ({"groups": 1}, "groups must be at least 2"),
        ({"width": 0}, "width must be at least 1"),
        ({"special_tokens": "all"}, "special_tokens must be one of"),
        ({"positions": 3}, "unknown setting positions: choose from"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        diagnose(["a b c"] * 3, tokenizer="whitespace", **settings)


@pytest.mark.parametrize("corpus", [3, None, b"bytes", iter(["a"]), [1, 2]])
def test_a_corpus_of_another_kind(corpus):
    with pytest.raises(CorpusError, match="must be a"):
        diagnose(corpus, tokenizer="whitespace")


# --- the report -----------------------------------------------------------------------------------------


def test_the_recommendation_quotes_the_table(arc):
    words = report.advise(arc).recommendation
    best = next(row for row in arc.table if row.scheme != FITTED)
    assert best is arc.best and f"the {best.scheme} fits best" in words
    assert f"leaves {best.corrected.value:.0%}" in words
    assert f"exponent {arc.line.exponent:.2f}" in words
    assert set(FIXED) | {FITTED} == {row.scheme for row in arc.table}
    assert [row.corrected.value for row in arc.table] == sorted(row.corrected.value for row in arc.table)


def test_few_texts_unknown_words_and_special_tokens_are_limits():
    texts = [f"☃ ☃ [SEP] word{k} and more words here" for k in range(60)]
    limits = " ".join(report.advise(diagnose(texts, n=5)).limits)
    assert "60 texts are few" in limits
    assert "are unknown to the tokenizer's vocabulary" in limits
    assert "60 special tokens stand spelt out" in limits


def test_text_and_html_tell_the_same(arc):
    text, page = report.as_text(arc), report.as_html(arc)
    seen = Seen(page)
    for number in (f"{arc.reading.texts:,}", f"n = {arc.n}", arc.reading.digest[:16]):
        assert number in text and number in seen.text
    for row in arc.table:
        cells = f"{row.corrected.value:.3f}"
        assert cells in text and cells in seen.text
    assert " ".join(report.advise(arc).recommendation.split()) in " ".join(seen.text.split())
    assert "posgeom stress 'texts in memory' --tokenizer whitespace" in text
    assert max(map(len, text.splitlines())) <= 110


class Seen(HTMLParser):
    """What a page shows, and what it would fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes = "", [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.text += data


HOSTILE = '<script>alert(1)</script> \x1b[31mred\x1b[0m \x07 \u202ertl "><img/src=x/onerror=alert(2)> &amp;'


def test_what_a_corpus_says_does_not_run():
    texts = [f"{HOSTILE} w{k} w{k % 3} end" for k in range(40)]
    found = diagnose(texts, tokenizer="whitespace", n=4)
    page, text = report.as_html(found), report.as_text(found)
    seen = Seen(page)
    assert "script" not in seen.tags and not any(name.startswith("on") for _, name, _ in seen.attributes)
    assert all(
        value.startswith("data:image/png;base64,") for tag, name, value in seen.attributes if name == "src"
    )
    assert "<script>alert(1)</script>" in seen.text and "<script>" in text
    for shown in (page, text):
        assert not set(shown) - {"\n"} & {chr(code) for code in range(32)}
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "default-src 'none'" in page


def test_a_page_fetches_nothing_and_every_figure_has_words(arc):
    seen = Seen(report.as_html(arc))
    assert not {"script", "link", "iframe", "object"} & set(seen.tags)
    assert not any(
        name in ("src", "href") and not value.startswith("data:") for _, name, value in seen.attributes
    )
    alts = [value for tag, name, value in seen.attributes if (tag, name) == ("img", "alt")]
    assert len(alts) == seen.tags.count("img") == 5 and all(len(alt) > 30 for alt in alts)


def test_printable_keeps_letters_of_every_script():
    assert printable("naïve 東京 नमस्ते 🙂") == "naïve 東京 नमस्ते 🙂"
    assert printable("a\x1b[2Jb\n\t\x9b") == "a\\x1b[2Jb\\n\\t\\x9b"


def test_json_holds_every_number_and_no_nan(arc, flat):
    for found in (arc, flat):
        held = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        assert held["counts_sha256"] == counts_digest(found.counts)
        assert np.array_equal(held["distances"]["plug_in"], found.plug_in)
        assert held["signal_rank"] == found.rank
    assert held["power_line"] is None and held["best_scheme"] is None


def test_settings_make_the_command():
    words = Settings(n=12, column="my text", deduplicate=True, tokenizer="whitespace").options
    assert words == ["-n", "12", "--tokenizer", "whitespace", "--column", "my text", "--deduplicate"]
    assert Settings().options == []
