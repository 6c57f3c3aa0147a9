"""The prompt version of an exchange: a short hash of the app's constant instructions."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from gaugeway.prompts import Extraction
from gaugeway.prompts.prompt_parts import Located
from gaugeway.records import PROMPT_SCHEME
from gaugeway.text.cache import TextCache

_LONGEST = 65_536
"""Characters of instructions that are hashed: bounds the cost of a request."""

_WORD = r"[^\W\d_]{3,12}+"
_VARYING = re.compile(
    rf"(?:\b{_WORD}[.,]? (?:{_WORD}\.? )?)?\b\d{{1,2}}(?:st|nd|rd|th)?[.,]?(?: de)?(?: {_WORD})?,?(?: de)?"
    r"(?: \d{1,2}(?::\d\d){1,2}(?: [A-Z]{3,4})?)? (?:19|20)\d\d\b"
    r"|\d{1,2}(?::\d\d){1,2}(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"|(?<![\w-])(?:[^\W\d]|-)*+\d[\w-]*"
)
"""What varies within constant instructions, by its form: dates with a year, times, numbers, words with digits (ids)."""

_normal: TextCache[str] = TextCache()
"""Instructions, which recur, without what varies in them and without line breaks."""


def prompt_version(extraction: Extraction, located: Located, *, salt: str) -> str | None:
    """Return what identifies the instructions, 12 hex digits after the scheme's prefix; None when there are none.

    Instructions are the system and developer messages, and the last user turn where it holds passages or, without any,
    the place for them. The records of the passages (title, source, id, score, number), the question, turns of a
    conversation beside them, dates, numbers, ids and white space are ignored, because they change from request to
    request. The salt prevents looking up the hash of a known prompt.

    Where no extractor recognised the request, passages may stand among the instructions: then these need to recur, and
    the user's turn to be a plain question.
    """
    unknown = extraction.source == "none"
    if unknown and "\n" in (extraction.question or "\n"):
        return None
    text = located.instructions(extraction)[:_LONGEST]
    if (normal := _normal.get(text)) is None:
        normal = " ".join(_VARYING.sub("0", text.replace("\0", " ")).split())
        _normal.put(text, normal)
    if not normal or (unknown and not located.forms.recurs(located.app, normal)):
        return None
    hashed = _keyed(salt).copy()
    hashed.update(normal.encode("utf-8", "replace"))
    return PROMPT_SCHEME + hashed.hexdigest()


@lru_cache(maxsize=4)
def _keyed(salt: str) -> blake2b:
    """Return a prepared state, to copy: that takes a third of the time of making one."""
    return blake2b(key=salt.encode()[:64], digest_size=6)
