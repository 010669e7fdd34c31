"""Encodings of position as formulas, and all of them beside the distances of a corpus.

Each scheme is brought to one form, an ``(n, n)`` dissimilarity ``E`` of positions: the distance between
vectors that are added, of rotated copies, or the size of a bias. ``compare_schemes`` scores them against a
corpus's ``D``.
"""

from posgeom.encodings.comparison import (
    SCHEMES,
    Comparison,
    Row,
    alibi_heads,
    compare_schemes,
    encoding_distances,
    subspace_alignment,
)
from posgeom.encodings.formulas import (
    alibi_distances,
    alibi_slopes,
    apply_rope,
    cosines,
    learned,
    polynomials,
    power_line,
    random_gaussian,
    rope_distances,
    rope_frequencies,
    round_to_bfloat16,
    sinusoidal,
    t5_buckets,
)

__all__ = [
    "SCHEMES",
    "Comparison",
    "Row",
    "alibi_distances",
    "alibi_heads",
    "alibi_slopes",
    "apply_rope",
    "compare_schemes",
    "cosines",
    "encoding_distances",
    "learned",
    "polynomials",
    "power_line",
    "random_gaussian",
    "rope_distances",
    "rope_frequencies",
    "round_to_bfloat16",
    "sinusoidal",
    "subspace_alignment",
    "t5_buckets",
]
