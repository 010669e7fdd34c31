"""Does the stress of a positional scheme predict the accuracy of a model that uses it?

One small encoder learns from the same texts with every scheme, within one budget: to tell a text from the
same text with two words exchanged, which nobody can do without positions, and to tell good reviews from bad,
for which words are nearly enough. Every scheme also has a stress. What remains is to hold one against the
other.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from posbook.experiments.intervals import mean_and_interval
from posbook.experiments.mlm import small_vocabulary
from posgeom import checks
from posgeom.corpora.named import Corpus
from posgeom.counts.positions import PositionalCounts
from posgeom.counts.tokens import encode, load_tokenizer
from posgeom.encodings.formulas import (
    alibi_distances,
    alibi_slopes,
    learned,
    power_line,
    random_gaussian,
    rope_distances,
    sinusoidal,
    t5_buckets,
)
from posgeom.geometry.distances import euclidean_distances, hellinger_distances
from posgeom.geometry.mds import classical_mds, low_rank
from posgeom.geometry.stress import optimal_scale, stress
from posgeom.laws.power_line import fit_power_line
from posgeom.laws.relaxation import places
from posgeom.models.encoder import Encoder, EncoderConfig, PositionScheme, Rope
from posgeom.models.training import train
from posgeom.noise.correction import corrected_distances

__all__ = [
    "BUDGET",
    "LONGER_ARMS",
    "SCALES",
    "STRESSES",
    "TASKS",
    "TUNING_SEED",
    "Arm",
    "Beginnings",
    "Budget",
    "Correlation",
    "Geometry",
    "Outcome",
    "accuracy",
    "arms",
    "beginnings",
    "between_groups",
    "build",
    "chosen_rates",
    "geometry",
    "load_results",
    "longer_plan",
    "one_run",
    "outcomes",
    "plan",
    "rank_correlation",
    "settings",
    "swapped",
    "write_results",
]

TASKS = {
    "order": "a text, and the same text with two words exchanged: which is the original?",
    "sentiment": "a review's first words: is the review good or bad?",
}
STRESSES = ("raw", "scaled", "corrected")
SCALES = ("native", "fitted", "unit")
RESULTS = "stress_accuracy.json"
TUNING_SEED = 0
# Do they come to the same in the end? These train again in the order task, so many times as long.
LONGER_ARMS = ("sinusoid", "corrected MDS", "learned", "RoPE", "ALiBi", "power bias, stretched")
LONGER_SEEDS = (1, 2, 3)
LONGER_FACTOR = 4
# Scores this close differ by rounding: two texts that a model cannot tell apart are a tie.
ROUNDING = 1e-5
CASES_AT_ONCE = 500


@dataclass(frozen=True)
class Budget:
    """What every run has alike. ``batch`` counts texts: half of them are originals in the order task."""

    n: int = 16
    vocab_size: int = 1000
    d: int = 64
    heads: int = 4
    layers: int = 1
    batch: int = 64
    order_steps: int = 1000
    sentiment_steps: int = 300
    warm_up: int = 50
    weight_decay: float = 0.01
    validation: int = 2500
    test: int = 5000
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)

    def steps(self, task: str) -> int:
        """Training steps of a task."""
        return {"order": self.order_steps, "sentiment": self.sentiment_steps}[_task(task)]


BUDGET = Budget()


def _task(task: str) -> str:
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, not {task!r}")
    return task


# --- Texts and tasks


class Part(NamedTuple):
    """``tokens`` (M, n) int64, ``labels`` (M,), 0 or 1."""

    tokens: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Beginnings:
    """The first n words of texts in three parts that have no text in common."""

    train: Part
    validation: Part
    test: Part


def beginnings(corpus: Corpus, budget: Budget = BUDGET) -> Beginnings:
    """The first n tokens of every text that has as many, in the ids of the commonest ones.

    Of texts with equal beginnings the first stays. A text whose beginning is one token n times is left out:
    no two of its words can be exchanged. The parts are drawn at random, always alike.
    """
    if corpus.labels is None:
        raise ValueError(f"corpus {corpus.name!r} has no labels, and sentiment needs them")
    n = budget.n
    # A token is part of one word, so n words hold the first n tokens: the rest need not be tokenised.
    heads = [" ".join(text.split()[: n + 1]) for text in corpus.texts]
    ids = encode(heads, load_tokenizer(), max_len=n + 2, special_tokens="drop")
    full = np.array([index for index, text in enumerate(ids) if len(text) == n])
    stacked = np.stack([ids[index] for index in full])
    first = np.sort(np.unique(stacked, axis=0, return_index=True)[1])
    small = np.stack(small_vocabulary(list(stacked[first]), budget.vocab_size))
    usable = (small != small[:, :1]).any(axis=1)
    tokens, labels = small[usable], corpus.labels[full[first]][usable]
    held_out = budget.validation + budget.test
    if len(tokens) <= held_out:
        raise ValueError(f"corpus has {len(tokens)} usable texts, but {held_out} are to be held out")
    order = np.random.default_rng(0).permutation(len(tokens))
    parts = np.split(order, [budget.test, held_out])
    test, validation, rest = (Part(torch.tensor(tokens[p]), torch.tensor(labels[p])) for p in parts)
    return Beginnings(rest, validation, test)


def swapped(tokens: Tensor, generator: torch.Generator) -> Tensor:
    """Each row ``(M, n)`` with two of its tokens exchanged, a pair of different ones, all equally likely.

    ``ValueError`` for a row that holds one token only.
    """
    same = (tokens == tokens[:, :1]).all(dim=1).nonzero()
    if len(same):
        raise ValueError(f"text {same[0].item()} of tokens holds one token only: an exchange changes nothing")
    rows, n = torch.arange(len(tokens)), tokens.shape[1]
    i, j = (torch.zeros(len(tokens), dtype=torch.long) for _ in range(2))
    again = rows
    while len(again):
        i[again] = torch.randint(n, again.shape, generator=generator)
        j[again] = torch.randint(n, again.shape, generator=generator)
        again = (tokens[rows, i] == tokens[rows, j]).nonzero()[:, 0]
    other = tokens.clone()
    other[rows, i], other[rows, j] = tokens[rows, j], tokens[rows, i]
    return other


def _batches(part: Part, task: str, size: int) -> Callable[[torch.Generator], tuple[Tensor, Tensor]]:
    def order(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        which = torch.randint(len(part.tokens), (size // 2,), generator=generator)
        originals = part.tokens[which]
        return originals, swapped(originals, generator)

    def sentiment(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        which = torch.randint(len(part.tokens), (size,), generator=generator)
        return part.tokens[which], part.labels[which]

    return {"order": order, "sentiment": sentiment}[_task(task)]


def _order_loss(model: Encoder, originals: Tensor, others: Tensor) -> Tensor:
    """``-log sigmoid(f(original) - f(other))``, the log loss of the choice between the two."""
    scores = model(torch.cat([originals, others]))[:, 0]  # (2 M,)
    one, other = scores.chunk(2)
    return nn.functional.softplus(other - one).mean()


def _sentiment_loss(model: Encoder, tokens: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(model(tokens)[:, 0], labels.float())


_LOSSES = {"order": _order_loss, "sentiment": _sentiment_loss}


def accuracy(model: Encoder, part: Part, task: str) -> float:
    """The share of right answers, in [0, 1].

    In the order task the text with the higher score is called the original; a tie, up to rounding, is half
    right. Which words are exchanged is the same at every call.
    """

    def scores(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([model(some)[:, 0] for some in tokens.split(CASES_AT_ONCE)]).double()

    own = scores(part.tokens)
    if _task(task) == "sentiment":
        return float(((own > 0) == part.labels.bool()).double().mean())
    lead = own - scores(swapped(part.tokens, torch.Generator().manual_seed(0)))
    tie = lead.abs() <= ROUNDING * own.abs().clamp(min=1.0)
    return float(torch.where(tie, 0.5, (lead > 0).double()).mean())


# --- What the corpus says about its positions


@dataclass(frozen=True, eq=False)
class Geometry:
    """Distances between the positions of the training texts, ``(n, n)`` each.

    ``plug_in``: Hellinger distances as counted. ``corrected``: without sampling noise, along ``rank`` axes.
    ``exponent``: of the power line closest to ``corrected``.
    """

    plug_in: np.ndarray
    corrected: np.ndarray
    rank: int
    exponent: float

    def stresses(self, E: np.ndarray) -> dict[str, float]:
        """Raw stress (the paper's), stress at the best scale, and that against ``corrected``."""
        return {
            "raw": stress(E, self.plug_in),
            "scaled": stress(E, self.plug_in, scale="optimal"),
            "corrected": stress(E, self.corrected, scale="optimal"),
        }


def geometry(texts: Beginnings) -> Geometry:
    """What an encoding made from the corpus can know: the training texts' positions, in the model's words."""
    tokens = texts.train.tokens.numpy()
    counts = PositionalCounts.from_ids(tokens, vocab_size=int(tokens.max()) + 1)
    corrected = corrected_distances(counts, rank="edge", tokens=tokens, n_null=99, rng=0)
    rank = classical_mds(corrected).rank
    return Geometry(hellinger_distances(counts), corrected, rank, fit_power_line(corrected).exponent)


# --- Schemes


class Vectors(PositionScheme):
    """Adds row i of ``rows`` (n, d) at position i; trained when asked for."""

    def __init__(self, rows: np.ndarray, *, trained: bool = False) -> None:
        super().__init__(None)
        rows = torch.tensor(rows, dtype=torch.float32)  # (n, d)
        if trained:
            self.rows = nn.Parameter(rows)
        else:
            self.register_buffer("rows", rows)

    def table(self) -> Tensor:
        return self.rows  # (n, d)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table()[positions]  # (N, n, d)


class Factors(Vectors):
    """Adds row i of ``A B^T``, A ``(n, r)`` and B ``(d, r)``, both trained: r (n + d) numbers."""

    def __init__(self, A: np.ndarray, B: np.ndarray) -> None:
        PositionScheme.__init__(self, None)
        self.A = nn.Parameter(torch.tensor(A, dtype=torch.float32))  # (n, r)
        self.B = nn.Parameter(torch.tensor(B, dtype=torch.float32))  # (d, r)

    def table(self) -> Tensor:
        return self.A @ self.B.T  # (n, d)


class Bias(PositionScheme):
    """Subtracts slope * E from the scores, one slope a head: ALiBi, or any other line."""

    def __init__(self, E: np.ndarray, slopes: np.ndarray) -> None:
        super().__init__(None)
        self.register_buffer("E", torch.tensor(E, dtype=torch.float32))  # (n, n)
        self.register_buffer("slopes", torch.tensor(slopes, dtype=torch.float32))  # (h,)

    def bias(self, positions: Tensor) -> Tensor:
        E = self.E[positions[:, :, None], positions[:, None, :]]  # (N, n, n)
        return -self.slopes[:, None, None] * E[:, None]  # (N, h, n, n)


class Buckets(PositionScheme):
    """Adds a trained number for each head and each of T5's buckets of ``j - i``; all start at 0."""

    def __init__(self, n: int, heads: int) -> None:
        super().__init__(None)
        self.register_buffer("bucket", torch.tensor(t5_buckets(n)))  # (n, n)
        self.values = nn.Parameter(torch.zeros(int(self.bucket.max()) + 1, heads))  # (buckets, h)

    def bias(self, positions: Tensor) -> Tensor:
        bucket = self.bucket[positions[:, :, None], positions[:, None, :]]  # (N, n, n)
        return self.values[bucket].permute(0, 3, 1, 2)  # (N, h, n, n)


@dataclass(frozen=True, eq=False)
class Arm:
    """One scheme at one scale.

    ``family`` is the way in: ``"none"``, ``"fixed vectors"``, ``"trained vectors"``, ``"lags"`` (a bias or
    rotation that depends on ``i - j`` alone) or ``"places"`` (a bias that does not). ``make(rng)`` builds the
    scheme; ``distances(scheme)`` is its dissimilarity ``(n, n)``.
    """

    name: str
    scheme: str
    family: str
    scale: str
    make: Callable[[np.random.Generator], PositionScheme]
    distances: Callable[[PositionScheme], np.ndarray]


def arms(geometry: Geometry, budget: Budget = BUDGET) -> dict[str, Arm]:
    """Name -> every scheme of the experiment, the fixed vectors at up to three scales.

    ``"native"``: as the formula gives them. ``"fitted"``: at the scale of least stress against the plug-in
    distances. ``"unit"``: root-mean-square length 1 about their mean, that of the token vectors at the start.
    The power bias is far smaller than ALiBi at ALiBi's slopes; ``"stretched"``, it ends where ALiBi ends.

    Vectors of another width k < d than the model's are carried into it by a random isometry (orthonormal
    rows, ``(k, d)``), which changes no distance and so no stress.
    """
    n, d, heads = budget.n, budget.d, budget.heads
    slopes = alibi_slopes(heads)
    line = places("power", geometry.exponent, np.arange(n))[:, None]
    plug_in, corrected = classical_mds(geometry.plug_in), classical_mds(geometry.corrected)
    classical = plug_in.points[:, : plug_in.rank]
    signal = corrected.points[:, : corrected.rank]
    fixed: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
        "random": lambda rng: random_gaussian(n, d, rng=rng),
        "sinusoid": lambda rng: sinusoidal(n, d),
        "MDS": lambda rng: _widened(classical, d, rng),
        "corrected MDS": lambda rng: _widened(signal, d, rng),
        "power line": lambda rng: _widened(line - line.mean(), d, rng),
    }
    nothing = np.zeros((n, n))
    found = [Arm("none", "none", "none", "native", lambda rng: PositionScheme(None), lambda s: nothing)]
    for scheme, points in fixed.items():
        for scale in SCALES:
            if scheme == "MDS" and scale == "fitted":  # in full dimension that is its native scale
                continue

            def make(rng, points=points, scale=scale):
                P = points(rng)
                return Vectors(P * _factor(P, scale, geometry))

            found.append(Arm(_name(scheme, scale), scheme, "fixed vectors", scale, make, _of_table))

    def factors(points: np.ndarray) -> Callable[[np.random.Generator], PositionScheme]:
        return lambda rng: Factors(*_factors(_widened(points, d, rng), points.shape[1]))

    trained = {
        "learned": lambda rng: Vectors(learned(n, d, rng=rng), trained=True),
        "ABᵀ from MDS": factors(classical),
        "ABᵀ from corrected MDS": factors(signal),
    }
    found += [Arm(name, name, "trained vectors", "native", make, _of_table) for name, make in trained.items()]

    lag, curve = alibi_distances(n), power_line(n, geometry.exponent)
    stretched = curve * lag.max() / curve.max()
    config = EncoderConfig(vocab_size=budget.vocab_size, n=n, d=d, heads=heads)
    relative = {
        "RoPE": ("lags", lambda rng: Rope(config), rope_distances(n, d // heads)),
        "ALiBi": ("lags", lambda rng: Bias(lag, slopes), slopes.mean() * lag),
        "T5": ("lags", lambda rng: Buckets(n, heads), t5_buckets(n) % 16.0),
        "power bias": ("places", lambda rng: Bias(curve, slopes), slopes.mean() * curve),
        "power bias, stretched": ("places", lambda rng: Bias(stretched, slopes), slopes.mean() * stretched),
    }
    for name, (family, make, E) in relative.items():
        scheme, scale = ("power bias", "stretched") if name.endswith("stretched") else (name, "native")
        found.append(Arm(name, scheme, family, scale, make, lambda s, E=E: E))
    return {arm.name: arm for arm in found}


def _name(scheme: str, scale: str) -> str:
    return scheme if scale == "native" else f"{scheme}, {scale}"


def _of_table(scheme: Vectors) -> np.ndarray:
    return euclidean_distances(scheme.table().detach().double().numpy())


def _widened(P: np.ndarray, d: int, rng: np.random.Generator) -> np.ndarray:
    """``P Q``, ``(n, d)``, with a random Q ``(k, d)`` of orthonormal rows: distances as in P ``(n, k)``."""
    if P.shape[1] > d:
        raise ValueError(f"P has width {P.shape[1]}, and no isometry into d = {d} dimensions")
    return P @ np.linalg.qr(rng.normal(size=(d, P.shape[1])))[0].T


def _factor(P: np.ndarray, scale: str, geometry: Geometry) -> float:
    if scale == "native":
        return 1.0
    if scale == "fitted":
        return optimal_scale(euclidean_distances(P), geometry.plug_in)
    return 1.0 / float(np.sqrt(((P - P.mean(axis=0)) ** 2).sum(axis=1).mean()))


def _factors(P: np.ndarray, r: int) -> tuple[np.ndarray, np.ndarray]:
    with warnings.catch_warnings():
        # At rank n - 1 the factors are larger than the table, and low_rank says so: that is what is shown.
        warnings.simplefilter("ignore", UserWarning)
        return low_rank(P, r)


def build(arm: Arm, seed: int, budget: Budget = BUDGET) -> Encoder:
    """An encoder with this scheme. Encoders of one seed differ in the scheme alone."""
    config = EncoderConfig(
        vocab_size=budget.vocab_size,
        n=budget.n,
        d=budget.d,
        heads=budget.heads,
        layers=budget.layers,
        position="none",
        readout="mean",
        outputs=1,
        embedding_std=budget.d**-0.5,  # token vectors of length about 1
    )
    model = Encoder(config, rng=seed)
    model.scheme = arm.make(np.random.default_rng([seed, 1]))
    return model


# --- Runs


def one_run(
    arm: Arm,
    task: str,
    seed: int,
    learning_rate: float,
    *,
    texts: Beginnings,
    geometry: Geometry,
    budget: Budget = BUDGET,
) -> dict:
    """Train one encoder and say what came out, as plain numbers.

    ``validation`` and ``test`` accuracy, ``loss`` (mean of the last 50 steps), ``parameters`` of the scheme
    that were trained, ``stress`` of the scheme as it is after training, of each kind in :data:`STRESSES`.
    """
    model = build(arm, seed, budget)
    steps = budget.steps(task)

    def rate(step: int) -> float:
        return learning_rate * min(1.0, (step + 1) / budget.warm_up) * (1.0 - step / steps)

    history = train(
        model,
        _batches(texts.train, task, budget.batch),
        _LOSSES[task],
        steps=steps,
        rng=seed,
        optimiser="adamw",
        learning_rate=rate,
        weight_decay=budget.weight_decay,
    )
    stresses = geometry.stresses(arm.distances(model.scheme))
    return {
        "arm": arm.name,
        "task": task,
        "seed": seed,
        "learning_rate": learning_rate,
        "validation": round(accuracy(model, texts.validation, task), 4),
        "test": round(accuracy(model, texts.test, task), 4),
        "loss": round(float(history.loss[-50:].mean()), 4),
        "parameters": sum(p.numel() for p in model.scheme.parameters()),
        "stress": {kind: float(f"{value:.5g}") for kind, value in stresses.items()},
    }


def plan(
    names: Iterable[str], runs: Sequence[Mapping], budget: Budget = BUDGET
) -> list[tuple[str, str, int, float]]:
    """What is still to be run, in order: (arm, task, seed, learning rate).

    First every learning rate with the tuning seed; then, once all of those are there, the other seeds one
    after the other at the rates chosen. A file that ends anywhere is the whole experiment with fewer seeds.
    """
    names = list(names)
    done = {(run["arm"], run["task"], run["seed"], run["learning_rate"]) for run in runs}
    tuning = [
        (name, task, TUNING_SEED, rate) for task in TASKS for name in names for rate in budget.learning_rates
    ]
    left = [job for job in tuning if job not in done]
    if left:
        return left
    rates = chosen_rates(runs)
    jobs = (
        (name, task, seed, rates[task, name]) for seed in budget.seeds for task in TASKS for name in names
    )
    return [job for job in jobs if job not in done]


def longer_plan(names: Iterable[str], runs: Sequence[Mapping]) -> list[tuple[str, int]]:
    """Which of the longer runs ``runs`` lack, in order: (arm, seed)."""
    names, done = set(names), {(run["arm"], run["seed"]) for run in runs}
    jobs = ((name, seed) for seed in LONGER_SEEDS for name in LONGER_ARMS if name in names)
    return [job for job in jobs if job not in done]


def chosen_rates(runs: Sequence[Mapping]) -> dict[tuple[str, str], float]:
    """(task, arm) -> the learning rate with the best validation accuracy of the tuning seed; the lower of
    equals.
    """
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for run in runs:
        if run["seed"] == TUNING_SEED:
            key, score = (run["task"], run["arm"]), (run["validation"], -run["learning_rate"])
            best[key] = max(best.get(key, score), score)
    return {key: -score[1] for key, score in best.items()}


def write_results(path: Path, results: Mapping) -> None:
    """JSON, one line a run; a write that fails leaves the file of before."""
    parts = []
    for key, value in results.items():
        if key in ("runs", "longer"):
            lines = ",\n".join(json.dumps(run, ensure_ascii=False) for run in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    partial = path.with_name(path.name + ".partial")
    partial.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    partial.replace(path)


def load_results(path: Path | None = None) -> dict:
    """The runs that come with the package (``tools/make_accuracy_results.py``), or another such file.

    ``["runs"]``: what :func:`one_run` returns, in the order of :func:`plan`; ``["longer"]``: the same of
    :data:`LONGER_ARMS` with more steps; the other keys say how they were made.
    """
    file = resources.files("posbook") / "data" / RESULTS if path is None else Path(path)
    return json.loads(file.read_text(encoding="utf-8"))


def settings(budget: Budget) -> dict:
    """A budget as JSON has it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(budget).items()}


# --- What came out


@dataclass(frozen=True, eq=False)
class Outcome:
    """One arm on one task. ``accuracies``: ``(s,)``, one a seed, in the order of the seeds.

    ``mean``, ``low``, ``high``: over seeds, with the 95% interval of Student's t. ``stress``: mean over seeds
    of each kind, after training.
    """

    arm: str
    task: str
    accuracies: np.ndarray
    mean: float
    low: float
    high: float
    learning_rate: float
    parameters: int
    stress: dict[str, float]


def outcomes(runs: Sequence[Mapping], task: str) -> dict[str, Outcome]:
    """Arm -> what it came to, over the seeds that every arm of the task has; the tuning seed is left out."""
    own = [run for run in runs if run["task"] == _task(task)]
    names = list(dict.fromkeys(run["arm"] for run in own))
    seeds = {name: {r["seed"] for r in own if r["arm"] == name} - {TUNING_SEED} for name in names}
    shared = sorted(set.intersection(*seeds.values())) if seeds else []
    if len(shared) < 2:
        raise ValueError(
            f"runs of {task!r}: an interval needs two seeds beside the tuning seed that all arms have, "
            f"and there are {len(shared)}"
        )
    found = {}
    for name in names:
        mine = {run["seed"]: run for run in own if run["arm"] == name}
        mine = [mine[seed] for seed in shared]
        accuracies = np.array([run["test"] for run in mine])
        found[name] = Outcome(
            name,
            task,
            accuracies,
            *map(float, mean_and_interval(accuracies)),
            mine[0]["learning_rate"],
            mine[0]["parameters"],
            {kind: float(np.mean([run["stress"][kind] for run in mine])) for kind in STRESSES},
        )
    return found


class Correlation(NamedTuple):
    """Spearman's ``rho`` in [-1, 1] with 95% percentile intervals of two bootstraps.

    ``seeds``: what another set of seeds would have given for these schemes. ``schemes``: another set of
    schemes, as far as those at hand can tell. ``p``: share of random orders of the schemes with a correlation
    as far from 0.
    """

    rho: float
    seeds: tuple[float, float]
    schemes: tuple[float, float]
    p: float


def rank_correlation(
    x: np.ndarray, accuracies: np.ndarray, *, draws: int = 2000, rng: np.random.Generator | int
) -> Correlation:
    """Spearman's rank correlation between x ``(m,)`` and the mean accuracies of m arms ``(m, s)``.

    Seeds are drawn for all arms together, since arms of one seed share first weights and batches.
    ``ValueError`` for fewer than 3 arms, shapes that do not fit, or an x that is constant.
    """
    x, accuracies = np.asarray(x, dtype=float), np.asarray(accuracies, dtype=float)
    if accuracies.ndim != 2 or x.shape != accuracies.shape[:1] or len(x) < 3:
        raise ValueError(
            f"x must be (m,) and accuracies (m, s), m >= 3, not {x.shape} and {accuracies.shape}"
        )
    means = accuracies.mean(axis=1)
    if np.ptp(x) == 0 or np.ptp(means) == 0:
        raise ValueError("x and the mean accuracies must vary: a constant has no ranks")
    draws, rng = checks.positive_int(draws, "draws"), checks.generator(rng)
    m, s = accuracies.shape
    rho = _spearman(x, means)
    of_seeds = [_spearman(x, accuracies[:, rng.integers(0, s, s)].mean(axis=1)) for _ in range(draws)]
    of_schemes = []
    while len(of_schemes) < draws:
        some = rng.integers(0, m, m)
        if np.ptp(x[some]) > 0 and np.ptp(means[some]) > 0:
            of_schemes.append(_spearman(x[some], means[some]))
    null = np.abs([_spearman(x, rng.permutation(means)) for _ in range(draws)])
    p = (1 + np.count_nonzero(null >= abs(rho) - 1e-12)) / (draws + 1)
    intervals = [tuple(map(float, np.quantile(values, (0.025, 0.975)))) for values in (of_seeds, of_schemes)]
    return Correlation(rho, *intervals, p)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def between_groups(values: np.ndarray, groups: Sequence) -> float:
    """The share of the variance of ``values`` ``(m,)`` that lies between groups (eta squared), in [0, 1].

    Groups without any effect still have ``(k - 1) / (m - 1)`` on average, for k groups of m values.
    """
    values, groups = np.asarray(values, dtype=float), np.asarray(groups)
    if values.ndim != 1 or groups.shape != values.shape or np.ptp(values) == 0:
        raise ValueError(
            "values must be a row of numbers that vary and groups one label each, "
            f"not {values.shape} and {groups.shape}"
        )
    total = ((values - values.mean()) ** 2).sum()
    inside = sum(((values[groups == g] - values[groups == g].mean()) ** 2).sum() for g in np.unique(groups))
    return float(1.0 - inside / total)
