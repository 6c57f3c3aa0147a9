"""JSON that a strict decoder refuses for its characters alone, read as clients in other languages read it.

Bytes that are not UTF-8 become U+FFFD, as in a browser; control characters stay; NaN and infinities are null; a byte
order mark is passed over.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.http.json_strings import change_strings


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
