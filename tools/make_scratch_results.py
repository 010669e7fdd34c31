"""Train the encoders on SST-2 whose curves chapter 8 shows, and write the results that the package carries.

    POSGEOM_DATA=... python tools/make_scratch_results.py

One core, one thread, about a quarter of an hour. The text is not the project's to distribute; what became of
the position tables is a figure about it.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from posbook.experiments import scratch  # noqa: E402
from posgeom.corpora.named import load_corpus  # noqa: E402
from posgeom.counts.positions import PositionalCounts, shuffled  # noqa: E402
from posgeom.counts.tokens import VOCABULARY, encode, load_tokenizer  # noqa: E402
from posgeom.geometry.distances import hellinger_distances  # noqa: E402
from posgeom.geometry.monotonicity import violation_rate  # noqa: E402

MAX_LEN = 66
NULL_SHUFFLES = 10


def sst2() -> tuple[scratch.Labelled, scratch.Labelled, dict]:
    """The phrases, GLUE's development set as held-out texts, and where both come from."""
    phrases, held_out = load_corpus("sst2"), load_corpus("sst2", split="dev")
    ids = encode([*phrases.texts, *held_out.texts], load_tokenizer(), max_len=MAX_LEN, special_tokens="keep")
    texts, others = scratch.labelled(
        ids,
        np.concatenate([phrases.labels, held_out.labels]),
        n=MAX_LEN,
        held_out=np.arange(len(ids)) >= len(phrases),
    )
    source = {
        "train": {"texts": len(phrases), "sha256": phrases.sha256},
        "held_out": {"texts": len(held_out), "sha256": held_out.sha256},
        "tokens": f"bert-base-uncased, from {VOCABULARY}",
        "vocabulary_in_use": texts.vocab_size,
    }
    return texts, others, source


def null_violations(shuffles: int) -> dict[str, list[float]]:
    """Violation rates of plug-in distances, in the paper's setting, after shuffling within each phrase."""
    rng, tokenizer = np.random.default_rng(0), load_tokenizer()
    words = encode(load_corpus("sst2").texts, tokenizer, max_len=MAX_LEN, special_tokens="drop")
    sep = tokenizer.token_to_id("[SEP]")

    def rate(texts: list[np.ndarray]) -> float:
        counts = PositionalCounts.from_ids(texts, n=MAX_LEN - 1, vocab_size=tokenizer.get_vocab_size())
        return violation_rate(hellinger_distances(counts))

    def closed(texts: list[np.ndarray]) -> list[np.ndarray]:
        return [np.append(text, sep) for text in texts]

    return {
        "words": [rate(closed(shuffled(words, rng))) for _ in range(shuffles)],
        "words and [SEP]": [rate(shuffled(closed(words), rng)) for _ in range(shuffles)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = ROOT / "posbook" / "data" / scratch.RESULTS
    parser.add_argument("--output", type=Path, default=default, help="file to write")
    output = parser.parse_args().output
    torch.set_num_threads(1)
    texts, held_out, source = sst2()
    tracked = {kind: {} for kind in scratch.TRACKED}
    tables, seconds, steps = {}, 0.0, None
    for name, (task, recipe) in scratch.RUNS.items():
        found = []
        for seed in scratch.SEEDS:
            before = time.process_time()
            model, history = scratch.learn(
                texts, task, seed, recipe, held_out=held_out, label=f"{name}, seed {seed}"
            )
            seconds += time.process_time() - before
            found.append((history, model.position_table()))
        for kind in scratch.TRACKED:
            tracked[kind][name] = np.stack([history.tracked[kind] for history, _ in found])
        tables[name], steps = np.stack([table for _, table in found]), found[0][0].steps
    about = {
        "command": "python tools/make_scratch_results.py",
        "runs": {name: {"task": task} | asdict(recipe) for name, (task, recipe) in scratch.RUNS.items()},
        "seeds": list(scratch.SEEDS),
        "corpus": source,
        "null_violations": null_violations(NULL_SHUFFLES),
        "torch": torch.__version__,
        "core_minutes": round(seconds / 60, 1),
    }
    scratch.Results(steps, tracked, tables, about).save(output)
    runs = f"{len(tables)} runs of {len(scratch.SEEDS)} seeds"
    print(f"{output.name}: {runs}, {about['core_minutes']} minutes of one core")


if __name__ == "__main__":
    main()
