"""Erasure of one person's data: selects samples and supplements; stores and queues delete them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gaugeway.text.normalising import nfkc


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose data to erase. Every given field must match; `match` is searched for in all texts, in any case.

    Raises ValueError when no field is given, because that would erase everything.
    """

    app: str | None = None
    session: str | None = None
    match: str | None = None

    def __post_init__(self) -> None:
        given = (self.app, self.session, self.match)
        if not any(given) or any(condition is not None and not condition.strip() for condition in given):
            raise ValueError("give --app, --session or --match (not empty)")

    def meets_sample(self, payload: str) -> bool:
        """Whether a stored sample is meant. One that cannot be read is searched as the text it is."""
        try:
            sample = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            sample = payload
        if not isinstance(sample, dict):
            given = [condition for condition in (self.app, self.session, self.match) if condition is not None]
            return all(_within(condition, texts_in(sample)) for condition in given)
        if self.app is not None and sample.get("app", "default") != self.app:
            return False
        if self.session is not None and sample.get("session") != self.session:
            return False
        return self.match is None or _within(self.match, texts_in(sample))

    def meets_supplement(self, payload: str) -> bool:
        """Whether a supplement is meant by itself: its text has `match`. It knows neither app nor session."""
        return self.match is not None and Subject(match=self.match).meets_sample(payload)

    def meets_texts(self, texts: list[str]) -> bool:
        """Whether `match`, if it is given, stands in one of the texts."""
        return self.match is None or _within(self.match, texts)


class Trail:
    """One search for a subject: what is meant, and what was said about what was meant so far."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.addresses: set[tuple[str, str]] = set()

    def sample(self, sample_id: str, payload: str) -> bool:
        """Whether a sample is meant."""
        if meant := self._subject.meets_sample(payload):
            self.addresses.update([("exchange", sample_id), *addresses_of(payload)])
        return meant

    def supplement(self, _: str, payload: str) -> bool:
        """Whether a supplement is meant by itself, or is about a sample that is. Its own id is no address."""
        about = addresses_of(payload, exchange="exchange_id", key="key")
        return not self.addresses.isdisjoint(about) or self._subject.meets_supplement(payload)


def addresses_of(payload: str, *, exchange: str = "id", key: str = "context_key") -> list[tuple[str, str]]:
    """What addresses (kind, value) a sample has for supplements; none when it cannot be read.

    `exchange` and `key` name the fields; a supplement has its own for what it is addressed to.
    """
    try:
        sample = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    if not isinstance(sample, dict):
        return []
    named = (("exchange", exchange), ("key", key), ("trace", "trace_id"))
    return [(kind, sample[field]) for kind, field in named if isinstance(sample.get(field), str)]


def _within(wanted: str, texts: Iterator[str] | list[str]) -> bool:
    plain = _plain(wanted)
    return any(plain in _plain(text) for text in texts)


def _plain(text: str) -> str:
    """Two ways to write the same letter are the same."""
    return nfkc(text).casefold()


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a decoded JSON value, the names of members included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
