"""Texts: corpora by name or from a file, and synthetic ones whose law is known.

A corpus is a list of texts with its source and its checksum. The synthetic corpora return the true
distribution ``mu_i`` of each position beside a sampler, so that an estimate can be held beside what it
estimates.
"""

from posgeom.corpora.files import CorpusError
from posgeom.corpora.named import CORPORA, Corpus, load_corpus
from posgeom.corpora.streams import HubError, TextSource
from posgeom.corpora.synthetic import Law, blocks, independent, smooth, stationary, without_order

__all__ = [
    "CORPORA",
    "Corpus",
    "CorpusError",
    "HubError",
    "Law",
    "TextSource",
    "blocks",
    "independent",
    "load_corpus",
    "smooth",
    "stationary",
    "without_order",
]
