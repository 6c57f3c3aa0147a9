"""The OpenAPI 3.1 document of the monitors' admin port.

Paths and parameters come from the handlers, schemas from the records. The table `_OPERATIONS` adds what the handlers do
not declare: bodies that they decode themselves (so that a 400 names the field), error statuses and media types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Response, get
from litestar.openapi import OpenAPIConfig

from gaugeway.records import Alert, Failed, Sample, Score, Skipped, Supplement
from gaugeway.runtime.auth import WebApp
from gaugeway.storage.stores import Point
from gaugeway.storage.templates import StoredTemplate
from monitors.alerting.acknowledgements import Ack, UndeliveredNotification
from monitors.alerting.engine import StreamStatus
from monitors.alerting.silences import Silence
from monitors.alerting.versions import Version
from monitors.analysis.ab_compare import Compared
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.human_labels import Labelled
from monitors.analysis.quality import Quality
from monitors.analysis.retrieval.coverage_gaps import GapReport
from monitors.analysis.retrieval.sources import SourceReport
from monitors.api.alerts import NewAck, NewMatcher, NewSilence
from monitors.api.series import SeriesAnswer

_PATH = "/api/openapi.json"
_BODIES = (NewAck, NewMatcher, NewSilence)
_ANSWERS = (
    Ack,
    Alert,
    Captured,
    Compared,
    UndeliveredNotification,
    Failed,
    GapReport,
    Labelled,
    Point,
    Quality,
    Sample,
    Score,
    SeriesAnswer,
    Silence,
    Skipped,
    SourceReport,
    StoredTemplate,
    Supplement,
    Version,
    StreamStatus,
)
_REASONS = {
    400: "Invalid parameter or field; the detail names it.",
    401: "The token is missing or wrong.",
    403: "Unexpected Host header, or a cross-origin request.",
    404: "Not found.",
    409: "The limit on their number is reached.",
    413: "The body is too large.",
    415: "Content-Type or Content-Encoding not supported.",
    429: "Too many wrong tokens from this address.",
    502: "The delivery failed; the detail gives the reason.",
    503: "Not available: this process is starting, or another one is the leader.",
}
_GUARDS = (401, 403, 429)
SAMPLE_NAMES = {"conversation": "conversation_id"}
"""Fields of a sample that the API gives under another name."""


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
_ENABLED = _object(
    name=_TEXT,
    version=_TEXT,
    rate=_NUMBER,
    threshold=_NUMBER,
    objective={"anyOf": [_NUMBER, {"type": "null"}]},
    lower_is_better=_FLAG,
)
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
    """What a handler does not declare. Without an `answer` the response has no content."""

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
    ("get", "/healthz"): _Operation(summary="Liveness probe", answer=_object(status=_words("ok")), open=True),
    ("get", "/metrics"): _Operation(
        summary="Series for Prometheus", answer=_TEXT, media=("text/plain", "application/openmetrics-text")
    ),
    ("get", _PATH): _Operation(summary="This document", answer={"type": "object"}),
    ("get", "/api/status"): _Operation(
        summary="Configuration and state",
        answer=_object(
            version=_TEXT,
            judge=_JUDGE,
            notes=_many(_TEXT),
            metrics=_many(_ENABLED),
            signals=_many(_object(name=_TEXT, meaning=_TEXT, lower_is_better=_FLAG)),
            queue=_QUEUE,
            rules=_many(_ref(StreamStatus)),
        ),
    ),
    ("get", "/api/metrics"): _Operation(
        summary="Mean and interval by app and metric",
        answer=_many(_with(Quality, state=_words("unwatched", "quiet", "pending", "firing"))),
    ),
    ("get", "/api/capture"): _Operation(summary="Capture coverage by app", answer=_many(_ref(Captured))),
    ("get", "/api/alerts"): _Operation(summary="Alerts, newest first", answer=_many(_ref(Alert))),
    ("get", "/api/silences"): _Operation(summary="Silences", answer=_many(_SILENCE)),
    ("post", "/api/silences"): _Operation(
        summary="Create a silence",
        status=201,
        body=_ref(NewSilence),
        answer=_SILENCE,
        errors=(400, 409, 413, 503),
    ),
    ("delete", "/api/silences/{silence_id}"): _Operation(summary="End a silence", status=204, errors=(404, 503)),
    ("post", "/api/alerts/{fingerprint}/ack"): _Operation(
        summary="Acknowledge an alert",
        body=_ref(NewAck),
        answer=_ref(Ack),
        errors=(400, 404, 413, 503),
    ),
    ("delete", "/api/alerts/{fingerprint}/ack"): _Operation(
        summary="Remove an acknowledgement", status=204, errors=(404, 503)
    ),
    ("get", "/api/dead-letters"): _Operation(
        summary="Undelivered notifications", answer=_many(_ref(UndeliveredNotification))
    ),
    ("post", "/api/dead-letters/{letter_id}/retry"): _Operation(
        summary="Retry an undelivered notification", answer=_object(delivered={"const": True}), errors=(404, 502, 503)
    ),
    ("get", "/api/versions"): _Operation(summary="Versions seen in the traffic", answer=_many(_ref(Version))),
    ("post", "/api/rules/{rule}/rebaseline"): _Operation(
        summary="Re-learn a rule's baselines", answer=_object(streams=_COUNT), errors=(400, 404, 503)
    ),
    ("get", "/api/templates"): _Operation(
        summary="Prompt templates learned from traffic", answer=_many(_ref(StoredTemplate)), errors=(400, 503)
    ),
    ("post", "/api/templates/{version}/confirm"): _Operation(
        summary="Confirm a template", answer=_object(state=_words("confirmed")), errors=(400, 404, 503)
    ),
    ("post", "/api/templates/{version}/reject"): _Operation(
        summary="Reject a template", answer=_object(state=_words("rejected")), errors=(400, 404, 503)
    ),
    ("get", "/api/compare"): _Operation(
        summary="Compare two versions",
        answer=_object(
            by=_TEXT,
            a=_TEXT,
            b=_TEXT,
            delta=_NUMBER,
            alpha=_NUMBER,
            decision=_words("ship", "roll back", "not enough data"),
            partial=_FLAG,
            rows=_many(_ref(Compared)),
        ),
        errors=(400,),
    ),
    ("get", "/api/labels"): _Operation(
        summary="The judge compared with human labels", answer=_many(_ref(Labelled)), errors=(400,)
    ),
    ("get", "/api/sources"): _Operation(
        summary="Sources of an app's passages: uses, citations, contradictions, effect on scores",
        answer=_with(SourceReport, total_sources=_COUNT),
        errors=(400,),
    ),
    ("get", "/api/topics"): _Operation(
        summary="Questions without a good answer, by topic", answer=_ref(GapReport), errors=(400,)
    ),
    ("get", "/api/series"): _Operation(
        summary="Means of a metric over time, with versions, alerts, baseline and objective",
        answer=_ref(SeriesAnswer),
        errors=(400,),
    ),
    ("get", "/api/exchanges"): _Operation(summary="Stored evaluations", answer=_many(_ref(Point)), errors=(400,)),
    ("get", "/api/exchanges/{exchange_id}"): _Operation(
        summary="One exchange with its evaluations and supplements",
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
    """Return the handler that serves the document of `handlers` and itself; built on the first request."""

    @get(_PATH, sync_to_thread=True)
    def openapi() -> Response[bytes]:
        return Response(_encoded(), media_type="application/json")

    @cache
    def _encoded() -> bytes:
        return msgspec.json.encode(document([*handlers, openapi]))

    return openapi


def document(handlers: Sequence[Any]) -> dict[str, Any]:
    """The document of these handlers. Raises KeyError for a route that `_OPERATIONS` does not describe."""
    listed = WebApp(list(handlers), openapi_config=OpenAPIConfig(title="Gaugeway", version=version("gaugeway")))
    generated: dict[str, Any] = listed.openapi_schema.to_schema()
    paths = {
        path: {method: _operation(method, path, described) for method, described in methods.items()}
        for path, methods in generated["paths"].items()
    }
    return {
        "openapi": "3.1.0",
        "info": generated["info"] | {"description": "The evaluation plane's admin port."},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: str, path: str, generated: Mapping[str, Any]) -> dict[str, Any]:
    added = _OPERATIONS[method, path]
    answer: dict[str, Any] = {"description": added.summary + "."}
    if added.answer is not None:
        answer["content"] = {media: {"schema": added.answer} for media in added.media}
    errors = {
        **dict.fromkeys(added.errors, added.error),
        **dict.fromkeys(() if added.open else _GUARDS, "Error"),
    }
    operation = {
        "summary": added.summary,
        "operationId": generated["operationId"],
        "parameters": [_parameter(parameter) for parameter in generated.get("parameters", ())],
        "responses": {
            str(added.status): answer,
            **{str(status): _error(status, errors[status]) for status in sorted(errors)},
        },
    }
    if added.body is not None:
        content = {media: {"schema": added.body} for media in added.takes}
        operation["requestBody"] = {"required": True, "content": content}
    return operation | ({"security": []} if added.open else {})


def _error(status: int, shape: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{shape}"}
    return {"description": _REASONS[status], "content": {"application/json": {"schema": schema}}}


def _parameter(generated: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter without the null alternative: on the wire it is absent or a text."""
    schema = generated["schema"]
    given = [branch for branch in schema.get("oneOf", [schema]) if branch != {"type": "null"}]
    kept = {name: generated[name] for name in ("name", "in", "description", "required") if name in generated}
    return kept | {"schema": given[0]}


def _schemas() -> dict[str, Any]:
    _, sent = msgspec.json.schema_components(_ANSWERS, ref_template="#/components/schemas/{name}")
    sample = sent["Sample"]["properties"]
    sent["Sample"]["properties"] = {SAMPLE_NAMES.get(name, name): field for name, field in sample.items()}
    for schema in sent.values():
        if "properties" in schema:  # an answer has all properties, whatever their defaults
            schema["required"] = list(schema["properties"])
    _, received = msgspec.json.schema_components(_BODIES, ref_template="#/components/schemas/{name}")
    error = _object(status_code=_COUNT, detail=_TEXT) | {"description": "The error message."}
    received["NewSilence"]["oneOf"] = [_given("ends"), _given("duration_s")]
    status = _object(code=_COUNT, message=_TEXT) | {"description": "The error in OTLP's format."}
    return {**sent, **received, "Error": error, "Status": status}


def _given(name: str) -> dict[str, Any]:
    return {"properties": {name: {"not": {"type": "null"}}}, "required": [name]}
