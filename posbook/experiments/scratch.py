"""A BERT-shaped encoder learns from scratch, and its position table is watched: tasks that need order or not.

The tasks share texts and differ in their labels alone, so that what the positions do can be told from what
they do anyway: under a label that order cannot change, and under a label that nothing can predict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from posgeom import checks
from posgeom.models.encoder import Encoder, EncoderConfig
from posgeom.models.training import History, min_pairwise_distance, train, violation_rate

__all__ = [
    "RUNS",
    "SEEDS",
    "TASKS",
    "TRACKED",
    "Labelled",
    "Recipe",
    "Results",
    "batches",
    "label_loss",
    "labelled",
    "learn",
    "load_results",
]

TASKS = {
    "sentiment": "the corpus's own labels",
    "shuffled": "the same labels, the words of a text in a new random order each time",
    "coin": "a coin is tossed for each text each time: there is nothing to learn",
    "order": "half of the texts have their words in random order: which half?",
}
"""Task -> what a text and its label are."""

RESULTS = "scratch_sst2.npz"
PADDING = 0
BUCKETS = 16


@dataclass(frozen=True, eq=False)
class Labelled:
    """Texts as one padded array: ``tokens`` (N, n) int32, ``lengths`` (N,), ``labels`` (N,), 0 or 1.

    Ids are those of the vocabulary in use: 0 is padding, ``vocab_size`` counts it. Each text is [CLS] words
    [SEP].
    """

    tokens: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    vocab_size: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n(self) -> int:
        """Positions."""
        return self.tokens.shape[1]


def labelled(
    ids: Sequence[np.ndarray], labels: np.ndarray, *, n: int, held_out: np.ndarray | None = None
) -> tuple[Labelled, Labelled | None]:
    """Texts for training and, where ``held_out`` marks some of them ``(N,)``, those; one vocabulary for all.

    ``ids`` hold [CLS] and [SEP] (``encode(..., special_tokens="keep")``), at most ``n`` each; ``labels`` are
    0 or 1. ``ValueError`` for a text that is longer or holds no word, or for labels of another kind.
    """
    n = checks.positive_int(n, "n", minimum=3)
    labels = np.asarray(labels)
    if labels.shape != (len(ids),) or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"labels must be {len(ids)} numbers 0 or 1, one a text, not {labels!r}")
    lengths = np.array([len(text) for text in ids])
    for index in np.flatnonzero((lengths > n) | (lengths < 3)):
        raise ValueError(f"text {index} of ids has {lengths[index]} tokens: 3 to n = {n} are wanted")
    flat = np.concatenate(ids)
    words, numbers = np.unique(flat, return_inverse=True)
    tokens = np.full((len(ids), n), PADDING, dtype=np.int32)
    tokens[np.arange(n) < lengths[:, None]] = numbers + 1
    out = np.zeros(len(ids), dtype=bool) if held_out is None else np.asarray(held_out, dtype=bool)
    kept, other = (
        Labelled(tokens[which], lengths[which], labels[which].astype(np.int64), len(words) + 1)
        for which in (~out, out)
    )
    return kept, other if out.any() else None


def batches(
    texts: Labelled, task: str, size: int
) -> Callable[[torch.Generator], tuple[Tensor, Tensor, Tensor]]:
    """For :func:`posgeom.models.training.train`: ``size`` texts with replacement -> tokens, mask, labels.

    Each batch comes from texts of similar length, so that little of it is padding; every text is as likely as
    any other. ``ValueError`` for a task that is not in :data:`TASKS`.
    """
    size = checks.positive_int(size, "size")
    cases = _Cases(texts, task)
    by_length = cases.lengths.argsort(stable=True).chunk(BUCKETS)
    shares = torch.tensor([len(bucket) / len(texts) for bucket in by_length])

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        bucket = by_length[torch.multinomial(shares, 1, generator=generator)]
        return cases.of(bucket[torch.randint(len(bucket), (size,), generator=generator)], generator)

    return batch


class _Cases:
    """What a task makes of texts: tokens, mask and labels."""

    def __init__(self, texts: Labelled, task: str) -> None:
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}, not {task!r}")
        self.task, self.tokens = task, torch.tensor(texts.tokens, dtype=torch.long)
        self.lengths, self.labels = torch.tensor(texts.lengths), torch.tensor(texts.labels)

    def of(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        lengths = self.lengths[which]
        longest = int(lengths.max())
        tokens, labels = self.tokens[which, :longest], self.labels[which]  # (N, longest), (N,)
        mask = (torch.arange(longest) < lengths[:, None]).long()  # (N, longest)
        if self.task in ("coin", "order"):
            labels = torch.randint(2, labels.shape, generator=generator)
        if self.task == "shuffled":
            tokens = _shuffled(tokens, lengths, generator)
        if self.task == "order":
            tokens = torch.where(labels[:, None] == 1, _shuffled(tokens, lengths, generator), tokens)
        return tokens, mask, labels


def _shuffled(tokens: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
    """The words of each row in random order; [CLS], [SEP] and padding stay where they are."""
    place = torch.arange(tokens.shape[1])
    is_word = (place > 0) & (place < lengths[:, None] - 1)  # (N, n)
    keys = torch.where(is_word, torch.rand(tokens.shape, generator=generator), place * 2.0 + 1.0)  # (N, n)
    keys[:, 0] = -1.0
    return tokens.gather(1, keys.argsort(dim=1))


def label_loss(model: nn.Module, tokens: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
    """Mean log loss of the label, in nats."""
    return nn.functional.cross_entropy(model(tokens, attention_mask=mask), labels)


@dataclass(frozen=True)
class Recipe:
    """All that a run depends on besides texts, task and seed. The shape is BERT's, the size is not."""

    layers: int = 2
    d: int = 64
    heads: int = 4
    dropout: float = 0.1
    steps: int = 2400
    batch: int = 32
    learning_rate: float = 1e-3
    track_every: int = 100

    def encoder(self, vocab_size: int, n: int, seed: int) -> Encoder:
        """Post-norm, GELU, normalised embeddings, learned positions of standard deviation .02, [CLS] read."""
        config = EncoderConfig(
            vocab_size=vocab_size, n=n, d=self.d, heads=self.heads, layers=self.layers, dropout=self.dropout,
            embedding_norm=True, readout="first", outputs=2,
        )  # fmt: skip
        return Encoder(config, rng=seed)


def learn(
    texts: Labelled,
    task: str,
    seed: int,
    recipe: Recipe,
    *,
    held_out: Labelled | None = None,
    label: str | None = None,
) -> tuple[Encoder, History]:
    """Train one encoder; the seed draws its first weights, the batches and dropout.

    The history tracks ``min_distance``, ``violations`` and ``movement`` = ``||P - P_0|| / ||P_0||`` of the
    position table, and ``accuracy`` on the first 2000 texts of ``held_out`` (or of ``texts``).
    """
    model = recipe.encoder(texts.vocab_size, texts.n, seed)
    first = model.position_table()
    seen = texts if held_out is None else held_out
    tokens, mask, labels = _Cases(seen, task).of(
        torch.arange(min(len(seen), 2000)), torch.Generator().manual_seed(0)
    )

    def accuracy(model: Encoder) -> float:
        return float((model(tokens, attention_mask=mask).argmax(dim=1) == labels).double().mean())

    def movement(model: Encoder) -> float:
        return float(np.linalg.norm(model.position_table() - first) / np.linalg.norm(first))

    history = train(
        model,
        batches(texts, task, recipe.batch),
        label_loss,
        steps=recipe.steps,
        rng=seed,
        learning_rate=recipe.learning_rate,
        trackers={
            "min_distance": min_pairwise_distance,
            "violations": violation_rate,
            "movement": movement,
            "accuracy": accuracy,
        },
        track_every=recipe.track_every,
        label=label,
    )
    return model, history


# --- the runs on SST-2 that come with the package


RECIPE = Recipe()
SLOW = replace(RECIPE, learning_rate=2e-5)
RUNS: dict[str, tuple[str, Recipe]] = {
    "sentiment": ("sentiment", RECIPE),
    "words in random order": ("shuffled", RECIPE),
    "coin": ("coin", RECIPE),
    "order": ("order", RECIPE),
    "sentiment, slow": ("sentiment", SLOW),
}
"""Name -> task and recipe of each run of ``tools/make_scratch_results.py``."""
SEEDS = (0, 1, 2)
TRACKED = ("min_distance", "violations", "movement", "accuracy")


@dataclass(frozen=True, eq=False)
class Results:
    """What the runs on SST-2 left behind; r runs of :data:`RUNS`, s seeds, k looks.

    ``steps`` (k,); ``tracked`` maps each of :data:`TRACKED` to a run's ``(s, k)``; ``tables`` a run to its
    final position tables ``(s, n, d)``; ``about`` says how they were made.
    """

    steps: np.ndarray
    tracked: dict[str, dict[str, np.ndarray]]
    tables: dict[str, np.ndarray]
    about: dict

    def save(self, path: Path) -> None:
        """Write an ``.npz`` without pickles."""
        arrays = {f"tracked/{kind}": np.stack(list(runs.values())) for kind, runs in self.tracked.items()}
        arrays["tables"] = np.stack(list(self.tables.values())).astype(np.float32)
        arrays |= {"steps": self.steps, "about": np.array(json.dumps(self.about))}
        np.savez_compressed(path, **arrays)


def load_results(path: Path | None = None) -> Results:
    """The runs on SST-2 that come with the package (``tools/make_scratch_results.py``), or another file."""
    if path is None:
        with resources.as_file(resources.files("posbook") / "data" / RESULTS) as own:
            return load_results(own)
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        runs = list(about["runs"])
        tracked = {kind: dict(zip(runs, file[f"tracked/{kind}"], strict=True)) for kind in TRACKED}
        tables = dict(zip(runs, file["tables"].astype(np.float64), strict=True))
        return Results(file["steps"], tracked, tables, about)
