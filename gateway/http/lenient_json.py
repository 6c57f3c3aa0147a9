"""JSON that a strict decoder refuses for its characters alone, read as clients in other languages read it.

Bytes that are not UTF-8 become U+FFFD, as in a browser; control characters stay; NaN and infinities are null; a byte
order mark is passed over.
"""

from __future__ import annotations

import json
from typing import Any


def read(data: bytes) -> Any:
    """Decode JSON; strings may hold halves of surrogate pairs, see `mend`. Raises ValueError and RecursionError."""
    return json.loads(data.decode("utf-8-sig", "replace"), strict=False, parse_constant=lambda _: None)


def mend(value: dict[str, Any] | list[Any]) -> None:
    """Join the surrogate pairs in all strings, in place; single halves become U+FFFD. No recursion: it may be deep."""
    waiting: list[dict[Any, Any] | list[Any]] = [value]
    while waiting:
        holder = waiting.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, one in items:
            if isinstance(one, str):
                holder[key] = _paired(one)
            elif isinstance(one, (dict, list)):
                waiting.append(one)
            if isinstance(holder, dict) and isinstance(key, str) and (name := _paired(key)) != key:
                holder[name] = holder.pop(key)


def _paired(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
