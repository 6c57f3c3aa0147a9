ALTER TABLE samples ADD COLUMN IF NOT EXISTS conversation Nullable(String) AFTER context_key;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS turn Nullable(UInt32) AFTER conversation;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS hop Nullable(UInt32) AFTER turn;
ALTER TABLE samples ADD INDEX IF NOT EXISTS by_conversation conversation TYPE bloom_filter(0.001);
CREATE TABLE IF NOT EXISTS links (
    id String,
    day Int32,
    started_at Float64,
    payload String CODEC(ZSTD(3)),
    revision UInt64
) ENGINE = ReplacingMergeTree(revision) PARTITION BY day ORDER BY (id, day)
SETTINGS index_granularity = 1024;
CREATE TABLE IF NOT EXISTS link_keys (
    app LowCardinality(String),
    key String,
    day Int32,
    started_at Float64,
    id String
) ENGINE = ReplacingMergeTree PARTITION BY day ORDER BY (app, key, started_at, id)
SETTINGS index_granularity = 1024;
