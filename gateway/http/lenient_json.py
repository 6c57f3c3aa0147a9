"""JSON that a strict decoder refuses for its characters alone, read as clients in other languages read it.

Bytes that are not UTF-8 become U+FFFD, as in a browser; control characters stay; NaN and infinities are null; a byte
order mark is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def read(data: bytes) -> Any:
    """Decode JSON; strings may hold halves of surrogate pairs, see `mend`. Raises ValueError and RecursionError."""
    return json.loads(data.decode("utf-8-sig", "replace"), strict=False, parse_constant=lambda _: None)


def mend(value: dict[str, Any] | list[Any]) -> None:
    """Join the surrogate pairs in all strings, in place; single halves become U+FFFD."""
    change_strings(value, _paired)


def _paired(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


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
