"""Write the positional counts of SST-2 that the package carries, from the text.

    POSGEOM_DATA=... python tools/make_counts.py

The text is not the project's to distribute; how often a token stands at a position is a figure about it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from posgeom.corpora.named import Corpus, load_corpus  # noqa: E402
from posgeom.counts.phrases import balanced, maximal_phrases  # noqa: E402
from posgeom.counts.positions import COUNTS, PositionalCounts  # noqa: E402
from posgeom.counts.tokens import VOCABULARY, VOCABULARY_SHA256, encode, load_tokenizer  # noqa: E402

MAX_LEN = 66
N_BALANCED = 20
NOTE_FILE = "counts.md"

NOTE = """\
# Positional counts of SST-2

Written by `tools/make_counts.py`; do not edit. `posgeom.counts.positions.load_counts` reads them, and a test
computes them again where the text is at hand. The text is not in this repository.

- Text: {source}; {texts:,} phrases. SHA-256 of the file:
  `{sha256}`
- Tokens: `bert-base-uncased`, the vocabulary of PyPI `{vocabulary}`. SHA-256:
  `{vocabulary_sha256}`

`{sst2_file}`, `load_counts("sst2")`: the paper's setting. Every phrase, maximal length {max_len} with [CLS]
and [SEP] counted; then [CLS] is dropped and [SEP] kept.
{sst2}

`{b_sst2_file}`, `load_counts("b_sst2")`: the balanced set. Of the phrases, {maximal:,} are maximal: in
tokens, not a contiguous part of another phrase (of equal phrases the first counts). Of these, {balanced:,}
have at least {n_balanced} tokens and are cut to the first {n_balanced}; no [CLS], no [SEP].
{b_sst2}

Each file is a CSR matrix (n, V) of int64 counts as `scipy.sparse.save_npz` writes it, without pickles: row i
counts the tokens at position i.
"""


def compute(corpus: Corpus) -> tuple[dict[str, PositionalCounts], str]:
    """Both counts, and the note that says how they were made."""
    tokenizer = load_tokenizer()
    counts = {
        "sst2": PositionalCounts.from_texts(corpus.texts, tokenizer, n=MAX_LEN - 1, special_tokens="drop_cls")
    }
    # Longer than any phrase: one that is cut could look like a part of another one.
    ids = encode(corpus.texts, tokenizer, max_len=1 << 20, special_tokens="drop")
    maximal = maximal_phrases(ids)
    body = balanced([ids[index] for index in maximal], N_BALANCED)
    counts["b_sst2"] = PositionalCounts.from_ids(body, vocab_size=counts["sst2"].vocab_size)
    note = NOTE.format(
        source=corpus.source,
        sha256=corpus.sha256,
        texts=len(corpus),
        vocabulary=VOCABULARY,
        vocabulary_sha256=VOCABULARY_SHA256,
        max_len=MAX_LEN,
        n_balanced=N_BALANCED,
        maximal=len(maximal),
        balanced=len(body),
        **{f"{name}_file": file for name, file in COUNTS.items()},
        **{name: _summary(counts[name]) for name in COUNTS},
    )
    return counts, note


def _summary(counts: PositionalCounts) -> str:
    totals = counts.totals
    return (
        f"n = {counts.n}, V = {counts.vocab_size:,}; {totals[0]:,} texts at the first position, "
        f"{totals[-1]:,} at the last; {totals.sum():,} tokens in all."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "posgeom" / "data", help="folder to write to")
    output = parser.parse_args().output
    counts, note = compute(load_corpus("sst2"))
    output.mkdir(parents=True, exist_ok=True)
    for name, file in COUNTS.items():
        counts[name].save(output / file)
        print(f"{output / file}: {counts[name]}")
    (output / NOTE_FILE).write_text(note, encoding="utf-8")


if __name__ == "__main__":
    main()
