"""The tables of the store in ClickHouse, and the columns that are written.

No table has a unique key. `ReplacingMergeTree` keeps, of the rows that are equal in `ORDER BY`, the one of the highest
`revision`: at some later moment on disk, and at once for who reads with FINAL, as every statement here does that could
meet two. `ORDER BY` is therefore the identity as well as what the queries look for first. `day` is the UTC day since
1970, and a partition: retention drops it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gaugeway.data_files import table
from gaugeway.storage.engines.scripts import migrations

SCRIPTS = tuple(
    [statement for statement in script.split(";\n") if statement] for script in migrations("clickhouse/migrations")
)
"""The statements that lead from one version to the next."""
_COLUMNS: Mapping[str, Mapping[str, str]] = table("gaugeway.storage.engines.clickhouse", "columns.toml")
SAMPLES, EVALUATIONS, SUPPLEMENTS = (_COLUMNS[name] for name in ("samples", "evaluations", "supplements"))
LINKS, LINK_KEYS, STATES, TEMPLATES = (_COLUMNS[name] for name in ("links", "link_keys", "states", "templates"))
