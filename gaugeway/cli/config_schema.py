"""The JSON Schema of `gaugeway.toml`, for completion and validation in editors."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import msgspec

from gateway.config import Config
from gaugeway.extensions import load, registered
from gaugeway.settings.options import option_types
from gaugeway.settings.shared import Metric, Notifier, Shared, Sink
from monitors.alerting.notifiers.factory import given_of
from monitors.exporters.factory import GIVEN, SPANS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the schema: keys, types and ranges. Rules across several keys are checked by `gaugeway check` only.

    The options of an extension stand in its table, which allows any other key for a metric and for unregistered kinds.
    """
    schema = msgspec.json.schema(Config)
    tables = schema["$defs"]
    tables[Metric.__name__]["properties"].pop("options")
    tables[Metric.__name__].pop("additionalProperties")
    tables[Sink.__name__]["properties"].pop("options")
    _add_options(tables[Notifier.__name__], "notifiers", given_of(Shared()))
    _add_options(tables[Sink.__name__], "exporters", [SPANS, *GIVEN])
    return {"$schema": DIALECT, "title": "gaugeway.toml", **schema}


def _add_options(table: dict[str, Any], kind: str, given: Collection[str]) -> None:
    """Add the options of all registered extensions of a kind, without those that cannot be loaded, to their table."""
    targets, keys = registered(kind), table["properties"]
    for name in targets:
        with contextlib.suppress(ValueError):
            types = option_types(load(name, targets), given)
            keys |= {key: msgspec.json.schema(type_) for key, type_ in types.items() if key not in keys}
    table.pop("additionalProperties")
    table["if"] = {"properties": {"kind": {"enum": list(targets)}}}
    table["then"] = {"propertyNames": {"enum": list(keys)}}
