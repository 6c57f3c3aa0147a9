CREATE TABLE samples (
    id TEXT PRIMARY KEY,
    started_at REAL NOT NULL,
    app TEXT NOT NULL,
    model TEXT NOT NULL,
    payload TEXT NOT NULL
);
CREATE INDEX samples_started_at ON samples (started_at);
CREATE TABLE evaluations (
    sample_id TEXT NOT NULL,
    metric TEXT NOT NULL,
    version TEXT NOT NULL,
    started_at REAL NOT NULL,
    app TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    value REAL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    evidence TEXT NOT NULL,
    judge TEXT,
    seconds REAL NOT NULL,
    cost_usd REAL NOT NULL,
    rate REAL NOT NULL,
    PRIMARY KEY (sample_id, metric, version)
);
CREATE INDEX evaluations_metric ON evaluations (metric, started_at);
CREATE INDEX evaluations_app ON evaluations (app, metric, started_at);
CREATE INDEX evaluations_started_at ON evaluations (started_at);
CREATE TABLE states (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
