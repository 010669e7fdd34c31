from __future__ import annotations

from posgeom.exercises import check_number


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
