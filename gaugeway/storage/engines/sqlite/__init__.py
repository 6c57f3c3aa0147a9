"""SQLite: store, queue and documents in files of one machine."""

from gaugeway.storage.engine import Engine

ENGINE = Engine(
    store="gaugeway.storage.engines.sqlite.store:SQLiteStore",
    queue="gaugeway.storage.engines.sqlite.queue:SQLiteQueue",
    documents="gaugeway.storage.engines.sqlite.documents:SQLiteDocuments",
    keeps=frozenset({"templates", "datasets", "trials"}),  # keys are in the data directory, without a URL
    embedded=True,
)
