"""PostgreSQL: store, queue, documents and leader election for many machines."""

from gaugeway.storage.engine import Engine

ENGINE = Engine(
    store="gaugeway.storage.engines.postgres.store:PostgresStore",
    queue="gaugeway.storage.engines.postgres.queue:PostgresQueue",
    documents="gaugeway.storage.engines.postgres.documents:PostgresDocuments",
    keeps=frozenset({"keys", "limits", "templates", "datasets", "trials"}),
    leader="gaugeway.storage.engines.postgres.leader:stand",
)
