"""What a harness raises when a reader broke one of its promises."""

from __future__ import annotations


class Finding(Exception):
    """A reader did something it must never do."""


def expect(promise: object, what: str) -> None:
    """Raise Finding unless `promise` holds. Not `assert`: that may be switched off."""
    if not promise:
        raise Finding(what)
