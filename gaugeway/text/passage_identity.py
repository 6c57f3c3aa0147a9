"""What a passage is called: by its id, else its source, else a salted hash of its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

from gaugeway.records import Context, Sample

LONGEST_NAME = 200
"""Characters of a name; a longer one ends in its hash."""
HASH_PREFIX = "text:"
_DIGEST_BYTES = 6
_ID_PREFIX = "id:"
_LIKE_A_HASH = re.compile(f"(?:{_ID_PREFIX})*{HASH_PREFIX}")
_OWN_IDS = ("explicit", "contexts", "spans", "feedback")
"""Extractors and channels whose ids the app itself sent: they are taken at their word."""


def passage_names(sample: Sample, *, salt: str) -> tuple[str, ...]:
    """Return the name of each passage of a sample, "" for one without id, source and text.

    An id that only counts the passages of its list ("1", "2", ... of a numbered prompt) names no document, and is
    passed over. Hashes of texts are salted, and differ between apps.
    """
    contexts = sample.contexts
    counted = sample.context_source not in _OWN_IDS and _only_count([context.id for context in contexts])
    return tuple(_name(context, sample.app, salt=salt, with_id=not counted) for context in contexts)


def passage_origins(sample: Sample, *, salt: str) -> tuple[str, ...]:
    """Return the source of each passage whose name is its id: the file of a chunk, the site of a page; "" for others.

    A source that breaks has a passage or two of each id, so both are compared.
    """
    names = passage_names(sample, salt=salt)
    origins = [_bounded(_unlike_a_hash((context.source or "").strip())) for context in sample.contexts]
    return tuple("" if origin == name else origin for origin, name in zip(origins, names, strict=True))


def id_or_source_of(name: str) -> str | None:
    """Return the id or source that a passage's name stands for; None for a hash, which stands for a text.

    >>> id_or_source_of("faq.md"), id_or_source_of("id:text:3f9a"), id_or_source_of("text:3f9a")
    ('faq.md', 'text:3f9a', None)
    """
    if name.startswith(HASH_PREFIX) or (len(name) == LONGEST_NAME and name[-2 * _DIGEST_BYTES - 1] == "~"):
        return None
    return name.removeprefix(_ID_PREFIX) if _LIKE_A_HASH.match(name) is not None else name


def _name(context: Context, app: str, *, salt: str, with_id: bool) -> str:
    named = (with_id and context.id) or context.source
    if named and named.strip():
        return _bounded(_unlike_a_hash(named.strip()))
    text = " ".join(context.text.split())
    return HASH_PREFIX + _digest(f"{app}\0{text}", salt) if text else ""


def _unlike_a_hash(name: str) -> str:
    """Return a name that no hash of a text can be, another one for each.

    >>> _unlike_a_hash("text:3f9a"), _unlike_a_hash("id:text:3f9a"), _unlike_a_hash("faq.md")
    ('id:text:3f9a', 'id:id:text:3f9a', 'faq.md')
    """
    return f"{_ID_PREFIX}{name}" if _LIKE_A_HASH.match(name) is not None else name


def _only_count(ids: Sequence[str | None]) -> bool:
    """Return whether ids are consecutive numbers that begin at 0 or 1, perhaps starting again for each hop.

    >>> _only_count(["1", "2", "1", "2", "3"]), _only_count(["7", "2"]), _only_count([None, "1"])
    (True, False, False)
    """
    expected: int | None = None
    for sample_id in ids:
        if sample_id is None or not sample_id.isdecimal():
            return False
        if (number := int(sample_id[:9])) not in (expected, 0, 1):
            return False
        expected = number + 1
    return bool(ids)


def _bounded(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: LONGEST_NAME - len(digest) - 1]}~{digest}"


def _digest(text: str, salt: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt.encode()[:64], digest_size=_DIGEST_BYTES).hexdigest()
