"""The JSON Schema of `gaugeway.toml`, for completion and validation in editors."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.config import Config
from gaugeway.settings.shared import Metric

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the schema: keys, types and ranges. Rules across several keys are checked by `gaugeway check` only.

    A metric's own options share a table with the keys common to all metrics, so that table allows any other key.
    """
    schema = msgspec.json.schema(Config)
    schema["$defs"][Metric.__name__]["properties"].pop("options")
    return {"$schema": DIALECT, "title": "gaugeway.toml", **schema}
