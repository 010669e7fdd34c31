"""Finite tasks: a law over whole sequences and their targets, so that every ceiling is a finite sum.

A model that cannot tell some sequences apart predicts from a *statistic* of the sequence, not the sequence.
What that costs at best, in accuracy or in loss, is found here by enumeration, without any model. Positions
count from 0, logarithms are natural.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from posgeom import checks

__all__ = [
    "FiniteTask",
    "a_before_b",
    "automorphisms",
    "bag_of_words",
    "bayes_accuracy",
    "bayes_risk",
    "first_token",
    "masked_prediction",
    "positional_distributions",
    "prefix_multiset",
    "product_task",
    "separation_gaps",
    "up_to",
    "up_to_reversal",
    "up_to_swap",
    "whole_sequence",
]

Statistic = Callable[[np.ndarray], np.ndarray]

SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class FiniteTask:
    """The joint law of a sequence X and its target Y, as a list of cases.

    Parameters
    ----------
    sequences
        ``(m, n)`` integers, one sequence of n tokens a row. A sequence that is not listed has probability 0;
        one that is listed twice has the sum, and with two different targets its target is random.
    probabilities
        ``(m,)`` non-negative, sum 1.
    targets
        ``(m,)`` finite numbers: values for the squared loss, labels for the log loss.

    Raises
    ------
    ValueError
        naming the argument and the case at fault.
    """

    sequences: np.ndarray
    probabilities: np.ndarray
    targets: np.ndarray

    def __post_init__(self) -> None:
        sequences = np.asarray(self.sequences)
        probabilities = _numbers(self.probabilities, "probabilities")
        targets = _numbers(self.targets, "targets")
        if len(probabilities) == 0:
            raise ValueError("probabilities is empty: a law needs at least one sequence")
        if sequences.ndim != 2 or sequences.shape[1] == 0:
            raise ValueError(f"sequences must have shape (m, n), one sequence a row, not {sequences.shape}")
        if not np.issubdtype(sequences.dtype, np.integer):
            raise ValueError(f"sequences must hold integers, one for each token, not {sequences.dtype}")
        if not len(sequences) == len(probabilities) == len(targets):
            raise ValueError(
                "sequences, probabilities and targets must be of one length, "
                f"not {len(sequences)}, {len(probabilities)} and {len(targets)}"
            )
        if probabilities.min() < 0:
            case = int(np.argmin(probabilities))
            raise ValueError(f"probabilities[{case}] = {probabilities[case]:g} is negative")
        if abs(probabilities.sum() - 1) > SUM_TOLERANCE:
            raise ValueError(f"probabilities sum to {probabilities.sum():.12g}, but a law sums to 1")
        for name, value in (
            ("sequences", sequences),
            ("probabilities", probabilities),
            ("targets", targets),
        ):
            object.__setattr__(self, name, value.copy())

    @property
    def n(self) -> int:
        """Positions of a sequence."""
        return self.sequences.shape[1]

    def sample(self, size: int, rng: np.random.Generator | int) -> tuple[np.ndarray, np.ndarray]:
        """``size`` independent cases: sequences ``(size, n)`` and targets ``(size,)``."""
        size = checks.positive_int(size, "size")
        cases = checks.generator(rng).choice(len(self.sequences), size, p=self._normalised())
        return self.sequences[cases], self.targets[cases]

    def _normalised(self) -> np.ndarray:
        return self.probabilities / self.probabilities.sum()


def product_task(marginals: np.ndarray, target: Callable[[np.ndarray], np.ndarray]) -> FiniteTask:
    """Independent tokens, all sequences listed.

    Parameters
    ----------
    marginals
        ``(n, V)``, row i the distribution of the token at position i, sum 1. Makes up to ``V ** n`` cases.
    target
        maps all sequences ``(m, n)`` at once to their targets ``(m,)``.
    """
    marginals = checks.finite_matrix(marginals, "marginals")
    bad = np.flatnonzero((marginals < 0).any(axis=1) | (np.abs(marginals.sum(axis=1) - 1) > SUM_TOLERANCE))
    if bad.size:
        raise ValueError(
            f"marginals[{bad[0]}] = {marginals[bad[0]]} is no distribution: it needs sum 1 and no negative"
        )
    sequences = np.indices((marginals.shape[1],) * len(marginals)).reshape(len(marginals), -1).T  # (V^n, n)
    probabilities = np.prod([row[tokens] for row, tokens in zip(marginals, sequences.T, strict=True)], axis=0)
    possible = probabilities > 0
    return FiniteTask(sequences[possible], probabilities[possible], target(sequences[possible]))


def first_token(n: int, V: int) -> FiniteTask:
    """Which token comes first? n independent uniform tokens of V; the target is the token at position 0."""
    n, V = checks.positive_int(n, "n"), checks.positive_int(V, "V")
    return product_task(np.full((n, V), 1 / V), lambda x: x[:, 0])


def a_before_b(n: int, V: int) -> FiniteTask:
    """Does a come before b? One a (token 0) and one b (token 1) among n tokens, all places equally likely.

    The other tokens are uniform on 2 ... V - 1; the target is 1 if a is first, else 0. Its bag leaves
    it open, and so does the pair of a sequence and its reversal: the best rule then is right half the time.
    """
    n, V = checks.positive_int(n, "n", minimum=2), checks.positive_int(V, "V", minimum=3)
    sequences = np.indices((V,) * n).reshape(n, -1).T
    sequences = sequences[((sequences == 0).sum(axis=1) == 1) & ((sequences == 1).sum(axis=1) == 1)]
    targets = (sequences == 0).argmax(axis=1) < (sequences == 1).argmax(axis=1)
    return FiniteTask(sequences, np.full(len(sequences), 1 / len(sequences)), targets.astype(int))


def masked_prediction(law: FiniteTask, rate: float) -> FiniteTask:
    """Masked language modelling on a finite law, as a finite task of its own (log loss).

    Each token of X (sequences of ``law``; its targets are not used) is masked with probability ``rate``,
    independently, and each masked token is to be predicted. A case is a sequence with its masks and one
    masked position k that is asked for. With V the largest token + 1, masks are token V, the one at k is
    V + 1, and the target is the token that stood there.

    The loss of this task is the loss *per masked token*; times ``n * rate`` it is the expected sum over the
    masked tokens of a text. Exchanging two positions moves masks and question along, so that
    ``separation_gaps`` of this task are the price of equal encodings in masked language modelling.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate must be in (0, 1], not {rate!r}")
    mask = int(law.sequences.max()) + 1
    cases = []
    for masked in np.indices((2,) * law.n).reshape(law.n, -1).T.astype(bool):  # 2^n patterns, (n,)
        share = rate ** masked.sum() * (1 - rate) ** (~masked).sum() / (law.n * rate)
        for k in np.flatnonzero(masked):
            asked = np.where(masked, mask, law.sequences)  # (m, n)
            asked[:, k] = mask + 1
            cases.append((asked, share * law.probabilities, law.sequences[:, k]))
    sequences, probabilities, targets = (np.concatenate(part) for part in zip(*cases, strict=True))
    return FiniteTask(sequences, probabilities, targets)


def positional_distributions(task: FiniteTask) -> np.ndarray:
    """The law of the token at each position, ``(n, V)``: a column for each token that occurs, rising."""
    tokens, columns = np.unique(task.sequences, return_inverse=True)
    columns = columns.reshape(task.sequences.shape)
    return np.stack([np.bincount(c, task._normalised(), len(tokens)) for c in columns.T])


def automorphisms(n: int, *, P: np.ndarray | None = None, pairs: np.ndarray | None = None) -> np.ndarray:
    """The permutations that leave all positional data as they are: symmetries of an encoder.

    Parameters
    ----------
    n
        positions, at most 8: all n! permutations are tried.
    P
        ``(n, d)``, what each position adds; ``None`` for nothing.
    pairs
        ``(n, n)`` or ``(n, n, k)``, what the score of query i and key j is told about (i, j): a bias, minus
        infinity where a mask hides j, the lag of a rotation; ``None`` for nothing.

    Returns
    -------
    ``(k, n)``, all permutations π with ``P[π[i]] == P[i]`` and ``pairs[π[i], π[j]] == pairs[i, j]``.
    """
    if checks.positive_int(n, "n") > 8:
        raise ValueError(f"n must be at most 8, as all n! permutations are tried, not {n}")
    P = np.zeros((n, 1)) if P is None else np.asarray(P)
    pairs = np.zeros((n, n)) if pairs is None else np.asarray(pairs)
    for name, array, axes in (("P", P, 1), ("pairs", pairs, 2)):
        if array.shape[:axes] != (n,) * axes:
            raise ValueError(f"{name} has shape {array.shape}, but its first {axes} must be n = {n}")
    every = np.array(list(itertools.permutations(range(n))))
    kept = [p for p in every if np.array_equal(P[p], P) and np.array_equal(pairs[np.ix_(p, p)], pairs)]
    return np.array(kept)


# --- What a model can know. A statistic maps sequences (m, n) to keys (m, k); equal keys look the same ---


def whole_sequence(sequences: np.ndarray) -> np.ndarray:
    """All of it: token and order."""
    return sequences


def bag_of_words(sequences: np.ndarray) -> np.ndarray:
    """The tokens without their order: all that an encoder without positions and without a mask can know."""
    return np.sort(sequences, axis=1)


def up_to_reversal(sequences: np.ndarray) -> np.ndarray:
    """The sequence or its reversal, not which: all that symmetric ALiBi with a pooled readout can know."""
    n = sequences.shape[1]
    return up_to([range(n), range(n)[::-1]])(sequences)


def up_to_swap(i: int, j: int) -> Statistic:
    """The sequence or its copy with tokens i and j exchanged, not which: all that is left once p_i = p_j."""

    def statistic(sequences: np.ndarray) -> np.ndarray:
        same = np.arange(sequences.shape[1])
        exchanged = same.copy()
        exchanged[[i, j]] = j, i
        return up_to([same, exchanged])(sequences)

    return statistic


def up_to(group: np.ndarray) -> Statistic:
    """The sequence up to a group of permutations ``(k, n)``: all that is left under such a symmetry.

    ``group`` as :func:`automorphisms` gives it; a set that is no group is a ``ValueError``. More than 720
    permutations are refused; for all of them :func:`bag_of_words` gives the same groups.
    """
    group = np.asarray(group)
    if group.ndim != 2 or len(group) == 0 or (np.sort(group, axis=1) != np.arange(group.shape[1])).any():
        raise ValueError(f"group must hold permutations of 0 ... n - 1, one a row, not {group.tolist()}")
    if len(group) > 720:
        raise ValueError(
            f"group has {len(group)} permutations, more than 720: bag_of_words may be what you need"
        )
    members = {tuple(permutation) for permutation in group.tolist()}
    if not all(tuple(product) in members for a in group for product in a[group].tolist()):
        raise ValueError("group is not closed: the composition of two of its permutations is missing")

    def statistic(sequences: np.ndarray) -> np.ndarray:
        if sequences.shape[1] != group.shape[1]:
            raise ValueError(
                f"group permutes {group.shape[1]} positions, but the sequences have {sequences.shape[1]}"
            )
        least = sequences
        for permutation in group:
            least = _lesser(least, sequences[:, permutation])
        return least

    return statistic


def prefix_multiset(sequences: np.ndarray) -> np.ndarray:
    """The last token and the multiset of all: what one causal layer without positions knows at its end."""
    return np.column_stack([np.sort(sequences, axis=1), sequences[:, -1]])


def bayes_accuracy(task: FiniteTask, statistic: Statistic = whole_sequence) -> float:
    """The largest share of right labels that any rule reaches that sees only the statistic, in [0, 1].

    .. math:: \\sum_s \\max_y P(Y = y, S = s)
    """
    group, label = _groups(task, statistic), np.unique(task.targets, return_inverse=True)[1]
    joint = csr_matrix((task._normalised(), (group, label)))  # (groups, labels), repeated cases add up
    return float(joint.max(axis=1).sum())


def bayes_risk(task: FiniteTask, statistic: Statistic = whole_sequence, *, loss: str = "mse") -> float:
    """The least expected loss of any rule that sees only the statistic.

    ``"mse"``: the mean of the conditional variance of Y; ``"log"``: the conditional entropy H(Y | S) in nats.
    """
    _check_loss(loss)
    group, weight = _groups(task, statistic), task._normalised()
    if loss == "mse":
        total = np.bincount(group, weight)
        mean = np.bincount(group, weight * task.targets) / np.where(total > 0, total, 1)
        return float(weight @ (task.targets - mean[group]) ** 2)
    label = np.unique(task.targets, return_inverse=True)[1]
    return float(_mass_times_entropy(csr_matrix((weight, (group, label)))).sum())


def separation_gaps(task: FiniteTask, *, loss: str = "mse") -> np.ndarray:
    """The least price of giving two positions one encoding, for every pair of positions.

    With p_i = p_j an encoder cannot tell x from τx, its copy with tokens i and j exchanged (theorem B of
    chapter 3), so its expected loss exceeds the Bayes risk by at least

    .. math:: \\Delta_{ij} = \\sum_{\\{x, \\tau x\\}} \\frac{w w'}{w + w'} (\\eta - \\eta')^2
              \\quad\\text{(mse)}, \\qquad
              \\Delta_{ij} = I(Y; X \\mid \\{X, \\tau X\\}) \\quad\\text{(log)}

    over the pairs of different sequences, w and w' their probabilities, η and η' the means of their targets.

    Parameters
    ----------
    task
        the law.
    loss
        ``"mse"`` for the squared error (targets are values), ``"log"`` for the log loss (they are labels).

    Returns
    -------
    ``(n, n)`` symmetric, zero diagonal, >= 0: in squared units of the target, or in nats. Zero where the
    exchange never changes what is known about the target.
    """
    _check_loss(loss)
    weights, labels, codes, tokens, powers = _distinct(task)
    conditional = labels.copy()
    # Divided entry by entry, so that a certain target has probability exactly 1 and its mean is exact.
    conditional.data /= np.repeat(weights, np.diff(labels.indptr))
    mean = conditional @ np.unique(task.targets)
    gaps = np.zeros((task.n, task.n))
    for i in range(task.n):
        for j in range(i):
            # A number for x and τx alike; of two neighbours in its order, equals are an exchanged pair.
            swapped = codes + (tokens[:, i] - tokens[:, j]) * (powers[j] - powers[i])
            orbit = np.minimum(codes, swapped)
            order = np.argsort(orbit, kind="stable")
            paired = orbit[order[1:]] == orbit[order[:-1]]
            x, y = order[:-1][paired], order[1:][paired]
            if loss == "mse":
                w, v = weights[x], weights[y]
                cost = w * v / (w + v) * (mean[x] - mean[y]) ** 2
            else:
                cost = _mass_times_entropy(labels[x] + labels[y])
                cost = cost - _mass_times_entropy(labels[x]) - _mass_times_entropy(labels[y])
            gaps[i, j] = gaps[j, i] = max(float(cost.sum()), 0.0)
    return gaps


def _distinct(task: FiniteTask):
    """The distinct sequences of positive probability.

    Their probabilities (M,), their joint law with the target (M, labels), and each as one number
    ``code = sum_k token_k V^k`` with its tokens (M, n) renumbered 0 ... V - 1 and the powers (n,).
    """
    weight = task._normalised()
    listed = weight > 0
    names, tokens = np.unique(task.sequences[listed], return_inverse=True)
    tokens = tokens.reshape(-1, task.n)
    exact = np.int64 if len(names) ** task.n < 2**62 else object  # Python's integers do not overflow
    tokens = tokens.astype(exact)
    powers = np.array([len(names) ** k for k in range(task.n)], dtype=exact)
    codes, first, row = np.unique(tokens @ powers, return_index=True, return_inverse=True)
    label = np.unique(task.targets, return_inverse=True)[1][listed]
    shape = (len(codes), len(np.unique(task.targets)))
    labels = csr_matrix((weight[listed], (row, label)), shape=shape)
    return np.asarray(labels.sum(axis=1)).ravel(), labels, codes, tokens[first], powers


def _mass_times_entropy(joint: csr_matrix) -> np.ndarray:
    """For rows of masses m_y with sum W: ``sum_y m_y log(W / m_y)``; exactly 0 for a row with one label."""
    joint = joint.tocoo()
    mass = np.asarray(joint.sum(axis=1)).ravel()
    terms = np.zeros_like(joint.data)
    positive = joint.data > 0
    terms[positive] = joint.data[positive] * np.log(mass[joint.row[positive]] / joint.data[positive])
    return np.bincount(joint.row, terms, joint.shape[0])


def _groups(task: FiniteTask, statistic: Statistic) -> np.ndarray:
    """The number of each case's group of equal keys, ``(m,)``."""
    keys = np.asarray(statistic(task.sequences))
    if keys.ndim != 2 or len(keys) != len(task.sequences):
        raise ValueError(
            f"statistic must map (m, n) = {task.sequences.shape} to keys (m, k), not to {keys.shape}"
        )
    return np.unique(keys, axis=0, return_inverse=True)[1].ravel()


def _lesser(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row the one of ``a`` and ``b`` that comes first in the dictionary."""
    rows, first = np.arange(len(a)), (a != b).argmax(axis=1)
    return np.where((a[rows, first] <= b[rows, first])[:, None], a, b)


def _numbers(x: np.ndarray, name: str) -> np.ndarray:
    try:
        numbers = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be real numbers, one for each sequence") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have shape (m,), one number a sequence, not {numbers.shape}")
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}] is {numbers[bad[0]]}: every entry must be a finite number")
    return numbers


def _check_loss(loss: str) -> None:
    if loss not in ("mse", "log"):
        raise ValueError(f"loss must be 'mse' or 'log', not {loss!r}")
