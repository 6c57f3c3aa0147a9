"""Counts the work of Python code in calls, which are the same on every machine and beside any other program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls(of: Callable[[], Any]) -> int:
    """Return how many functions, built-in ones too, are called while `of` runs."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        of()
    finally:
        sys.setprofile(before)
    return count
