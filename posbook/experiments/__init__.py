"""The experiments of the book: order tasks, masked models, training from scratch, stress and accuracy.

The tasks and the intervals are here at once; the experiments that train are modules, which need torch.
"""

from posbook.experiments.intervals import mean_and_interval
from posbook.experiments.tasks import (
    FiniteTask,
    a_before_b,
    automorphisms,
    bag_of_words,
    bayes_accuracy,
    bayes_risk,
    first_token,
    masked_prediction,
    positional_distributions,
    prefix_multiset,
    product_task,
    separation_gaps,
    up_to,
    up_to_reversal,
    up_to_swap,
    whole_sequence,
)

__all__ = [
    "FiniteTask",
    "a_before_b",
    "automorphisms",
    "bag_of_words",
    "bayes_accuracy",
    "bayes_risk",
    "first_token",
    "masked_prediction",
    "mean_and_interval",
    "positional_distributions",
    "prefix_multiset",
    "product_task",
    "separation_gaps",
    "up_to",
    "up_to_reversal",
    "up_to_swap",
    "whole_sequence",
]
