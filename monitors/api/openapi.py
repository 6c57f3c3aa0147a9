"""What the admin port's JSON looks like, as an OpenAPI 3.1 document: paths and parameters are read off the handlers,
bodies and answers off the records they carry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.openapi import OpenAPIConfig

from monitors.alerting.acknowledgements import Ack, UndeliveredNotification
from monitors.alerting.engine import StreamStatus
from monitors.alerting.silences import Silence
from monitors.alerting.versions import Version
from monitors.analysis.ab_compare import Compared
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.human_labels import Labelled
from monitors.analysis.quality import Quality
from monitors.api.alerts import NewAck, NewMatcher, NewSilence
from monitors.records import Alert, Failed, Sample, Score, Skipped, Supplement
from monitors.storage.stores import Point
from monitors.storage.templates import StoredTemplate

_PATH = "/api/openapi.json"
_SAID = (NewAck, NewMatcher, NewSilence)
_TOLD = (
    Ack,
    Alert,
    Captured,
    Compared,
    UndeliveredNotification,
    Failed,
    Labelled,
    Point,
    Quality,
    Sample,
    Score,
    Silence,
    Skipped,
    StoredTemplate,
    Supplement,
    Version,
    StreamStatus,
)
_REASONS = {
    400: "What is asked for cannot be: the detail says what is wrong with which parameter or field.",
    401: "The token is missing or wrong.",
    403: "Asked under a foreign name, or by a page of another origin.",
    404: "There is nothing of that name.",
    409: "There are too many already.",
    413: "The body is too large.",
    415: "The body is of a kind, or packed in a way, that is not read here.",
    429: "Too many wrong tokens from this address.",
    502: "It was tried and failed; the detail says why.",
    503: "This process cannot do that now: it has only begun, or another one leads.",
}
_GUARDS = (401, 403, 429)


def _ref(kind: type[Any]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _with(kind: type[Any], /, **more: Any) -> dict[str, Any]:
    return {"allOf": [_ref(kind), _object(**more)]}


def _words(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


_TEXT, _NUMBER, _COUNT, _FLAG = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
_ENABLED = _object(name=_TEXT, version=_TEXT, rate=_NUMBER, threshold=_NUMBER, objective=_NUMBER, lower_is_better=_FLAG)
_QUEUE = _object(ready=_COUNT, leased=_COUNT, dead_letters=_COUNT, trimmed=_COUNT)
_JUDGE = {"anyOf": [_object(model=_TEXT, mode=_TEXT), {"type": "null"}]}
_OUTCOME = {
    "anyOf": [
        _with(kind, kind=_words(word)) for kind, word in ((Score, "score"), (Skipped, "skipped"), (Failed, "failed"))
    ]
}
_EVALUATION = _object(
    sample_id=_TEXT,
    metric=_TEXT,
    version=_TEXT,
    outcome=_OUTCOME,
    judge={"type": ["string", "null"]},
    seconds=_NUMBER,
    cost_usd=_NUMBER,
    rate=_NUMBER,
)
_PAIR = {"type": "object", "properties": {"key": _TEXT, "value": {"type": "object"}}}
_SPAN = {
    "type": "object",
    "properties": {
        "traceId": {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"},
        "spanId": {"type": "string", "pattern": "^[0-9a-fA-F]{16}$"},
        "startTimeUnixNano": {"type": ["string", "integer"], "pattern": "^[0-9]{1,20}$"},
        "attributes": _many(_PAIR),
        "events": _many({"type": "object", "properties": {"name": _TEXT, "attributes": _many(_PAIR)}}),
    },
}
_SCOPE = {"type": "object", "properties": {"spans": _many(_SPAN)}}
_RESOURCE = {"type": "object", "properties": {"scopeSpans": _many(_SCOPE)}}
_EXPORT = {"type": "object", "properties": {"resourceSpans": _many(_RESOURCE)}}
_SILENCE = _with(Silence, state=_words("pending", "active", "expired"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """What litestar cannot read off a handler. Without an answer there is no content; `media` is JSON unless said."""

    summary: str
    status: int = 200
    answer: dict[str, Any] | None = None
    body: dict[str, Any] | None = None
    errors: tuple[int, ...] = ()
    media: Sequence[str] = ("application/json",)
    error: str = "Error"
    takes: Sequence[str] = ("application/json",)
    open: bool = False


_OPERATIONS = {
    ("get", "/healthz"): _Operation(
        summary="Whether the process lives", answer=_object(status=_words("ok")), open=True
    ),
    ("get", "/metrics"): _Operation(
        summary="Series for Prometheus", answer=_TEXT, media=("text/plain", "application/openmetrics-text")
    ),
    ("get", _PATH): _Operation(summary="This document", answer={"type": "object"}),
    ("get", "/api/status"): _Operation(
        summary="What is configured, and how it is doing",
        answer=_object(
            version=_TEXT,
            judge=_JUDGE,
            notes=_many(_TEXT),
            metrics=_many(_ENABLED),
            queue=_QUEUE,
            rules=_many(_ref(StreamStatus)),
        ),
    ),
    ("get", "/api/metrics"): _Operation(
        summary="Per app and metric, the mean with its interval",
        answer=_many(_with(Quality, state=_words("unwatched", "quiet", "pending", "firing"))),
    ),
    ("get", "/api/capture"): _Operation(
        summary="Per app, in how many answers question and passages were found", answer=_many(_ref(Captured))
    ),
    ("get", "/api/alerts"): _Operation(summary="Alerts, newest first", answer=_many(_ref(Alert))),
    ("get", "/api/silences"): _Operation(summary="Silences", answer=_many(_SILENCE)),
    ("post", "/api/silences"): _Operation(
        summary="Silence alerts for a time",
        status=201,
        body=_ref(NewSilence),
        answer=_SILENCE,
        errors=(400, 409, 413, 503),
    ),
    ("delete", "/api/silences/{silence_id}"): _Operation(summary="End a silence", status=204, errors=(404, 503)),
    ("post", "/api/alerts/{fingerprint}/ack"): _Operation(
        summary="Say that somebody looks after an alert",
        body=_ref(NewAck),
        answer=_ref(Ack),
        errors=(400, 404, 413, 503),
    ),
    ("delete", "/api/alerts/{fingerprint}/ack"): _Operation(summary="Take that back", status=204, errors=(404, 503)),
    ("get", "/api/dead-letters"): _Operation(
        summary="What could not be delivered", answer=_many(_ref(UndeliveredNotification))
    ),
    ("post", "/api/dead-letters/{letter_id}/retry"): _Operation(
        summary="Deliver it now", answer=_object(delivered={"const": True}), errors=(404, 502, 503)
    ),
    ("get", "/api/versions"): _Operation(summary="Versions seen in the traffic", answer=_many(_ref(Version))),
    ("post", "/api/rules/{rule}/rebaseline"): _Operation(
        summary="Learn a rule's baselines afresh", answer=_object(streams=_COUNT), errors=(400, 404, 503)
    ),
    ("get", "/api/templates"): _Operation(
        summary="Prompt templates learned from traffic", answer=_many(_ref(StoredTemplate)), errors=(400, 503)
    ),
    ("post", "/api/templates/{version}/confirm"): _Operation(
        summary="Keep a template", answer=_object(state=_words("confirmed")), errors=(400, 404, 503)
    ),
    ("post", "/api/templates/{version}/reject"): _Operation(
        summary="End a template", answer=_object(state=_words("rejected")), errors=(400, 404, 503)
    ),
    ("get", "/api/compare"): _Operation(
        summary="Two versions compared",
        answer=_object(
            by=_TEXT,
            a=_TEXT,
            b=_TEXT,
            delta=_NUMBER,
            alpha=_NUMBER,
            decision=_words("ship", "roll back", "not enough data"),
            rows=_many(_ref(Compared)),
        ),
        errors=(400,),
    ),
    ("get", "/api/labels"): _Operation(
        summary="The judge beside people's labels", answer=_many(_ref(Labelled)), errors=(400,)
    ),
    ("get", "/api/exchanges"): _Operation(summary="Stored evaluations", answer=_many(_ref(Point)), errors=(400,)),
    ("get", "/api/exchanges/{exchange_id}"): _Operation(
        summary="One exchange with all that is known of it",
        answer=_object(sample=_ref(Sample), evaluations=_many(_EVALUATION), supplements=_many(_ref(Supplement))),
        errors=(404,),
    ),
    ("post", "/v1/traces"): _Operation(
        summary="Retriever spans by OTLP",
        body=_EXPORT,
        error="Status",
        takes=("application/json", "application/x-protobuf"),
        answer={},
        media=("application/json", "application/x-protobuf"),
        errors=(400, 413, 415, 503),
    ),
}


def openapi_handler(handlers: Sequence[Any]) -> Any:
    """Return the handler that serves the document of these handlers and itself; it is made when first asked for."""

    @get(_PATH, sync_to_thread=True)
    def openapi() -> Response[bytes]:
        return Response(_encoded(), media_type="application/json")

    @cache
    def _encoded() -> bytes:
        return msgspec.json.encode(document([*handlers, openapi]))

    return openapi


def document(handlers: Sequence[Any]) -> dict[str, Any]:
    """Describe these handlers. Raises KeyError for one that nobody described."""
    listed = Litestar(list(handlers), openapi_config=OpenAPIConfig(title="Gaugeway", version=version("gaugeway")))
    told: dict[str, Any] = listed.openapi_schema.to_schema()
    paths = {
        path: {method: _told(method, path, one) for method, one in methods.items()}
        for path, methods in told["paths"].items()
    }
    return {
        "openapi": "3.1.0",
        "info": told["info"] | {"description": "The evaluation plane's admin port."},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _told(method: str, path: str, read: Mapping[str, Any]) -> dict[str, Any]:
    said = _OPERATIONS[method, path]
    answer: dict[str, Any] = {"description": said.summary + "."}
    if said.answer is not None:
        answer["content"] = {media: {"schema": said.answer} for media in said.media}
    errors = {
        **dict.fromkeys(said.errors, said.error),
        **dict.fromkeys(() if said.open else _GUARDS, "Error"),
    }
    told = {
        "summary": said.summary,
        "operationId": read["operationId"],
        "parameters": [_parameter(one) for one in read.get("parameters", ())],
        "responses": {str(said.status): answer, **{str(one): _error(one, errors[one]) for one in sorted(errors)}},
    }
    if said.body is not None:
        content = {media: {"schema": said.body} for media in said.takes}
        told["requestBody"] = {"required": True, "content": content}
    return told | ({"security": []} if said.open else {})


def _error(status: int, shape: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{shape}"}
    return {"description": _REASONS[status], "content": {"application/json": {"schema": schema}}}


def _parameter(read: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter as it is sent: absent or a text, never null."""
    schema = read["schema"]
    given = [one for one in schema.get("oneOf", [schema]) if one != {"type": "null"}]
    kept = {name: read[name] for name in ("name", "in", "description", "required") if name in read}
    return kept | {"schema": given[0]}


def _schemas() -> dict[str, Any]:
    _, told = msgspec.json.schema_components(_TOLD, ref_template="#/components/schemas/{name}")
    for schema in told.values():
        if "properties" in schema:  # an answer has all of them, whatever their defaults
            schema["required"] = list(schema["properties"])
    _, said = msgspec.json.schema_components(_SAID, ref_template="#/components/schemas/{name}")
    error = _object(detail=_TEXT) | {"description": "What went wrong, for people."}
    said["NewSilence"]["oneOf"] = [_given("ends"), _given("duration_s")]
    status = _object(code=_COUNT, message=_TEXT) | {"description": "What went wrong, as OTLP says it."}
    return {**told, **said, "Error": error, "Status": status}


def _given(name: str) -> dict[str, Any]:
    return {"properties": {name: {"not": {"type": "null"}}}, "required": [name]}
