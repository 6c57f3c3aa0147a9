-- Dead letters have a table of their own, so that looking for work never wades through them.
CREATE TABLE samples (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    started_at REAL NOT NULL,
    payload BLOB NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    leased_until REAL
);
CREATE INDEX samples_started_at ON samples (started_at);
CREATE INDEX samples_leased_until ON samples (leased_until) WHERE leased_until IS NOT NULL;
CREATE TABLE dead (
    id TEXT PRIMARY KEY,
    started_at REAL NOT NULL,
    payload BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    reason TEXT NOT NULL
);
