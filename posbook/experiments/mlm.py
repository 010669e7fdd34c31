"""Masked-language modelling of short texts, and the texts for it: what becomes of the positions?

Ids are small: 0 is the mask, 1 stands for every word that is not among the commonest, and -1 is no token but
padding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from posgeom import checks
from posgeom.counts import tokens
from posgeom.counts.phrases import balanced
from posgeom.counts.positions import shuffled
from posgeom.counts.windows import random_windows
from posgeom.models.encoder import Encoder, EncoderConfig
from posgeom.models.training import Batch, History, Tracker, train, violation_rate

__all__ = [
    "MASK",
    "OTHER",
    "PADDING",
    "TEXTS",
    "Run",
    "markov_windows",
    "masked_batches",
    "masked_loss",
    "ragged",
    "recorded_runs",
    "small_vocabulary",
    "train_positions",
]

MASK, OTHER, PADDING = 0, 1, -1


def small_vocabulary(ids: Sequence[np.ndarray], vocab_size: int) -> list[np.ndarray]:
    """The same texts in ``vocab_size`` ids: the mask (unused), the rest, the commonest tokens from 2 on."""
    vocab_size = checks.positive_int(vocab_size, "vocab_size", minimum=3)
    texts = [tokens.text_ids(text, index) for index, text in enumerate(ids)]
    if not sum(text.size for text in texts):
        raise ValueError("ids holds no token")
    counts = np.bincount(np.concatenate(texts))
    small = np.full(counts.size, OTHER)
    commonest = np.argsort(-counts, kind="stable")[: vocab_size - 2]
    commonest = commonest[counts[commonest] > 0]
    small[commonest] = 2 + np.arange(commonest.size)
    return [small[text] for text in texts]


# --- Texts, (M, n), one rule each


def markov_windows(
    ids: Sequence[np.ndarray], n: int, n_windows: int, *, rng: np.random.Generator | int
) -> np.ndarray:
    """Windows ``(n_windows, n)`` of an exactly stationary Markov chain with the word pairs of a corpus.

    The texts are joined to a ring. A window begins with a token of a random place; what follows a token is
    what follows a random one of its occurrences in the ring. In a ring every token follows as often as it
    occurs, so all positions of a window have one law, that of the tokens, and every Hellinger distance
    between them is 0.
    """
    n, n_windows = checks.positive_int(n, "n"), checks.positive_int(n_windows, "n_windows")
    rng = checks.generator(rng)
    texts = [tokens.text_ids(text, index) for index, text in enumerate(ids)]
    ring = np.concatenate(texts) if texts else np.empty(0, dtype=np.int64)
    if not ring.size:
        raise ValueError("ids holds no token")
    places = np.argsort(ring, kind="stable")
    counts = np.bincount(ring)
    first = np.cumsum(counts) - counts
    windows = np.empty((n_windows, n), dtype=np.int64)
    windows[:, 0] = ring[rng.integers(0, ring.size, n_windows)]
    for i in range(1, n):
        before = windows[:, i - 1]
        occurrence = places[first[before] + rng.integers(0, counts[before])]
        windows[:, i] = ring[(occurrence + 1) % ring.size]
    return windows


def ragged(windows: np.ndarray, shortest: int, *, rng: np.random.Generator | int) -> np.ndarray:
    """Each row cut to a random length from ``shortest`` to n, all equally likely; padding beyond."""
    windows = np.asarray(windows)
    shortest = checks.positive_int(shortest, "shortest")
    if windows.ndim != 2 or shortest > windows.shape[1]:
        raise ValueError(f"windows must be (M, n) with n >= shortest = {shortest}, not {windows.shape}")
    lengths = checks.generator(rng).integers(shortest, windows.shape[1] + 1, len(windows))
    return np.where(np.arange(windows.shape[1]) < lengths[:, None], windows, PADDING)


Source = Callable[[Sequence[np.ndarray], int, int, np.random.Generator], np.ndarray]
SHORTEST = 4

# Name -> texts (n_texts or fewer, n) from (ids, n, n_texts, rng).
TEXTS: Mapping[str, Source] = {
    "beginnings": lambda ids, n, n_texts, rng: balanced(ids, n)[:n_texts],
    "windows": lambda ids, n, n_texts, rng: random_windows(ids, n, n_texts, rng=rng),
    "Markov": lambda ids, n, n_texts, rng: markov_windows(ids, n, n_texts, rng=rng),
    "shuffled": lambda ids, n, n_texts, rng: shuffled(random_windows(ids, n, n_texts, rng=rng), rng),
    "ragged": lambda ids, n, n_texts, rng: ragged(
        random_windows(ids, n, n_texts, rng=rng), SHORTEST, rng=rng
    ),
    # Cutting an exchangeable row leaves its first tokens exchangeable.
    "ragged shuffled": lambda ids, n, n_texts, rng: ragged(
        shuffled(random_windows(ids, n, n_texts, rng=rng), rng), SHORTEST, rng=rng
    ),
    # Every place keeps its own words, and loses those of the other places.
    "independent": lambda ids, n, n_texts, rng: rng.permuted(balanced(ids, n)[:n_texts], axis=0),
}


# --- Masked-language modelling


def masked_batches(texts: np.ndarray, size: int, *, rate: float = 0.15) -> Batch:
    """Every step draws ``size`` texts and masks each of their tokens with probability ``rate``.

    ``texts`` is ``(M, n)`` with :data:`PADDING` at the end of short ones. A batch is (inputs, targets,
    chosen, real), all ``(size, n)``: the masked tokens, the tokens, which of them are masked, which are no
    padding. At least one token is masked.
    """
    size = checks.positive_int(size, "size")
    if not 0 < rate <= 1:
        raise ValueError(f"rate must be a probability > 0, not {rate!r}")
    pool = torch.as_tensor(np.asarray(texts))
    if pool.ndim != 2 or pool.is_floating_point() or not (pool >= 0).any(dim=1).all():
        raise ValueError("texts must be (M, n) integers, at least one token in each row")

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        targets = pool[torch.randint(len(pool), (size,), generator=generator)]  # (size, n)
        real = targets >= 0
        lots = torch.rand(targets.shape, generator=generator).masked_fill(~real, 2.0)
        chosen = (lots < rate) | (lots == lots.min())
        inputs = targets.masked_fill(chosen | ~real, MASK)
        return inputs, targets, chosen, real

    return batch


def masked_loss(model: Encoder, inputs: Tensor, targets: Tensor, chosen: Tensor, real: Tensor) -> Tensor:
    """Mean log loss, in nats, of the masked tokens."""
    mask = None if real.all() else real
    hidden = model.hidden_states(inputs, attention_mask=mask)[-1]  # (size, n, d)
    return nn.functional.cross_entropy(model.head(hidden[chosen]), targets[chosen])


class Run(NamedTuple):
    """A trained model's positions: ``history``, and the table before and after, ``(n, d)``."""

    history: History
    before: np.ndarray
    after: np.ndarray


def train_positions(
    texts: np.ndarray,
    vocab_size: int,
    *,
    steps: int,
    rng: int,
    d: int = 64,
    layers: int = 2,
    heads: int = 4,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    position_std: float = 0.02,
    trackers: Mapping[str, Tracker] | None = None,
    track_every: int = 50,
) -> Run:
    """Train this book's encoder with learned positions on masked texts ``(M, n)``, by AdamW (decay 0.01).

    ``rng`` is the seed of weights, batches and masks. Tracked: the violation rate of the positions, and
    ``trackers``.
    """
    n = np.asarray(texts).shape[1]
    config = EncoderConfig(
        vocab_size=vocab_size,
        n=n,
        d=d,
        layers=layers,
        heads=heads,
        outputs=vocab_size,
        position_std=position_std,
    )
    model = Encoder(config, rng=rng)
    before = model.position_table()
    history = train(
        model,
        masked_batches(texts, batch_size),
        masked_loss,
        steps=steps,
        rng=rng,
        optimiser="adamw",
        learning_rate=learning_rate,
        weight_decay=0.01,
        trackers={"violation_rate": violation_rate, **(trackers or {})},
        track_every=track_every,
    )
    return Run(history, before, model.position_table())


def recorded_runs() -> dict:
    """The runs that come with the package, written by ``tools/make_mlm_results.py``, as it says.

    ``["settings"]`` of all, and ``["runs"]``: arm -> a list of runs, one a seed, each with its curves
    ``violation_rate``, ``spearman_hellinger``, ``spearman_lag`` and ``loss``.
    """
    file = resources.files("posbook") / "data" / "mlm_monotonicity.json"
    return json.loads(file.read_text(encoding="utf-8"))
