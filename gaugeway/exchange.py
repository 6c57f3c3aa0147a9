"""An exchange, one request and its response: as recorded by the proxy, and as decoded for capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from gaugeway.records import Context, Usage

Headers: TypeAlias = list[tuple[bytes, bytes]]
Ending: TypeAlias = Literal[
    "complete", "client_cancelled", "upstream_truncated", "upstream_error", "timeout", "rejected"
]

DECISION_ROUTES = frozenset({"decisions", "systemone"})
"""Routes that answer typed questions with probabilities: what they return is no answer to a user."""
GENERATION_ROUTES = frozenset({"chat_completions", "completions", "responses", "messages"}) | DECISION_ROUTES
"""Routes whose exchanges are captured. Other routes (models, files, embeddings ...) are counted only."""

_RESOURCES = ("models", "files", "audio", "images", "batches")
"""Routes with further parts behind them."""
_ROUTES = {"chat/completions": "chat_completions"}
_ROUTES |= {route: route for route in GENERATION_ROUTES - {"chat_completions"}}
_ROUTES |= {route: route for route in ("embeddings", "moderations", *_RESOURCES)}


def route_of(method: str, path: str) -> str:
    """Name the API route of a request: a closed set, fit for a label. Only a POST generates; a GET lists or reads.

    >>> route_of("POST", "/v1/chat/completions")
    'chat_completions'
    >>> route_of("POST", "/openai/deployments/prod/embeddings")
    'embeddings'
    >>> route_of("GET", "/v1/chat/completions")
    'other'
    """
    tail = path.removeprefix("/v1/")
    if path.startswith("/openai/"):
        tail = path.removeprefix("/openai/").removeprefix("v1/")
        if tail.startswith("deployments/"):
            tail = tail.split("/", 2)[2] if tail.count("/") > 1 else tail
    tail = tail.rstrip("/")
    if (route := _ROUTES.get(tail)) is not None:
        return route if method == "POST" or route not in GENERATION_ROUTES else "other"
    head = tail.split("/", 1)[0]
    return head if head in _RESOURCES else "other"


class Explicit(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that the client sent explicitly with its request; None for those it did not send."""

    question: str | None = None
    contexts: tuple[Context, ...] | None = None
    reference: str | None = None
    app: str | None = None
    session: str | None = None
    tags: dict[str, str] = {}
    capture: bool = True
    context_key: str | None = None
    dropped_tags: int = 0


class Trace(msgspec.Struct, frozen=True):
    """The W3C trace of an exchange: `span_id` is the exchange's own span, `parent_id` its parent."""

    trace_id: str
    span_id: str
    parent_id: str | None = None
    sampled: bool = True


class Recording(msgspec.Struct, kw_only=True):
    """A raw exchange as the proxy recorded it. Filled on the request path, then handed over and never changed again.

    Times are seconds; `started_at` is Unix time, the others are durations from the start of the request.
    `request_body` is None when the body was passed through without being kept. `pressure` is set by the capture buffer:
    the factor, 0 to 1, by which back-pressure lowered the capture rate. A struct because one is made for every request
    (a dataclass costs 2 µs more).
    """

    id: str
    started_at: float
    method: str
    path: str
    route: str
    request_headers: Headers
    request_body: bytes | None = None
    explicit: Explicit | None = None
    trace: Trace | None = None
    upstream: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    status: int = 0
    response_headers: Headers = msgspec.field(default_factory=list)
    chunks: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0
    too_large: bool = False
    asked_for_usage: bool = False
    cached: bool = False
    key_id: str | None = None
    ending: Ending = "complete"
    error_kind: str | None = None
    request_overhead_s: float | None = None
    first_chunk_s: float | None = None
    duration_s: float = 0.0
    pressure: float = 1.0

    @property
    def app(self) -> str:
        """The app that the request counts for: the one that the client named out of band, or that of its key."""
        return (self.explicit.app if self.explicit else None) or "default"

    def keep(self, chunk: bytes, limit: int) -> None:
        """Append response bytes, unless the recording would exceed `limit` bytes, request included."""
        if self.too_large:
            return
        self.size += len(chunk)
        if self.size > limit:
            self.too_large = True
            self.chunks.clear()
        else:
            self.chunks.append(chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The decoded client request. `headers` has lower-case names; `body` is the JSON object ({} without one).

    `messages` is set by the first `gaugeway.prompts.messages_of`, since a dozen readers want them.
    """

    route: str
    headers: dict[str, str]
    body: dict[str, Any]
    explicit: Explicit | None = None
    messages: list[dict[str, Any]] | None = field(default=None, init=False, repr=False, compare=False)


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded upstream response; a stream is folded into the equivalent object.

    `by_tool`: the answer, `text`, was handed over as the argument of a tool call.
    """

    status: int
    body: dict[str, Any]
    text: str = ""
    finish_reason: str | None = None
    tool_calls: int = 0
    refusal: bool = False
    by_tool: bool = False
    id: str | None = None
    model: str | None = None
    usage: Usage | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):  # two for every exchange: made ten times as fast
    """What is known of a decoded exchange. Times are seconds, `upstream` names the one that was asked last."""

    id: str
    started_at: float
    duration_s: float
    first_chunk_s: float | None = None
    ending: Ending
    stream: bool
    app: str
    model: str
    cached: bool = False
    trace: Trace | None = None
    upstream: str | None = None


class Exchange(Facts, frozen=True, kw_only=True):
    """A decoded request and its response.

    `session` is named by the app in any of the ways it may. `digest` is the same for the same request of the same
    sender; with `resent` such a request is the same one again, and not another user's: it says that it is a retry, or
    names its session or end user. `size` is the bytes of both bodies, decompressed.
    """

    request: Request
    response: Response
    key_id: str | None = None
    tags: dict[str, str] = {}
    session: str | None = None
    digest: bytes | None = None
    resent: bool = False
    pressure: float = 1.0
    size: int = 0


class ExchangeSummary(Facts, frozen=True, kw_only=True):
    """The facts of a decoded exchange that are counted, priced and traced; no content.

    `status` is the HTTP status. `parameters` are the request's generation parameters (`SPAN_PARAMETERS`) that are
    numbers, booleans or short strings. `conversation` is the session that the app names, redacted. `prompt` is the
    prompt's version as in `Sample`; None where no sample was made.
    """

    route: str
    status: int
    conversation: str | None = None
    prompt: str | None = None
    usage: Usage | None = None
    response_id: str | None = None
    response_model: str | None = None
    finish_reason: str | None = None
    parameters: dict[str, bool | int | float | str] = {}


SPAN_PARAMETERS = (
    *("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens", "seed", "n"),
    *("frequency_penalty", "presence_penalty", "stream"),
)
