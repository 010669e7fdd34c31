"""What only the pages of the book use: recorded numbers, figures, checks of a learner's answer, experiments.

The library that a researcher imports is :mod:`posgeom`; nothing there imports from here.
"""

from posbook.exercises import check_number
from posbook.record import record

__all__ = ["check_number", "record"]
