"""ClickHouse: store and prompt templates; data sets are always empty. It has no lock, so it cannot elect a leader."""

from gaugeway.storage.engine import Engine

ENGINE = Engine(
    store="gaugeway.storage.engines.clickhouse.store:ClickHouseStore",
    documents="gaugeway.storage.engines.clickhouse.documents:ClickHouseDocuments",
    keeps=frozenset({"templates", "datasets"}),
)
