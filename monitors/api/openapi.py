"""The OpenAPI 3.1 document of the monitors' admin port.

Paths and parameters come from the handlers, schemas from the records. `operations.json` adds what the handlers do not
declare: bodies that they decode themselves (so that a 400 names the field), error statuses and media types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Response, get
from litestar.openapi import OpenAPIConfig

from gaugeway.data_files import table
from gaugeway.records import Alert, Failed, Sample, Score, Skipped, Supplement
from gaugeway.runtime.auth import WebApp
from gaugeway.storage.stores import Point
from gaugeway.storage.templates import StoredTemplate
from monitors.alerting.acknowledgements import Ack, Silence, UndeliveredNotification
from monitors.alerting.changes import Version
from monitors.alerting.engine import StreamStatus
from monitors.analysis.ab_compare import Compared
from monitors.analysis.answer_clusters import ClusterReport
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.datasets import Added, DatasetVersion
from monitors.analysis.human_labels import Labelled
from monitors.analysis.judge_check import JudgeCheck
from monitors.analysis.quality import Quality
from monitors.analysis.retrieval.context_cost import ContextCostReport
from monitors.analysis.retrieval.coverage_gaps import GapReport
from monitors.analysis.retrieval.sources import SourceReport
from monitors.api.alerts import NewAck, NewMatcher, NewSilence
from monitors.api.documents import NewRows
from monitors.api.series import SeriesAnswer
from monitors.statistics.agreement import Repeatability
from monitors.trials.desk import TrialReport

_PATH = "/api/openapi.json"
_BODIES = (NewAck, NewMatcher, NewRows, NewSilence)
_ANSWERS = (
    *(Ack, Alert, Captured, Compared, UndeliveredNotification, Failed, GapReport, JudgeCheck, Labelled, Point, Quality),
    *(Repeatability, Sample, Score, SeriesAnswer, Silence, Skipped, SourceReport, StoredTemplate, Supplement),
    *(Version, StreamStatus, Added, DatasetVersion, ContextCostReport, TrialReport, ClusterReport),
)
_GUARDS = (401, 403, 429)
SAMPLE_NAMES = {"conversation": "conversation_id"}
"""Fields of a sample that the API gives under another name."""


class _Operation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


_TABLE = table("monitors.api", "operations.json")
_OPERATIONS = msgspec.convert(_TABLE["operations"], dict[str, _Operation])


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
    """The document of these handlers. Raises KeyError for a route that `operations.json` does not describe."""
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
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(method: str, path: str, generated: Mapping[str, Any]) -> dict[str, Any]:
    added = _OPERATIONS[f"{method} {path}"]
    answer: dict[str, Any] = {"description": added.summary + "."}
    if added.answer is not None:
        answer["content"] = {media: {"schema": added.answer} for media in added.media}
    errors = {**dict.fromkeys(added.errors, added.error), **dict.fromkeys(() if added.open else _GUARDS, "Error")}
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
    return {"description": _TABLE["reasons"][str(status)], "content": {"application/json": {"schema": schema}}}


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
    received["NewSilence"]["oneOf"] = [_given("ends"), _given("duration_s")]
    return {**sent, **received, **_TABLE["schemas"]}


def _given(name: str) -> dict[str, Any]:
    return {"properties": {name: {"not": {"type": "null"}}}, "required": [name]}
