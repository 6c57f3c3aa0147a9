"""The tables of the store in ClickHouse, and the columns that are written.

No table has a unique key. `ReplacingMergeTree` keeps, of the rows that are equal in `ORDER BY`, the one of the highest
`revision`: at some later moment on disk, and at once for who reads with FINAL, as every statement here does that could
meet two. `ORDER BY` is therefore the identity as well as what the queries look for first. `day` is the UTC day since
1970, and a partition: retention drops it.
"""

from __future__ import annotations

from gaugeway.storage.engines.scripts import migrations

SCRIPTS = tuple(
    [statement for statement in script.split(";\n") if statement] for script in migrations("clickhouse/migrations")
)
"""The statements that lead from one version to the next."""
SAMPLES = {
    "id": "String",
    "day": "Int32",
    "started_at": "Float64",
    "app": "LowCardinality(String)",
    "model": "LowCardinality(String)",
    "payload": "String",
    "trace_id": "Nullable(String)",
    "context_key": "Nullable(String)",
    "conversation": "Nullable(String)",
    "turn": "Nullable(UInt32)",
    "hop": "Nullable(UInt32)",
    "revision": "UInt32",
}
EVALUATIONS = {
    "sample_id": "String",
    "metric": "LowCardinality(String)",
    "version": "LowCardinality(String)",
    "started_at": "Float64",
    "app": "LowCardinality(String)",
    "model": "LowCardinality(String)",
    "outcome": "LowCardinality(String)",
    "value": "Nullable(Float64)",
    "reason": "String",
    "detail": "String",
    "evidence": "String",
    "judge": "LowCardinality(Nullable(String))",
    "seconds": "Float64",
    "cost_usd": "Float64",
    "rate": "Float64",
    "weight": "Nullable(Float64)",
    "prompt": "LowCardinality(Nullable(String))",
    "cluster": "Nullable(String)",
    "tags": "Map(LowCardinality(String), String)",
    "day": "Int32",
    "position": "UInt64",
    "revision": "UInt64",
}
SUPPLEMENTS = {
    "id": "String",
    "day": "Int32",
    "received_at": "Float64",
    "kind": "LowCardinality(String)",
    "value": "String",
    "says": "Bool",
    "payload": "String",
    "revision": "UInt64",
}
LINKS = {"id": "String", "day": "Int32", "started_at": "Float64", "payload": "String", "revision": "UInt64"}
LINK_KEYS = {"app": "LowCardinality(String)", "key": "String", "day": "Int32", "started_at": "Float64", "id": "String"}
STATES = {"name": "String", "value": "String"}
