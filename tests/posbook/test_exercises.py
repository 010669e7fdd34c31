from __future__ import annotations

from posbook.exercises import check_number


def test_the_right_number_is_right_within_the_tolerance():
    assert check_number(0.5, 0.5) == "Right."
    assert check_number(0.5 + 9e-7, 0.5) == "Right."
    assert check_number(0.5 + 2e-6, 0.5).startswith("Not yet")
    # Relative for large numbers, absolute for small ones.
    assert check_number(1e6 + 0.5, 1e6) == "Right."
    assert check_number(1e-5, 0.0).startswith("Not yet")


def test_a_known_slip_is_named():
    slips = [(2.0, "You forgot the root."), (4.0, "You squared twice.")]
    assert check_number(4.0, 1.414, slips=slips) == "You squared twice."
    assert check_number(2.0, 1.414, slips=slips) == "You forgot the root."
    assert check_number(3.0, 1.414, slips=slips) == "Not yet: 3 is not the number."


def test_a_slip_that_happens_to_be_right_is_right():
    assert check_number(2.0, 2.0, slips=[(2.0, "wrong")]) == "Right."


def test_what_is_no_number_is_not_right():
    assert check_number(float("nan"), 1.0).startswith("Not yet")


def test_a_number_with_too_few_digits_is_told_from_a_wrong_one():
    assert check_number(0.33, 1 / 3) == "Nearly: 0.33 is the number with too few digits."
    assert check_number(1.33, 4 / 3, tol=1e-3).startswith("Nearly")
    assert check_number(0.34, 1 / 3).startswith("Not yet")
    assert check_number(0, 0.2).startswith("Not yet"), "a rounding to no decimal is a guess"
    # A whole number is not a rounding of another one.
    assert check_number(1150, 1153).startswith("Not yet")


def test_a_slip_is_named_when_it_is_rounded_too():
    slips = [(1 / 36, "Not one half.")]
    assert check_number(0.0278, 0.5, slips=slips) == "Not one half."
    assert check_number(0.03, 0.5, slips=slips) == "Not one half."
    assert check_number(0.0, 0.5, slips=slips).startswith("Not yet")
    # A slip that is met exactly goes before a rounding of the right number.
    assert check_number(0.3, 0.31, slips=[(0.3, "A slip.")], tol=1e-3) == "A slip."
