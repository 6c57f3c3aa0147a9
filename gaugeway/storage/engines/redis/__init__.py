"""Redis or Valkey: queue and shared limits."""

from gaugeway.storage.engine import Engine

ENGINE = Engine(
    queue="gaugeway.storage.engines.redis.queue:RedisQueue",
    documents="gaugeway.storage.engines.redis.documents:RedisDocuments",
    keeps=frozenset({"limits"}),
)
