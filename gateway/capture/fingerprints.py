"""Hashes by which exchanges are told apart and put together: retries, clusters of scores, versions of a prompt."""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from functools import lru_cache
from hashlib import blake2b

from gaugeway.exchange import Exchange
from gaugeway.prompts import Extraction
from gaugeway.prompts.prompt_parts import Located
from gaugeway.records import PROMPT_SCHEME
from gaugeway.text.cache import TextCache

_DIGEST_BYTES = 16
_NAME_BYTES = 6
_WORDS = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+")
_MOST_READ = 2_000  # internal bound: characters of a question that are hashed
_END_USER = ("user", "safety_identifier")
"""Fields of the request's body that name the end user (OpenAI API)."""
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


class Resubmissions:
    """Remembers the last `limit` request keys for `window_s` seconds after each was last seen.

    Raises ValueError unless window and limit are positive.
    """

    def __init__(self, window_s: float, limit: int) -> None:
        if not window_s > 0 or limit < 1:
            raise ValueError(f"window and limit must be positive, got {window_s!r} and {limit!r}")
        self._window_s, self._limit = window_s, limit
        self._ends: OrderedDict[bytes, float] = OrderedDict()  # cachetools' TTLCache takes ten times as long

    def __len__(self) -> int:
        return len(self._ends)

    def seen(self, key: bytes, now: float) -> bool:
        """Record `key` at the time `now` (seconds); return whether it was recorded within the window before.

        >>> resubmissions = Resubmissions(window_s=10, limit=100)
        >>> [resubmissions.seen(b"key", now) for now in (0.0, 5.0, 30.0)]
        [False, True, False]
        """
        ends = self._ends
        known = now < ends.pop(key, now)
        while ends and (len(ends) >= self._limit or next(iter(ends.values())) <= now):
            ends.popitem(last=False)
        ends[key] = now + self._window_s
        return known


def digest(app: str, credential: bytes, path: str, body: bytes) -> bytes:
    """Return the key of a request: a hash that is equal only for the same body, path, app and credential."""
    parts = app.encode("utf-8", "surrogatepass"), credential, path.encode("utf-8", "surrogatepass")
    # With the lengths in front, so that no part can be mistaken for the end of another.
    said = b"".join([len(part).to_bytes(8, "big") + part for part in parts]) + len(body).to_bytes(8, "big")
    hashed = blake2b(said, digest_size=_DIGEST_BYTES, person=b"resubmission")
    hashed.update(body)
    return hashed.digest()


def cluster_of(exchange: Exchange, question: str | None, *, salt: str) -> str | None:
    """Return salted hashes of what the exchange belongs to, the closest first, apart by spaces; None for none.

    "s:" is the session of one end user and one gateway key, "u:" the end user, "k:" the gateway key, "q:" the
    question's words without case and numbers, of which the first 2,000 characters are read. All are of one app: two
    apps share none.
    """
    body = exchange.request.body
    user = next((value for name in _END_USER if isinstance(value := body.get(name), str) and value), None)
    known = (
        ("s", _session(exchange, user)),
        ("u", user),
        ("k", exchange.key_id),
        ("q", _normalised(question) if question else None),
    )
    names = [f"{kind}:{_hashed(kind, exchange.app, value, salt)}" for kind, value in known if value]
    return " ".join(names) or None


def _session(exchange: Exchange, user: str | None) -> str | None:
    """Return the session's name, with end user and key where they are known: two that share a name do so by mistake."""
    if not exchange.session:
        return None
    owners = [f"{kind}={owner}" for kind, owner in (("u", user), ("k", exchange.key_id)) if owner]
    return "\0".join([exchange.session, *owners])


def _normalised(question: str) -> str:
    words = _WORDS.findall(unicodedata.normalize("NFKC", question[:_MOST_READ]).casefold())
    return _NUMBER.sub("0", " ".join(words))


def _hashed(kind: str, app: str, value: str, salt: str) -> str:
    text = f"{kind}\0{app}\0{value}"
    hashed = _keyed(salt).copy()
    hashed.update(text.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


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
    return blake2b(key=salt.encode()[:64], digest_size=_NAME_BYTES)
