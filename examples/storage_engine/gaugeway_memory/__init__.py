"""A storage engine in memory: `memory://NAME`."""

from gaugeway.storage.engine import Engine

ENGINE = Engine(
    store="gaugeway_memory.store:MemoryStore",
    queue="gaugeway_memory.queue:MemoryQueue",
    documents="gaugeway_memory.documents:MemoryDocuments",
    keeps=frozenset({"keys", "limits", "templates", "datasets"}),
    embedded=True,
)
