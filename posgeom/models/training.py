"""One training loop: seeded, watched, limited in time, and resumable to the bit.

A model is anything with parameters; what it learns from is two functions, ``batch(generator)`` that draws
tensors and ``loss(model, *tensors)`` that scores them. Trackers look at the model as it learns.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from posgeom import checks
from posgeom.geometry import monotonicity
from posgeom.geometry.distances import euclidean_distances
from posgeom.models.encoder import Randomness, torch_generator

__all__ = [
    "History",
    "accuracy",
    "draws_from",
    "log_loss",
    "loss_over",
    "min_pairwise_distance",
    "squared_error",
    "train",
    "violation_rate",
    "whole_law",
]


class FiniteLaw(Protocol):
    """A joint law of texts and targets with finitely many cases, a case a row."""

    sequences: np.ndarray  # (m, n) token ids
    probabilities: np.ndarray  # (m,) non-negative, sum 1
    targets: np.ndarray  # (m,) values for the squared loss, labels for the log loss


Batch = Callable[[torch.Generator], tuple[Tensor, ...]]
Loss = Callable[..., Tensor]
Tracker = Callable[[nn.Module], float]

OPTIMISERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
FORMAT = 1
CASES_AT_ONCE = 512  # what fits a core's cache: a larger batch is slower


@dataclass(frozen=True, eq=False)
class History:
    """What a run left behind besides the trained model."""

    loss: np.ndarray  # (steps,) of the batch of each step, before that step
    steps: np.ndarray  # (k,) how many steps had been made at each look: 0, track_every, ..., the last
    tracked: dict[str, np.ndarray]  # name -> (k,) what each tracker saw
    seconds: float  # over all resumptions
    finished: bool  # False when the time limit came first


def train(
    model: nn.Module,
    batch: Batch,
    loss: Loss,
    *,
    steps: int,
    rng: Randomness,
    optimiser: str = "adam",
    learning_rate: float | Callable[[int], float] = 1e-3,
    weight_decay: float = 0.0,
    trackers: Mapping[str, Tracker] | None = None,
    track_every: int = 50,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    label: str | None = None,
) -> History:
    """Train ``model`` in place; it is left in evaluation mode.

    Parameters
    ----------
    model
        its trainable parameters are those that require a gradient.
    batch
        ``batch(generator)`` -> the tensors of one step, drawn with that generator and no other.
    loss
        ``loss(model, *tensors)`` -> a scalar tensor.
    steps
        in all, those before a resumption included.
    rng
        of the batches and of dropout: an int seed, a ``numpy.random.Generator`` or a ``torch.Generator``.
        Torch's global generator is as before when the run is over.
    optimiser
        ``"adam"``, ``"adamw"`` (decoupled decay) or ``"sgd"``.
    learning_rate
        a number, or a function of the steps made so far.
    trackers
        name -> function of the model (in evaluation mode, without gradients) to a number; looked at before
        the first step, after every ``track_every`` and after the last. Their draws do not disturb the run.
    time_limit
        in seconds, for this call; the run stops at the first step beyond it, ``History.finished`` False.
    checkpoint, checkpoint_every
        a safetensors file, written when the run ends and every so many steps; a write that fails leaves the
        file of before. It holds model, optimiser, generators, history and step, and no code.
    resume
        go on from ``checkpoint`` if it exists. On one thread the result is equal to the bit to that of a run
        without a break.
    label
        prints one line of this name when the run ends, and a running one in a terminal; ``None``: nothing.

    Raises
    ------
    ValueError
        naming a bad argument; a checkpoint of another model or other settings; or the step at which the loss
        stopped being a number.
    """
    steps = checks.positive_int(steps, "steps")
    track_every = checks.positive_int(track_every, "track_every")
    if optimiser not in OPTIMISERS:
        raise ValueError(f"optimiser must be one of {', '.join(OPTIMISERS)}, not {optimiser!r}")
    if checkpoint is None and (resume or checkpoint_every is not None):
        raise ValueError("checkpoint must name a file for resume or checkpoint_every to use")
    if checkpoint_every is not None:
        checks.positive_int(checkpoint_every, "checkpoint_every")
    if not callable(learning_rate):
        _non_negative(learning_rate, "learning_rate")
    _non_negative(weight_decay, "weight_decay")
    if time_limit is not None:
        _non_negative(time_limit, "time_limit")
    trackers = dict(trackers or {})
    generator = torch_generator(rng)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("model has no parameter that requires a gradient")
    state = _State(
        model,
        OPTIMISERS[optimiser](
            parameters,
            lr=0.0 if callable(learning_rate) else learning_rate,
            weight_decay=weight_decay,
            fused=True,  # one kernel for all parameters: small models spend their time in overhead
        ),
        generator,
        settings={
            "optimiser": optimiser,
            "learning_rate": "a function" if callable(learning_rate) else float(learning_rate),
            "weight_decay": float(weight_decay),
            "seed": generator.initial_seed(),
            "track_every": track_every,
            "trackers": sorted(trackers),
        },
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())  # of dropout
        if resume and Path(checkpoint).exists():
            state.load(Path(checkpoint), steps)
        before, start = state.seconds, time.monotonic()
        progress = _Progress(label, steps)
        while True:
            if state.step % track_every == 0 and state.looks[-1:] != [state.step]:
                state.look(trackers)
            state.seconds = before + time.monotonic() - start
            finished = state.step >= steps
            if finished or (time_limit is not None and state.seconds - before > time_limit):
                break
            if callable(learning_rate):
                for group in state.optimiser.param_groups:
                    group["lr"] = learning_rate(state.step)
            state.losses.append(_one_step(model, state.optimiser, loss, batch(generator), state.step))
            state.step += 1
            progress.show(state.step, state.losses[-1])
            if checkpoint_every is not None and state.step % checkpoint_every == 0 and state.step < steps:
                state.save(Path(checkpoint))
        if checkpoint is not None:
            state.save(Path(checkpoint))
        if state.looks[-1] != state.step:  # after the checkpoint: a run without a break would not look here
            state.look(trackers)
    progress.close(state, finished)
    return state.history(finished)


def _one_step(model: nn.Module, optimiser: torch.optim.Optimizer, loss: Loss, tensors, step: int) -> float:
    model.train()
    value = loss(model, *tensors)
    number = value.item()
    if not math.isfinite(number):
        raise ValueError(
            f"loss is {number} at step {step}: lower learning_rate, or look at the batch of that step"
        )
    optimiser.zero_grad()
    value.backward()
    optimiser.step()
    return number


class _State:
    """All that a run needs to go on: what a checkpoint holds."""

    def __init__(self, model: nn.Module, optimiser, generator: torch.Generator, settings: dict) -> None:
        self.model, self.optimiser, self.generator, self.settings = model, optimiser, generator, settings
        self.step, self.seconds = 0, 0.0
        self.losses: list[float] = []
        self.looks: list[int] = []
        self.seen: dict[str, list[float]] = {name: [] for name in settings["trackers"]}

    def look(self, trackers: Mapping[str, Tracker]) -> None:
        self.model.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for name, tracker in trackers.items():
                self.seen[name].append(float(tracker(self.model)))
        self.looks.append(self.step)

    def history(self, finished: bool) -> History:
        tracked = {name: np.array(values) for name, values in self.seen.items()}
        return History(np.array(self.losses), np.array(self.looks), tracked, self.seconds, finished)

    def save(self, path: Path) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for index, entries in self.optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser.{index}.{name}": torch.as_tensor(entry) for name, entry in entries.items()
            }
        tensors |= {
            "generator.batches": self.generator.get_state(),
            "generator.dropout": torch.get_rng_state(),
        }
        tensors["history.loss"] = torch.tensor(self.losses, dtype=torch.float64)
        tensors["history.steps"] = torch.tensor(self.looks, dtype=torch.int64)
        for name, values in self.seen.items():
            tensors[f"history.tracked.{name}"] = torch.tensor(values, dtype=torch.float64)
        about = {"format": FORMAT, "step": self.step, "seconds": self.seconds, "settings": self.settings}
        # Copies, because safetensors refuses tensors that share memory, as tied weights do.
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
        partial = path.with_name(path.name + ".partial")
        save_file(tensors, partial, metadata={"training": json.dumps(about)})
        os.replace(partial, path)

    def load(self, path: Path, steps: int) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads((file.metadata() or {})["training"])
                # Copies: a tensor that is a view keeps the file mapped, and Windows replaces no mapped file.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"checkpoint {path} is not one that train() wrote: {error}") from error
        if about["format"] != FORMAT:
            raise ValueError(
                f"checkpoint {path} has format {about['format']}, but this version reads {FORMAT}"
            )
        for name, value in self.settings.items():
            if about["settings"][name] != value:
                raise ValueError(
                    f"checkpoint {path} was made with {name} = {about['settings'][name]!r}, not {value!r}: "
                    "pass the same value, or resume=False to start anew"
                )
        if about["step"] > steps:
            raise ValueError(f"checkpoint {path} is at step {about['step']}, beyond steps = {steps}")
        try:
            self.model.load_state_dict(_under(tensors, "model."))
        except RuntimeError as error:
            raise ValueError(f"checkpoint {path} does not fit the model: {error}") from error
        entries: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(tensors, "optimiser.").items():
            index, entry = name.split(".", 1)
            entries.setdefault(int(index), {})[entry] = tensor
        self.optimiser.load_state_dict(self.optimiser.state_dict() | {"state": entries})
        self.generator.set_state(tensors["generator.batches"])
        torch.set_rng_state(tensors["generator.dropout"])
        self.step, self.seconds = about["step"], about["seconds"]
        self.losses, self.looks = tensors["history.loss"].tolist(), tensors["history.steps"].tolist()
        self.seen = {name: values.tolist() for name, values in _under(tensors, "history.tracked.").items()}


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class _Progress:
    """A running line in a terminal, and a last line anywhere; nothing without a label."""

    def __init__(self, label: str | None, steps: int) -> None:
        self.label, self.steps, self.shown = label, steps, 0.0
        self.live = label is not None and "BOOK_BUILD" not in os.environ and sys.stderr.isatty()

    def show(self, step: int, loss: float) -> None:
        if self.live and time.monotonic() - self.shown > 0.2:
            self.shown = time.monotonic()
            print(f"\r{self.label}: step {step} of {self.steps}, loss {loss:.4g}   ", end="", file=sys.stderr)

    def close(self, state: _State, finished: bool) -> None:
        if self.live:
            print("\r\033[K", end="", file=sys.stderr)
        if self.label is not None:
            loss = f"loss {state.losses[-1]:.4g}" if state.losses else "no loss yet"
            why = "" if finished else f" of {self.steps}, stopped by the time limit"
            print(f"{self.label}: {state.step} steps{why}, {loss}, {state.seconds:.1f} s")


# --- Batches and losses. A batch is (tokens, targets, weights), the weights of one batch summing to 1.


def whole_law(task: FiniteLaw) -> Batch:
    """Every step sees every case with its probability: the loss is the expected loss, no sample of it."""
    tensors = torch.tensor(task.sequences), torch.tensor(task.targets), torch.tensor(task.probabilities)
    return lambda generator: tensors


def draws_from(task: FiniteLaw, size: int) -> Batch:
    """Every step draws ``size`` cases from the law."""
    size = checks.positive_int(size, "size")
    tokens, targets, probabilities = whole_law(task)(torch.Generator())
    weights = torch.full((size,), 1 / size, dtype=torch.float64)

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        cases = torch.multinomial(probabilities, size, replacement=True, generator=generator)  # (size,)
        return tokens[cases], targets[cases], weights

    return batch


def squared_error(model: nn.Module, tokens: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """``sum_k w_k (f(x_k) - y_k)^2`` for a model with one output a text, ``(N, 1)`` or ``(N,)``."""
    predictions = model(tokens).reshape(len(tokens))  # (N,)
    return (weights.to(predictions.dtype) * (predictions - targets.to(predictions.dtype)) ** 2).sum()


def log_loss(model: nn.Module, tokens: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """``-sum_k w_k log softmax(f(x_k))[y_k]`` in nats, for outputs ``(N, labels)`` and labels 0, 1, ..."""
    losses = nn.functional.cross_entropy(model(tokens), targets.long(), reduction="none")  # (N,)
    return (weights.to(losses.dtype) * losses).sum()


# --- What to look at


def accuracy(model: nn.Module, task: FiniteLaw) -> float:
    """The probability, by the task's law, that the largest output is the label's, in [0, 1]: no sample."""
    right = []
    with torch.no_grad():
        for tokens, labels in zip(
            torch.tensor(task.sequences).split(CASES_AT_ONCE),
            torch.tensor(task.targets).split(CASES_AT_ONCE),
            strict=True,
        ):
            right.append(model(tokens).argmax(dim=1) == labels)  # (N,)
    return float(task.probabilities @ torch.cat(right).double().numpy())


def loss_over(loss: Loss, batch: Batch) -> Tracker:
    """A tracker of the loss on one fixed batch, the first that ``batch`` draws."""
    tensors = batch(torch_generator(0))
    return lambda model: loss(model, *tensors).item()


def min_pairwise_distance(model: nn.Module) -> float:
    """The smallest distance between two rows of the model's ``position_table()``, ``(n, d)``."""
    E = euclidean_distances(model.position_table())
    if len(E) < 2:
        raise ValueError("position_table has one position: a distance needs two")
    return float(E[np.triu_indices(len(E), 1)].min())


def violation_rate(model: nn.Module) -> float:
    """Share of triples of positions in which the nearer one has the farther vector; see ``monotonicity``."""
    return monotonicity.violation_rate(euclidean_distances(model.position_table()))


def _non_negative(value: float, name: str) -> None:
    if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number >= 0, not {value!r}")
