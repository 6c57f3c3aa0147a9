"""The JSON Schema of `gaugeway.toml`, with which editors complete and check it."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.config import Config
from monitors.config import Metric

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the schema. It knows keys, types and ranges; what depends on several keys only `gaugeway check` knows.

    A metric's own options stand beside the keys that all metrics have, so a metric's table takes any other key.
    """
    schema = msgspec.json.schema(Config)
    schema["$defs"][Metric.__name__]["properties"].pop("options")
    return {"$schema": DIALECT, "title": "gaugeway.toml", **schema}
