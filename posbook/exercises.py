"""What a learner's answer is compared with: the right number, and the numbers that known mistakes lead to."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["check_number"]


def check_number(
    answer: float, right: float, *, slips: Iterable[tuple[float, str]] = (), tol: float = 1e-6
) -> str:
    """Say whether a number is right, and if not, which of the known slips leads to it.

    ``slips`` are pairs (value, what it means). Two numbers are the same when they differ by at most ``tol``,
    relative to the right one where that is larger than 1. The right number is tried first, then the slips in
    their order. What is neither may still be one of them, rounded: the right number to at least one decimal,
    a slip to at least two.
    """

    def same(value: float) -> bool:
        return abs(answer - value) <= tol * max(1, abs(value))

    def rounded(value: float, decimals: int) -> bool:
        return any(answer == round(float(value), k) for k in range(decimals, 7))

    slips = list(slips)
    if same(right):
        return "Right."
    for value, meaning in slips:
        if same(value):
            return meaning
    if rounded(right, 1):
        return f"Nearly: {answer:g} is the number with too few digits."
    for value, meaning in slips:
        if rounded(value, 2):
            return meaning
    return f"Not yet: {answer:g} is not the number."
