"""The explicit channel: the body key `gaugeway` and the `x-gaugeway-*` headers."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote

import msgspec

from gaugeway.exchange import Explicit, Headers, Request, Response
from gaugeway.prompts import Evidence, Extraction, extraction
from gaugeway.records import Context
from gaugeway.settings.bounds import MAX_PASSAGES, MAX_TAGS, bounded_tags, optional_name
from gaugeway.settings.field_errors import located

PREFIX = b"x-gaugeway-"
_ON, _OFF = frozenset({"on", "true", "1", "yes"}), frozenset({"off", "false", "0", "no"})
_NAMES = frozenset(
    {"app", "session", "question", "contexts", "reference", "tags", "capture", "context-key", "upstream"}
)


class _Passage(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    id: str | int | None = None
    score: float | None = None
    source: str | None = None


_Passages = list[str | _Passage]


class _BodyKey(msgspec.Struct, forbid_unknown_fields=True):
    question: str | None = None
    contexts: _Passages | None = None
    reference: str | None = None
    app: str | None = None
    session: str | None = None
    tags: dict[str, str] = {}
    capture: bool = True


_body_decoder = msgspec.json.Decoder(_BodyKey)
_contexts_decoder = msgspec.json.Decoder(_Passages)


class ExplicitError(ValueError):
    """An explicit field is invalid; `field` is its name as the client wrote it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def from_body_key(value: bytes) -> Explicit:
    """Read the value of the body key `gaugeway`. Raises ExplicitError."""
    try:
        key = _body_decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        where, message = located(error, value, _BodyKey)
        raise ExplicitError("gaugeway" + where, message) from error
    return Explicit(
        question=key.question,
        contexts=None if key.contexts is None else _contexts(key.contexts),
        reference=key.reference,
        app=optional_name(key.app),
        session=optional_name(key.session),
        tags=bounded_tags(key.tags) if key.tags else key.tags,
        capture=key.capture,
        dropped_tags=max(0, len(key.tags) - MAX_TAGS),
    )


def from_headers(headers: Headers) -> Explicit | None:
    """Read the `x-gaugeway-*` headers; None when there is none. Raises ExplicitError.

    Text values may be percent-encoded (headers carry only Latin-1).
    """
    said = {name[len(PREFIX) :].decode("latin-1"): value for name, value in headers if name.startswith(PREFIX)}
    if not said:
        return None
    for name in said.keys() - _NAMES:
        raise ExplicitError(f"x-gaugeway-{name}", f"unknown header; known: {', '.join(sorted(_NAMES))}")
    text = {name: _text(name, value) for name, value in said.items()}
    tags = _header_tags(text.get("tags", ""))
    return Explicit(
        question=text.get("question"),
        contexts=_header_contexts(said["contexts"]) if "contexts" in said else None,
        reference=text.get("reference"),
        app=optional_name(text.get("app")),
        session=optional_name(text.get("session")),
        tags=bounded_tags(tags) if tags else tags,
        capture=_header_capture(text.get("capture", "on")),
        context_key=optional_name(text.get("context-key")),
        dropped_tags=max(0, len(tags) - MAX_TAGS),
    )


def merge(body: Explicit | None, headers: Explicit | None) -> Explicit | None:
    """Combine both channels; the body key takes precedence. Either may turn capture off."""
    if body is None or headers is None:
        return body or headers
    tags = {**body.tags, **{name: value for name, value in headers.tags.items() if name not in body.tags}}
    return Explicit(
        question=body.question or headers.question,
        contexts=headers.contexts if body.contexts is None else body.contexts,
        reference=body.reference or headers.reference,
        app=body.app or headers.app,
        session=body.session or headers.session,
        tags=bounded_tags(tags),
        capture=body.capture and headers.capture,
        context_key=headers.context_key,
        dropped_tags=body.dropped_tags + headers.dropped_tags + max(0, len(tags) - MAX_TAGS),
    )


class ExplicitExtractor:
    """Returns the contexts that the client sent explicitly."""

    evidence: Evidence = "sent separately"

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        if request.explicit is None or request.explicit.contexts is None:
            return None
        return extraction(request.explicit.question, request.explicit.contexts, source="explicit", marker="explicit")


def _contexts(passages: _Passages) -> tuple[Context, ...]:
    """Return the passages, at most one more than the limit, so that the caller notices the excess."""
    return tuple(
        Context(text=passage)
        if isinstance(passage, str)
        else Context(
            text=passage.text,
            id=None if passage.id is None else str(passage.id),
            score=passage.score,
            source=passage.source,
        )
        for passage in passages[: MAX_PASSAGES + 1]  # one more, which shows that some were left out
    )


def _header_contexts(value: bytes) -> tuple[Context, ...]:
    raw = value.strip()
    if not raw.startswith(b"["):
        try:
            raw = base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)).strip()
        except (binascii.Error, ValueError):
            raw = b""
        if not raw.startswith(b"["):
            raise ExplicitError("x-gaugeway-contexts", "expected a JSON array, plain or base64url-encoded")
    try:
        return _contexts(_contexts_decoder.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        where, message = located(error, raw, _Passages)
        raise ExplicitError("x-gaugeway-contexts", f"{where}: {message}" if where else message) from error


def _header_tags(value: str) -> dict[str, str]:
    tags: dict[str, str] = {}
    for pair in filter(None, (pair.strip() for pair in value.split(","))):
        name, equals, content = pair.partition("=")
        if not (equals and name.strip()):
            raise ExplicitError("x-gaugeway-tags", f"expected `name=value` pairs separated by commas, got `{pair}`")
        tags[name.strip()] = content.strip()
    return tags


def _header_capture(value: str) -> bool:
    word = value.strip().lower()
    if word not in _ON | _OFF:
        raise ExplicitError("x-gaugeway-capture", f"expected `on` or `off`, got `{value}`")
    return word in _ON


def _text(name: str, value: bytes) -> str:
    try:
        return unquote(value.decode("utf-8"), errors="strict")
    except UnicodeDecodeError as error:
        raise ExplicitError(f"x-gaugeway-{name}", "expected UTF-8, or percent-encoded UTF-8") from error
