"""The prompt version of an exchange: a short hash of the app's constant instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from gateway.contexts import Extraction, system_texts, user_texts
from gateway.contexts.prompt_parts import find
from gateway.exchange import Request
from monitors.text_cache import TextCache

_NUMBERS = re.compile(r"\d+")
_LONGEST = 65_536
"""Characters of instructions that are hashed: bounds the cost of a request."""

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
    return blake2b(fixed.encode("utf-8", "replace"), key=salt.encode()[:64], digest_size=6).hexdigest()


def _fixed(text: str, passages: Iterable[str], question: str | None) -> str:
    """Return the constant part of `text`: without the lines from the first to the last passage."""
    found = [(start, start + len(one)) for one in passages if one and (start := find(text, one, 0, len(text))) >= 0]
    if found:
        first, last = min(found)[0], max(end for _, end in found)
        closing = text.find("\n", last)
        text = text[: text.rfind("\n", 0, first) + 1] + (text[closing:] if closing >= 0 else "")
    if question:
        text = text.replace(question, "")
    if (normal := _normal.get(text)) is None:
        normal = " ".join(_NUMBERS.sub("0", text).split())
        _normal.put(text, normal)
    return normal
