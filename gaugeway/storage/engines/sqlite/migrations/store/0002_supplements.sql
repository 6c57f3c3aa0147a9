-- Keys are new; the traces of the samples that are there are found in them, where they can be read.
ALTER TABLE samples ADD COLUMN trace_id TEXT;
ALTER TABLE samples ADD COLUMN context_key TEXT;
UPDATE samples SET trace_id = CASE WHEN json_valid(payload) THEN json_extract(payload, '$.trace_id') END
WHERE CASE WHEN json_valid(payload) THEN json_extract(payload, '$.trace_id') END IS NOT NULL;
CREATE INDEX samples_trace_id ON samples (trace_id) WHERE trace_id IS NOT NULL;
CREATE INDEX samples_context_key ON samples (context_key) WHERE context_key IS NOT NULL;
CREATE TABLE supplements (
    id TEXT PRIMARY KEY,
    received_at REAL NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    payload TEXT NOT NULL
);
CREATE INDEX supplements_address ON supplements (kind, value, received_at);
CREATE INDEX supplements_received_at ON supplements (received_at);
