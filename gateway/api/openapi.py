"""The OpenAPI 3.1 document of the gateway's own routes on the traffic port; all others are the upstream's."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from gateway.api.feedback import Contexts, Feedback
from gaugeway.data_files import table

_TABLE = table("gateway.api", "openapi.json")
_NAMES = {"contexts": ["key", "trace_id"], "feedback": ["exchange_id", "key", "trace_id"]}
_SAYS = ["reference", "contexts", "rating", "label", "comment"]


def document() -> dict[str, Any]:
    """Return the document of contexts, feedback and the two health routes."""
    _, bodies = msgspec.json.schema_components((Contexts, Feedback), ref_template="#/components/schemas/{name}")
    contexts, feedback = bodies["Contexts"], bodies["Feedback"]
    contexts["properties"]["contexts"] = _TABLE["passages"]
    contexts["anyOf"] = [_given(name) for name in _NAMES["contexts"]]
    feedback["properties"]["contexts"] = {"anyOf": [_TABLE["passages"], {"type": "null"}], "default": None}
    feedback["allOf"] = [
        {"anyOf": [_given(name) for name in _NAMES["feedback"]]},
        {"anyOf": [_given(name) for name in _SAYS]},
    ]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gaugeway",
            "version": version("gaugeway"),
            "description": "The gateway's own routes.",
        },
        "paths": {
            "/gaugeway/v1/contexts": {"post": _takes("Contexts", "Contexts apart from their request")},
            "/gaugeway/v1/feedback": {"post": _takes("Feedback", "Feedback on an answer, at any time")},
            "/healthz": {"get": _state("Whether the process lives", {200: "ok"})},
            "/readyz": {"get": _state("Whether it wants more requests", {200: "ready", 503: "draining"})},
        },
        "components": {
            "schemas": {**bodies, "Error": _TABLE["error"]},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _given(name: str) -> dict[str, Any]:
    """The field is present and not null."""
    return {"properties": {name: {"not": {"type": "null"}}}, "required": [name]}


def _takes(body: str, summary: str) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    kept = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    return {
        "summary": summary,
        "operationId": body.lower(),
        "security": [{"key": []}, {}],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        },
        "responses": {
            "202": {"description": "Accepted.", "content": {"application/json": {"schema": kept}}},
            **{status: {"description": why, "content": error} for status, why in _TABLE["reasons"].items()},
        },
    }


def _state(summary: str, words: dict[int, str]) -> dict[str, Any]:
    def answer(word: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"status": {"const": word}}, "required": ["status"]}
        return {"description": f"It is {word}.", "content": {"application/json": {"schema": schema}}}

    responses = {str(status): answer(word) for status, word in words.items()}
    return {"summary": summary, "operationId": summary.rsplit(maxsplit=1)[-1], "responses": responses}
