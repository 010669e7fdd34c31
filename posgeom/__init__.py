"""The geometry of positional encodings: a corpus's positions, their distances, and encodings that fit them.

A folder is a concept: texts flow ``corpora -> counts -> geometry -> noise, encodings -> laws -> diagnosis``;
``models`` stands beside ``encodings``. The names that a first user needs are here, loaded when they are asked
for: importing the package loads neither numpy nor torch.

Reference: G. Cirrincione, *On the Geometry of Positional Encodings in Transformers*, arXiv 2604.05217.
"""

from posgeom._lazy import attach

__version__ = "0.2.0"

_HOMES = {
    "Corpus": "posgeom.corpora",
    "CorpusError": "posgeom.corpora",
    "load_corpus": "posgeom.corpora",
    "PositionalCounts": "posgeom.counts",
    "encode": "posgeom.counts",
    "load_counts": "posgeom.counts",
    "load_tokenizer": "posgeom.counts",
    "classical_mds": "posgeom.geometry",
    "euclidean_distances": "posgeom.geometry",
    "gram_matrix": "posgeom.geometry",
    "hellinger_distances": "posgeom.geometry",
    "smacof": "posgeom.geometry",
    "stress": "posgeom.geometry",
    "violation_rate": "posgeom.geometry",
    "SCHEMES": "posgeom.encodings",
    "compare_schemes": "posgeom.encodings",
    "corrected_distances": "posgeom.noise",
    "sampling_floor": "posgeom.noise",
    "signal_rank": "posgeom.noise",
    "fit_power_line": "posgeom.laws",
    "diagnose": "posgeom.diagnosis",
}
__all__ = [
    "SCHEMES",
    "Corpus",
    "CorpusError",
    "PositionalCounts",
    "classical_mds",
    "compare_schemes",
    "corrected_distances",
    "diagnose",
    "encode",
    "euclidean_distances",
    "fit_power_line",
    "gram_matrix",
    "hellinger_distances",
    "load_corpus",
    "load_counts",
    "load_tokenizer",
    "sampling_floor",
    "signal_rank",
    "smacof",
    "stress",
    "violation_rate",
]
__getattr__, __dir__ = attach(__name__, _HOMES)
