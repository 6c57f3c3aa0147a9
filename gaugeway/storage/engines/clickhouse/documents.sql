-- Statements of the templates in ClickHouse.

-- name: table
CREATE TABLE IF NOT EXISTS templates (
    app String,
    version String,
    state LowCardinality(String),
    learned_at Float64,
    payload String CODEC(ZSTD(3)),
    revision UInt64 DEFAULT toUnixTimestamp64Nano(now64(9))
) ENGINE = ReplacingMergeTree(revision) ORDER BY (app, version)

-- name: payload
SELECT payload FROM templates FINAL WHERE app = {app:String} AND version = {version:String}

-- name: delete
ALTER TABLE templates DELETE WHERE (app, version) IN {names:Array(Tuple(String, String))}
SETTINGS mutations_sync = 1
