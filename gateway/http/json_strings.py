"""Changes all strings of a decoded JSON value in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def change_strings(value: dict[str, Any] | list[Any], change: Callable[[str], str]) -> None:
    """Put what `change` returns in place of every string, of keys as well. No recursion: the value may be deep."""
    waiting: list[dict[Any, Any] | list[Any]] = [value]
    while waiting:
        holder = waiting.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, item in items:
            if isinstance(item, str):
                holder[key] = change(item)
            elif isinstance(item, (dict, list)):
                waiting.append(item)
            if isinstance(holder, dict) and isinstance(key, str) and (name := change(key)) != key:
                holder[name] = holder.pop(key)
