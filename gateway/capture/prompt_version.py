"""The prompt version of an exchange: a short hash of the app's constant instructions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from gateway.contexts import Extraction, system_texts, user_texts
from gateway.contexts.prompt_parts import find
from gateway.exchange import Request
from monitors.text_cache import TextCache

_NUMBERS = re.compile(r"\d+")
_LONGEST = 65_536
"""Characters of instructions that are hashed: bounds the cost of a request."""

_PROBE = 48
"""Characters at the beginning of a passage without which it is not there."""

_GAP = 2
"""Characters between two passages, mostly: a blank line."""

_normal: TextCache[str] = TextCache()
"""Instructions, which recur, without their numbers and line breaks."""


def prompt_version(request: Request, extraction: Extraction, *, salt: str) -> str | None:
    """Return 12 hex digits that identify the instructions; None when there are none.

    Instructions are the system and developer messages or, without any, the last user turn around its passages. The
    passages and the text between them, the question, numbers and white space are ignored, because they change from
    request to request. The salt prevents looking up the hash of a known prompt.
    """
    texts = system_texts(request) or (list(user_texts(request))[:1] if extraction.contexts else [])
    passages = [one.text for one in extraction.contexts]
    fixed = " ".join(_fixed(text[:_LONGEST], passages, extraction.question) for text in texts).strip()
    if not fixed:
        return None
    hashed = _keyed(salt).copy()
    hashed.update(fixed.encode("utf-8", "replace"))
    return hashed.hexdigest()


@lru_cache(maxsize=4)
def _keyed(salt: str) -> blake2b:
    """Return a prepared state, to copy: that takes a third of the time of making one."""
    return blake2b(key=salt.encode()[:64], digest_size=6)


def _fixed(text: str, passages: Sequence[str], question: str | None) -> str:
    """Return the constant part of `text`: without the lines from the first to the last passage."""
    if (place := _outermost(text, passages)) is not None:
        first, last = place
        closing = text.find("\n", last)
        text = text[: text.rfind("\n", 0, first) + 1] + (text[closing:] if closing >= 0 else "")
    if question:
        text = text.replace(question, "")
    if (normal := _normal.get(text)) is None:
        normal = " ".join(_NUMBERS.sub("0", text).split())
        _normal.put(text, normal)
    return normal


def _outermost(text: str, passages: Sequence[str]) -> tuple[int, int] | None:
    """Return the first start and the last end of the passages in `text`, of each its first place; None without any."""
    passages = [one for one in passages if one]
    if not passages:
        return None
    if (place := _in_order(text, passages)) is not None:
        return place
    found = [(start, start + len(one)) for one in passages if (start := find(text, one, 0, len(text))) >= 0]
    return (min(found)[0], max(end for _, end in found)) if found else None


def _in_order(text: str, passages: Sequence[str]) -> tuple[int, int] | None:
    """Return the same for passages that stand in `text` one behind the other; None where that is not sure.

    Each is looked for behind the one before it. That its first place is within the bounds follows where it does not
    begin before the first passage and, for the last one, where it stands nowhere before.
    """
    length = len(text)
    if (first := find(text, passages[0], 0, length)) < 0:
        return None
    end, gap = first + len(passages[0]), _GAP
    for one in passages[1:]:
        begin = one[:_PROBE]
        if text.find(begin, 0, first + len(begin) - 1) >= 0:
            return None
        if not text.startswith(one, end + gap):
            if (start := find(text, one, end, length)) < 0:
                return None
            gap = start - end
        end += gap + len(one)
    if len(passages) > 1 and find(text, passages[-1], first, end - 1) >= 0:
        return None
    return first, end
