"""Write the masked-language-modelling runs of chapter 4 that are too many for a page, from the text of IMDB.

    python tools/make_mlm_results.py

It goes on where an earlier call with the same settings stopped. On one core a run takes about half a minute,
all of them half an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from posbook.experiments.mlm import TEXTS, small_vocabulary, train_positions  # noqa: E402
from posgeom.corpora.named import Corpus, load_corpus  # noqa: E402
from posgeom.counts.positions import PositionalCounts  # noqa: E402
from posgeom.counts.tokens import encode, load_tokenizer  # noqa: E402
from posgeom.encodings.formulas import alibi_distances  # noqa: E402
from posgeom.geometry.distances import euclidean_distances, hellinger_distances  # noqa: E402
from posgeom.geometry.monotonicity import violation_rate  # noqa: E402
from posgeom.geometry.stress import rank_agreement  # noqa: E402
from posgeom.models.ntk import aitchison_distances  # noqa: E402

FILE = ROOT / "posbook" / "data" / "mlm_monotonicity.json"
SETTINGS = {
    "n": 16,
    "vocab_size": 1000,
    "longest_text": 254,
    "pool": 100_000,
    "steps": 2000,
    "track_every": 50,
    "seeds": 5,
}
# What differs from the common settings of train_positions: name -> (texts, changes).
ARMS = {name: (name, {}) for name in TEXTS} | {
    "beginnings, slow": ("beginnings", {"learning_rate": 1e-4}),
    "beginnings, wide start": ("beginnings", {"position_std": 1.0}),
}

# Where the laws of the places differ, all three of their geometries are compared with the learned distances.
PLACES_DIFFER = ("beginnings", "independent")


def one_run(ids: list[np.ndarray], arm: str, seed: int, settings: dict) -> dict:
    """A run's curves: violation rate, Spearman correlations of its distances, loss; and how far P moved."""
    source, changes = ARMS[arm]
    n, vocab_size = settings["n"], settings["vocab_size"]
    texts = TEXTS[source](ids, n, settings["pool"], np.random.default_rng([seed, list(TEXTS).index(source)]))
    counts = PositionalCounts.from_ids([text[text >= 0] for text in texts], n=n, vocab_size=vocab_size)
    D, lag = hellinger_distances(counts), alibi_distances(n)
    geometries = {"hellinger": D, "lag": lag}
    if source in PLACES_DIFFER:
        probabilities = counts.counts.toarray() + 0.5
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        geometries |= {
            "euclid": euclidean_distances(probabilities),
            "aitchison": aitchison_distances(probabilities),
        }
    trackers = {
        f"spearman_{name}": lambda model, other=other: rank_agreement(
            euclidean_distances(model.position_table()), other
        )[0]
        for name, other in geometries.items()
    }
    run = train_positions(
        texts,
        vocab_size,
        steps=settings["steps"],
        rng=seed,
        trackers=trackers,
        track_every=settings["track_every"],
        **changes,
    )
    every = settings["track_every"]
    loss = run.history.loss.reshape(-1, every).mean(axis=1)
    return {
        "seed": seed,
        **{name: np.round(curve, 4).tolist() for name, curve in sorted(run.history.tracked.items())},
        "loss": np.round(loss, 4).tolist(),
        "moved": round(float(np.linalg.norm(run.after - run.before) / np.linalg.norm(run.before)), 4),
        "hellinger_violation_rate": round(violation_rate(D), 4),
        "hellinger_spearman_lag": round(rank_agreement(D, lag)[0], 4),
    }


def make(path: Path, corpus: Corpus, settings: dict, arms: list[str]) -> None:
    """All runs that ``path`` lacks, written after each of them."""
    about = {
        "command": "python tools/make_mlm_results.py",
        "source": corpus.source,
        "sha256": corpus.sha256,
        "settings": settings,
    }
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else about | {"runs": {}}
    if {name: results.get(name) for name in about} != about:
        raise SystemExit(f"{path} was made with other settings or another corpus: delete it to start anew")
    ids = encode(corpus.texts, load_tokenizer(), max_len=settings["longest_text"] + 2, special_tokens="drop")
    ids = small_vocabulary(ids, settings["vocab_size"])
    for seed in range(settings["seeds"]):
        for arm in arms:
            done = results["runs"].setdefault(arm, [])
            if seed in [run["seed"] for run in done]:
                continue
            done.append(one_run(ids, arm, seed, settings))
            done.sort(key=lambda run: run["seed"])
            write(path, results)
            print(f"{arm}, seed {seed}: violation rate {done[-1]['violation_rate'][-1]:.3f}", flush=True)


def write(path: Path, results: dict) -> None:
    """JSON with one line a curve."""
    runs = ",\n".join(
        f" {json.dumps(arm)}: [\n"
        + ",\n".join(
            "  {" + ",\n   ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in run.items()) + "}"
            for run in done
        )
        + "\n ]"
        for arm, done in results["runs"].items()
    )
    head = "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in results.items() if k != "runs")
    partial = path.with_name(path.name + ".partial")
    partial.write_text("{" + head + '"runs": {\n' + runs + "\n}}\n", encoding="utf-8")
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=FILE, help="file to write or to go on with")
    parser.add_argument("--arm", action="append", choices=list(ARMS), help="only this one; may be repeated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    make(options.output, load_corpus("imdb"), SETTINGS, options.arm or list(ARMS))


if __name__ == "__main__":
    main()
