"""From texts to counts: which token stands how often at which position.

``PositionalCounts`` holds the counts ``c_iv`` of token v at position i; its rows, divided by their sums, are
the plug-in estimates of the positional distributions ``mu_i``. Balanced sets, maximal phrases and windows
choose which tokens of which texts are counted.
"""

from posgeom.counts.phrases import balanced, maximal_phrases
from posgeom.counts.positions import PositionalCounts, load_counts, shuffled
from posgeom.counts.tokenizers import open_tokenizer
from posgeom.counts.tokens import SPECIAL_TOKENS, encode, load_tokenizer
from posgeom.counts.windows import (
    from_sentences,
    random_windows,
    sentences,
    shuffled_sentences,
    windows_inside,
)

__all__ = [
    "SPECIAL_TOKENS",
    "PositionalCounts",
    "balanced",
    "encode",
    "from_sentences",
    "load_counts",
    "load_tokenizer",
    "maximal_phrases",
    "open_tokenizer",
    "random_windows",
    "sentences",
    "shuffled",
    "shuffled_sentences",
    "windows_inside",
]
