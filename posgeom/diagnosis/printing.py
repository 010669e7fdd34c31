"""Text of unknown origin, fit to be shown."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """``text`` with an escape for every character that a terminal would obey instead of show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
