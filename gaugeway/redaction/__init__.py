"""Redaction: replaces secrets and personal data by placeholders; equal values have equal placeholders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

import regex
from cachetools import LRUCache

from gaugeway import records
from gaugeway.redaction.phones import phones
from gaugeway.redaction.pii import addresses, cards, emails, ibans
from gaugeway.redaction.secrets import secrets
from gaugeway.redaction.spans import Span, resolve
from gaugeway.text.cache import TextCache

Finder: TypeAlias = Callable[[str], Iterator[Span]]

# In this order the more specific comes first.
FINDERS: dict[str, Finder] = {
    "secret": secrets,
    "iban": ibans,
    "card": cards,
    "email": emails,
    "ip": addresses,
    "phone": phones,
}
KINDS = ("email", "phone", "card", "iban", "ip", "secret")
PATTERN_S = 0.1
"""What an own pattern may take for one text, in seconds, and as much again for each million of characters."""
_MILLION = 1_000_000
_REMEMBERED = 200
"""Instructions whose redacted text is remembered: of at most 33 KB each."""
_ESCAPE = regex.compile(r"\\(?:u[0-9a-fA-F]{4}|[nrtbf])")
"""White space and other characters in JSON that is part of a text."""
_NAME = regex.compile(r"[a-z][a-z0-9_]{0,31}")
PUBLIC_SALT = "gaugeway"


class Redactor:
    """Replaces values of `kinds`, and matches of custom `patterns` (name, regular expression), by placeholders.

    A placeholder is `[EMAIL_7f3ac1]`: the kind and a hash, keyed with `salt`, of the value in its normal form. The same
    value has the same placeholder everywhere, so that a claim still matches its context; without the
    salt the value cannot be found by brute force. `withheld` counts texts replaced entirely because a custom pattern
    timed out. Raises ValueError for an unknown kind, a bad pattern or an empty salt.
    """

    def __init__(self, kinds: Sequence[str], patterns: Sequence[tuple[str, str]] = (), salt: str = "") -> None:
        if unknown := [kind for kind in kinds if kind not in FINDERS]:
            raise ValueError(f"no kind {unknown[0]!r} to redact; known: {', '.join(KINDS)}")
        if not salt:
            raise ValueError("redaction needs a salt: without one, short values could be found by brute force")
        self._finders = [find for kind, find in FINDERS.items() if kind in kinds]
        self._patterns = [(name, _compiled(name, pattern)) for name, pattern in patterns]
        names = [name for name, _ in patterns]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two patterns are named {twice!r}")
        self._order = {kind: rank for rank, kind in enumerate([*names, *FINDERS])}
        self._key = blake2b(salt.encode("utf-8", "surrogatepass")).digest()
        self._known: LRUCache[bytes, str] = LRUCache(_REMEMBERED)
        self._clean: TextCache[bool] = TextCache()
        self.withheld = 0

    def redact(self, text: str) -> str:
        """Return `text` with placeholders. Never raises; the time grows with the length of the text."""
        try:
            spans = self.spans(text)
        except TimeoutError:
            self.withheld += 1
            return f"[WITHHELD_{self._hash('withheld', text)[:6]}]"
        if not spans:
            return text
        pieces, position = [], 0
        for span in spans:
            pieces += [text[position : span.start], f"[{span.kind.upper()}_{self._hash(span.kind, span.value)[:6]}]"]
            position = span.end
        return "".join([*pieces, text[position:]])

    def _recurring(self, text: str) -> str:
        """Redact a text of the kind that recurs, as passages do: one without anything to redact is searched once."""
        if self._clean.get(text):
            return text
        if (redacted := self.redact(text)) is text:
            self._clean.put(text, value=True)
        return redacted

    def spans(self, text: str) -> list[Span]:
        """Find what is to be replaced, without overlaps. Raises TimeoutError when an own pattern does not end.

        A value behind an escape of JSON is found, too, although the escape ends with a letter or digit.
        """
        found = self._found(text)
        if "\\" in text and (apart := _ESCAPE.sub(lambda escape: " " * len(escape[0]), text)) != text:
            behind = self._found(apart)
            ends = {(span.end, span.kind) for span in behind}
            # The letter of an escape is no part of the value behind it: that has the same placeholder everywhere.
            found = [span for span in found if text[span.start] == apart[span.start] or span[1:3] not in ends] + behind
        return resolve(found, self._order)

    def _found(self, text: str) -> list[Span]:
        found = [span for find in self._finders for span in find(text)]
        limit_s = PATTERN_S * (1 + len(text) / _MILLION)
        for name, pattern in self._patterns:
            matches = pattern.finditer(text, timeout=limit_s)
            found += [Span(*match.span(), name, match[0]) for match in matches if match[0]]
        return found

    def redact_sample(self, sample: records.Sample) -> records.Sample:
        """Return the sample with its free text redacted; ids of ours, app and model are no free text."""
        return records.changed(
            sample,
            question=self._optional(sample.question),
            contexts=self._contexts(sample.contexts),
            response=self.redact(sample.response),
            reference=self._optional(sample.reference),
            tags=self._tags(sample.tags),
            session=self._optional(sample.session),
            context_key=self._optional(sample.context_key),
            capture=None if sample.capture is None else self._capture(sample.capture),
            history=records.each_changed(self._message, sample.history),
            calls=records.each_changed(self._call, sample.calls),
        )

    def redact_supplement(self, supplement: records.Supplement) -> records.Supplement:
        """Return the supplement with its free text redacted. Its key becomes what the sample's does: they still fit."""
        return replace(
            supplement,
            key=self._optional(supplement.key),
            question=self._optional(supplement.question),
            contexts=None if supplement.contexts is None else self._contexts(supplement.contexts),
            reference=self._optional(supplement.reference),
            label=self._optional(supplement.label),
            comment=self._optional(supplement.comment),
            calls=None if supplement.calls is None else records.each_changed(self._call, supplement.calls),
        )

    def without_content(self, sample: records.Sample) -> records.Sample:
        """Return the sample with hashes in place of its texts; all else, ids and scores of passages too, stays.

        The history and the arguments of tools are dropped: nothing is compared with them.
        """
        return replace(
            sample,
            question=self._digest(sample.question),
            contexts=tuple(replace(context, text=self._digest(context.text) or "") for context in sample.contexts),
            response=self._digest(sample.response) or "",
            reference=self._digest(sample.reference),
            capture=None if sample.capture is None else _without_words(sample.capture),
            history=(),
            calls=_without_arguments(sample.calls),
        )

    def supplement_without_content(self, supplement: records.Supplement) -> records.Supplement:
        """Return the supplement with hashes in place of its texts, as `without_content` does."""
        contexts = supplement.contexts
        return replace(
            supplement,
            question=self._digest(supplement.question),
            contexts=None
            if contexts is None
            else tuple(replace(context, text=self._digest(context.text) or "") for context in contexts),
            reference=self._digest(supplement.reference),
            comment=self._digest(supplement.comment),
            calls=None if supplement.calls is None else _without_arguments(supplement.calls),
        )

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.redact(text)

    def _tags(self, tags: dict[str, str]) -> dict[str, str]:
        if not tags:
            return tags
        found = {name: self._recurring(value) for name, value in tags.items()}
        return tags if found == tags else found

    def _contexts(self, contexts: tuple[records.Context, ...]) -> tuple[records.Context, ...]:
        return records.each_changed(self._context, contexts)

    def _context(self, context: records.Context) -> records.Context:
        clean = self._clean.get
        if (
            clean(context.text)
            and (not context.id or clean(context.id))
            and (not context.source or clean(context.source))
            and (not context.tool or clean(context.tool))
        ):
            return context
        return records.changed(
            context,
            text=self._recurring(context.text),
            id=context.id and self._recurring(context.id),
            source=context.source and self._recurring(context.source),
            tool=context.tool and self._recurring(context.tool),
        )

    def _message(self, message: records.Message) -> records.Message:
        return records.changed(message, text=self._recurring(message.text))

    def _call(self, call: records.ToolCall) -> records.ToolCall:
        return records.changed(call, name=self._recurring(call.name), arguments=self.redact(call.arguments))

    def _capture(self, capture: records.CaptureInfo) -> records.CaptureInfo:
        """Offsets stay those in the request, independent of placeholder lengths."""
        return records.changed(
            capture,
            marker=capture.marker and self._recurring(capture.marker),
            reason=capture.reason and self._recurring(capture.reason),
            parts=records.each_changed(self._part, capture.parts),
        )

    def _part(self, part: records.PromptPart) -> records.PromptPart:
        if not part.text or (text := self._repeated(part.text)) is part.text:
            return part
        return records.changed(part, text=text)

    def _repeated(self, text: str) -> str:
        """Redact a text that mostly was redacted before: an app sends the same instructions with every request."""
        if self._clean.get(text):
            return text
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (known := self._known.get(key)) is not None:
            return known
        withheld = self.withheld
        redacted = self._recurring(text)
        if self.withheld == withheld and redacted is not text:
            self._known[key] = redacted
        return redacted

    def _digest(self, text: str | None) -> str | None:
        """Hash a text; what is empty or missing stays so, since that is no content but a fact about the exchange."""
        return f"blake2b:{self._hash('content', text)}" if text else text

    def _hash(self, kind: str, value: str) -> str:
        said = f"{kind}\0{value}".encode("utf-8", "surrogatepass")
        return blake2b(said, key=self._key, digest_size=16).hexdigest()


def _without_arguments(calls: tuple[records.ToolCall, ...]) -> tuple[records.ToolCall, ...]:
    return tuple(replace(call, arguments="") for call in calls)


def _without_words(capture: records.CaptureInfo) -> records.CaptureInfo:
    """Instructions are dropped, not hashed: nothing is compared with them. A reason may quote them."""
    return replace(capture, reason=None, parts=tuple(records.changed(part, text="") for part in capture.parts))


def _compiled(name: str, pattern: str) -> regex.Pattern[str]:
    if not _NAME.fullmatch(name) or name in FINDERS:
        raise ValueError(f"a pattern name has lower-case letters, digits and _, and is no built-in kind; got {name!r}")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"pattern {name!r} is not a valid regular expression: {error}") from error


def redaction_key(salt: str, data_dir: Path) -> str:
    """Return `salt`, unless it is the default, which is public: then a random one kept in `data_dir`.

    Processes that share the directory share the key, whichever comes first. Raises OSError.
    """
    if salt != PUBLIC_SALT:
        return salt
    path = data_dir / "redaction.key"
    data_dir.mkdir(parents=True, exist_ok=True)
    new = data_dir / f".redaction.key.{token_hex(4)}"
    try:
        return path.read_text("ascii")
    except FileNotFoundError:
        new.touch(mode=0o600)
        new.write_text(token_hex(32), "ascii")
        try:
            os.link(new, path)  # fails when another process was first; a reader never sees half a file
        except FileExistsError:
            pass
        finally:
            new.unlink()
        return path.read_text("ascii")
