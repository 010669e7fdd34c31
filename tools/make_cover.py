"""Draw the picture of the first page, book/cover.png: words by position, distances, a map.

    python tools/make_cover.py

The corpus is IMDB's reviews of at least 254 tokens, of which the first 48 positions are drawn; the distances
are corrected for sampling noise (chapter 9).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posgeom.corpora.named import load_corpus
from posgeom.counts.phrases import balanced
from posgeom.counts.positions import PositionalCounts
from posgeom.counts.tokens import encode, load_tokenizer
from posgeom.figures import COLOURS, DISTANCE_MAP, POSITION_MAP, PageFigure, canvas
from posgeom.geometry.mds import classical_mds
from posgeom.noise.correction import corrected_distances

ROOT = Path(__file__).resolve().parent.parent
COVER = ROOT / "book" / "cover.png"
LONG, POSITIONS = 254, 48
WORDS = ("i", "this", "movie", "the")
LABELLED = (0, 1, 2, 3, 5, 10)


def main() -> None:
    tokenizer = load_tokenizer()
    reviews = encode(load_corpus("imdb").texts, tokenizer, max_len=LONG + 2, special_tokens="drop")
    counts = PositionalCounts.from_ids(
        balanced(reviews, LONG)[:, :POSITIONS], vocab_size=tokenizer.get_vocab_size()
    )
    shares = {
        word: counts.distributions()[:, [tokenizer.token_to_id(word)]].toarray().ravel() for word in WORDS
    }
    distances = corrected_distances(counts)
    draw(shares, distances, classical_mds(distances, 2).points).savefig(COVER, dpi=130)
    print(f"wrote {COVER.relative_to(ROOT)}")


def draw(shares: dict[str, np.ndarray], distances: np.ndarray, points: np.ndarray) -> PageFigure:
    figure, ((words, table, plane),) = canvas(1, 3, alt="the picture of the first page", size=(10.8, 3.5))

    for (word, share), colour in zip(shares.items(), COLOURS, strict=False):
        words.plot(share, color=colour, label=word)
    words.set(title="words at each position", xlabel="position", ylabel="share of the reviews")
    words.set_ylim(0)
    words.legend()

    image = table.imshow(distances, cmap=DISTANCE_MAP)
    table.grid(False)
    table.set(title="distances of positions", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=table, shrink=0.8)

    plane.plot(*points.T, color="#c4c4c4", linewidth=1)
    plane.scatter(*points.T, c=np.arange(len(points)), cmap=POSITION_MAP, s=30, zorder=2)
    for i in LABELLED:
        plane.annotate(str(i), points[i], xytext=(5, 4), textcoords="offset points")
    plane.set(title="a map: one point a position", aspect="equal", xticks=[], yticks=[])
    plane.spines[:].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
