-- Found by id, a few at a time: small granules, else each of them would have thousands of payloads read.
CREATE TABLE IF NOT EXISTS samples (
    id String,
    day Int32,
    started_at Float64,
    app LowCardinality(String),
    model LowCardinality(String),
    payload String CODEC(ZSTD(3)),
    trace_id Nullable(String),
    context_key Nullable(String),
    revision UInt32,
    INDEX by_trace_id trace_id TYPE bloom_filter(0.001),
    INDEX by_context_key context_key TYPE bloom_filter(0.001)
) ENGINE = ReplacingMergeTree(revision) PARTITION BY day ORDER BY (id, day)
SETTINGS index_granularity = 1024;
-- Read by metric and time. A sample's moment never changes, so it takes nothing from the identity.
CREATE TABLE IF NOT EXISTS evaluations (
    sample_id String,
    metric LowCardinality(String),
    version LowCardinality(String),
    day Int32,
    started_at Float64,
    position UInt64,
    app LowCardinality(String),
    model LowCardinality(String),
    outcome LowCardinality(String),
    value Nullable(Float64),
    reason String,
    detail String CODEC(ZSTD(3)),
    evidence String CODEC(ZSTD(3)),
    judge LowCardinality(Nullable(String)),
    seconds Float64,
    cost_usd Float64,
    rate Float64,
    prompt LowCardinality(Nullable(String)),
    tags Map(LowCardinality(String), String),
    revision UInt64
) ENGINE = ReplacingMergeTree(revision) PARTITION BY day ORDER BY (metric, started_at, sample_id, version);
-- Looked for by address for every sample. `says`: something that people say about an answer.
CREATE TABLE IF NOT EXISTS supplements (
    id String,
    day Int32,
    received_at Float64,
    kind LowCardinality(String),
    value String,
    says Bool,
    payload String CODEC(ZSTD(3)),
    revision UInt64,
    INDEX by_id id TYPE bloom_filter(0.001)
) ENGINE = ReplacingMergeTree(revision) PARTITION BY day ORDER BY (kind, value, id)
SETTINGS index_granularity = 1024;
CREATE TABLE IF NOT EXISTS states (
    name String,
    value String,
    revision UInt64 DEFAULT toUnixTimestamp64Nano(now64(9))
) ENGINE = ReplacingMergeTree(revision) ORDER BY name;
