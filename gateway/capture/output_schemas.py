"""What the schema that a request gives for its output says about the call."""

from __future__ import annotations

from itertools import islice
from typing import Any

from gateway.capture.output_fields import MOST_FIELDS, Field, Verdict, verdict_of


def by_schema(body: dict[str, Any], route: str) -> str | None:
    """Return what the schema of the output says: of `response_format` or the like."""
    wanted = body.get("response_format")
    if route == "responses":
        wanted = text.get("format") if isinstance(text := body.get("text"), dict) else None
    schema = wanted if isinstance(wanted, dict) else body.get("guided_json") or body.get("format")
    if not isinstance(schema, dict):
        return None
    for key in ("json_schema", "schema"):
        schema = inner if isinstance(inner := schema.get(key), dict) else schema
    found = verdict_of_schema(schema)
    return None if found is None or found.by_response else found.kind


def verdict_of_schema(schema: dict[str, Any]) -> Verdict | None:
    """Return what the fields of a JSON schema say, those within where there is only one around them."""
    fields = [_field(name, about) for name, about in _properties(schema).items()]
    found = verdict_of(fields)
    if found is not None or len(fields) != 1:
        return found
    inner = next(iter(_properties(schema).values()))
    inner = _referred(inner, schema)
    items = _referred(inner.get("items", inner), schema)
    return verdict_of(_field(name, about) for name, about in _properties(items).items())


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: about if isinstance(about, dict) else {} for name, about in islice(found.items(), MOST_FIELDS)}


def _field(name: str, about: dict[str, Any]) -> Field:
    holds_data = about.get("type") in ("boolean", "integer", "number") or "enum" in about or "const" in about
    return Field(name, prose=not holds_data)


def _referred(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema, or the definition of the same document that it refers to."""
    if not isinstance(schema, dict):
        return {}
    definitions = root.get("$defs", root.get("definitions"))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found = definitions.get(name) if name and isinstance(definitions, dict) else schema
    return found if isinstance(found, dict) else {}
