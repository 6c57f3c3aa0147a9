"""What was opened once under a URL is there for everybody who opens the URL again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_OPEN: dict[tuple[type, str], Any] = {}


def shared(url: str, kind: type[T], make: Callable[[], T]) -> T:
    """Return the object of this kind at `url`, which is made the first time."""
    found: T = _OPEN.setdefault((kind, url), make())
    return found
