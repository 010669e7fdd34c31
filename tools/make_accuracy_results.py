"""Train the encoders of chapter 11, one for every scheme, task and seed, and write what became of them.

    python tools/make_accuracy_results.py

The text is IMDB's, from a package; nothing is downloaded. One core, one thread, about an hour. The file
is written after every run, and a later call goes on where an earlier one stopped: learning rates first, on a
seed of their own, then one seed after the other, so that a file that ends early is the experiment with fewer
seeds; last a few schemes with four times the steps.

``posbook/data/stress_accuracy.json`` holds, for each run, validation and test accuracy, the last training
loss, how many parameters the scheme trained, and the scheme's stress after training. Written by this tool,
read by ``posbook.experiments.accuracy.load_results``.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from posbook.experiments import accuracy  # noqa: E402
from posbook.experiments.accuracy import Budget  # noqa: E402
from posgeom.corpora.named import Corpus, load_corpus  # noqa: E402


def make(
    path: Path, corpus: Corpus, budget: Budget, names: list[str] | None = None, limit: int | None = None
) -> None:
    """All runs that ``path`` lacks, or ``limit`` of them, written after each. ``names``: only these arms."""
    texts = accuracy.beginnings(corpus, budget)
    geometry = accuracy.geometry(texts)
    arms = accuracy.arms(geometry, budget)
    names = list(arms) if names is None else names
    about = {
        "command": "python tools/make_accuracy_results.py",
        "source": corpus.source,
        "sha256": corpus.sha256,
        "settings": accuracy.settings(budget),
        "arms": {
            name: {"scheme": arms[name].scheme, "family": arms[name].family, "scale": arms[name].scale}
            for name in names
        },
        "texts": {part: len(getattr(texts, part).tokens) for part in ("train", "validation", "test")},
        "signal_rank": geometry.rank,
        "exponent": round(geometry.exponent, 4),
    }
    results = accuracy.load_results(path) if path.exists() else about | {"runs": [], "longer": []}
    results.setdefault("longer", [])
    if {key: results.get(key) for key in about} != about:
        raise SystemExit(f"{path} was made with other settings or another corpus: delete it to start anew")
    limit = math.inf if limit is None else limit
    common = {"texts": texts, "geometry": geometry}

    def keep(kind: str, run: dict) -> None:
        results[kind].append(run)
        accuracy.write_results(path, results)
        about_run = f"{run['task']}, {run['arm']}, seed {run['seed']}, rate {run['learning_rate']}"
        print(f"{kind}: {about_run}: {run['validation']:.3f}", flush=True)

    # The learning rates of the second half of the plan are known when the first half is done.
    while limit > 0 and (todo := accuracy.plan(names, results["runs"], budget)):
        for name, task, seed, rate in todo[: min(limit, len(todo))]:
            keep("runs", accuracy.one_run(arms[name], task, seed, rate, budget=budget, **common))
            limit -= 1
    rates = accuracy.chosen_rates(results["runs"])
    longer = replace(budget, order_steps=accuracy.LONGER_FACTOR * budget.order_steps)
    todo = accuracy.longer_plan(names, results["longer"])
    for name, seed in todo[: min(limit, len(todo))]:
        rate = rates["order", name]
        keep("longer", accuracy.one_run(arms[name], "order", seed, rate, budget=longer, **common))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = ROOT / "posbook" / "data" / accuracy.RESULTS
    parser.add_argument("--output", type=Path, default=default, help="file to write or to go on with")
    output = parser.parse_args().output
    torch.set_num_threads(1)
    make(output, load_corpus("imdb"), accuracy.BUDGET)
    print(f"{output.name}: {len(accuracy.load_results(output)['runs'])} runs")


if __name__ == "__main__":
    main()
