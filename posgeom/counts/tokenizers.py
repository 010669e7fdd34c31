"""The tokenizer of a diagnosis: any that the libraries can load, or white space, which needs none."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posgeom.counts.tokens import load_tokenizer

__all__ = ["WHITESPACE", "Tokenisation", "open_tokenizer"]

WHITESPACE = "whitespace"
# Words get numbers by a hash, so that any two parts of a corpus number them alike without a common list.
WHITESPACE_BINS = 1 << 22
WORDS_KEPT = 1 << 16
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Tokenisation:
    """Texts to ids, the same for every batch.

    Attributes
    ----------
    name
        as it was asked for.
    fingerprint
        hex digest of the tokenizer's definition: equal ids for equal texts.
    vocab_size
        V; ids are 0 … V-1.
    tokenizer
        the ``tokenizers.Tokenizer`` behind it; ``None`` for white space.
    special_ids
        ids of special tokens, which a text should not hold.
    unknown_id
        the id of a token for what the vocabulary lacks; ``None`` without one.
    """

    def __init__(self, name: str, tokenizer=None) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self._words: dict[int, str] = {}
        if tokenizer is None:
            self.vocab_size = WHITESPACE_BINS
            self.special_ids: tuple[int, ...] = ()
            self.unknown_id = None
            self.fingerprint = hashlib.sha256(f"{WHITESPACE} {WHITESPACE_BINS}".encode()).hexdigest()
            return
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise ValueError(f"tokenizer {name!r} has an empty vocabulary")
        self.vocab_size = max(vocabulary.values()) + 1
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = tuple(sorted(number for number, token in added.items() if token.special))
        unknown = getattr(tokenizer.model, "unk_token", None)
        self.unknown_id = tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None
        self.fingerprint = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
        # A text is never cut here: its length is part of what a diagnosis tells.
        self._encode_all = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, without special tokens around it, one array a text."""
        if self.tokenizer is None:
            return [np.array([_bin(word) for word in text.split()], dtype=np.int32) for text in texts]
        return [
            np.array(encoding.ids, dtype=np.int32)
            for encoding in self._encode_all(list(texts), add_special_tokens=False)
        ]

    def word(self, number: int) -> str:
        """The token with this id; of white space one that has been seen."""
        if self.tokenizer is None:
            return self._words.get(number, f"#{number}")
        return self.tokenizer.id_to_token(number) or f"#{number}"

    @property
    def words(self) -> dict[str, str]:
        """The words of white space that have a name so far, id -> word, for the state of a run."""
        return {str(number): word for number, word in self._words.items()}

    def known_words(self, words: dict[str, str]) -> None:
        """Take over what :attr:`words` of an earlier run gave."""
        self._words |= {int(number): word for number, word in words.items()}

    def learn(self, texts: Sequence[str]) -> None:
        """Keep names for the words of white space that begin a text, which is what a report quotes."""
        if self.tokenizer is not None:
            return
        for text in texts:
            if len(self._words) == WORDS_KEPT:
                return
            for word in text.split(maxsplit=1)[:1]:
                self._words.setdefault(_bin(word), word)


def _bin(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % WHITESPACE_BINS


def open_tokenizer(name: str | os.PathLike) -> Tokenisation:
    """The tokenizer of that name, and never another one.

    Parameters
    ----------
    name
        ``"bert-base-uncased"`` (its vocabulary rides in a package; no network), ``"whitespace"`` (words are
        what ``str.split`` gives, numbered by a hash into 2**22 bins, so that about one pair of words in four
        million shares a number; no library needed), a folder (``tokenizer.json``, BERT's ``vocab.txt``, or
        whatever ``transformers`` reads), or a name of the hub, fetched by ``tokenizers``.

    Raises
    ------
    ValueError
        for a name that is none of these, a folder without a tokenizer, a hub that does not answer.
    ImportError
        when the library that reads it is missing.
    """
    if not isinstance(name, str | os.PathLike) or not os.fspath(name):
        raise ValueError(f"tokenizer must be a name or a folder, not {name!r}")
    text = os.fspath(name)
    if text == WHITESPACE:
        return Tokenisation(text)
    if text == "bert-base-uncased":
        return Tokenisation(text, load_tokenizer(text))
    folder = Path(text)
    if folder.is_dir():
        if (folder / "tokenizer.json").exists() or (folder / "vocab.txt").exists():
            return Tokenisation(text, _without_limits(load_tokenizer(folder)))
        return Tokenisation(text, _by_transformers(text))
    if folder.exists() or not HUB_NAME.fullmatch(text):
        raise ValueError(
            f"unknown tokenizer {text!r}: pass a folder that holds tokenizer.json or vocab.txt, a name of "
            f"the hub, 'bert-base-uncased' or {WHITESPACE!r}"
        )
    return Tokenisation(text, _from_hub(text))


def _without_limits(tokenizer):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_hub(name: str):
    import tokenizers

    try:
        return _without_limits(tokenizers.Tokenizer.from_pretrained(name))
    except Exception as error:  # the library raises plain Exception; the cause is kept
        what = " ".join(str(error).split())[:160]
        raise ValueError(
            f"tokenizer {name!r} is no folder here, and the hub did not give it ({what}); at hand without a "
            f"network: 'bert-base-uncased', {WHITESPACE!r}"
        ) from error


def _by_transformers(folder: str):
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ValueError(
            f"{folder} holds neither tokenizer.json nor vocab.txt; to read other tokenizers: pip install "
            "transformers"
        ) from error
    try:
        loaded = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
        return _without_limits(loaded.backend_tokenizer)
    except Exception as error:  # the library's errors share no base class; the cause is kept
        what = " ".join(str(error).split())[:160]
        raise ValueError(f"{folder} is no tokenizer's folder that transformers can read ({what})") from error
