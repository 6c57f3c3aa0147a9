"""Subjects of limits as every storage engine can store them."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[\w.:@/ -]{1,120}", re.ASCII)


def stored_name(subject: str) -> str:
    """Return a subject (`key:ID`, `app:NAME`, `app-other`) as it is stored; unusual names are replaced by a hash.

    No engine takes every character, nor an index names of any length, and one such name must not hold up the others.

    >>> stored_name("app:shop")
    'app:shop'
    >>> len(stored_name("app:" + "x" * 9000))
    68
    """
    if _PLAIN.fullmatch(subject):
        return subject
    kind = "key:" if subject.startswith("key:") else "app:"
    return kind + hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()
