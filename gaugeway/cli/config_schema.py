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
from monitors.exporters.factory import SPANS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the schema: keys, types and ranges. Rules across several keys are checked by `gaugeway check` only.

    The options of an extension stand in its table: of a metric any, else those of all registered kinds.
    """
    schema = msgspec.json.schema(Config)
    tables = schema["$defs"]
    tables[Metric.__name__]["properties"].pop("options")
    tables[Metric.__name__].pop("additionalProperties")
    tables[Notifier.__name__]["properties"] |= _options("notifiers", [*Notifier.__struct_fields__, *given_of(Shared())])
    tables[Sink.__name__]["properties"].pop("options")
    tables[Sink.__name__]["properties"] |= _options("exporters", [*Sink.__struct_fields__, SPANS])
    return {"$schema": DIALECT, "title": "gaugeway.toml", **schema}


def _options(kind: str, given: Collection[str]) -> dict[str, Any]:
    """Return the schemas of the options of all registered extensions of a kind, without those that cannot be loaded."""
    found: dict[str, Any] = {}
    for name in registered(kind):
        with contextlib.suppress(ValueError):
            types = option_types(load(name, registered(kind)), given)
            found |= {key: msgspec.json.schema(type_) for key, type_ in types.items() if key not in found}
    return found
