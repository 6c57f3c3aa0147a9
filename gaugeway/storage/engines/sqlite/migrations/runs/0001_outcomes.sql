CREATE TABLE outcomes (
    content TEXT NOT NULL,
    metric TEXT NOT NULL,
    version TEXT NOT NULL,
    judge TEXT NOT NULL,
    kept_at REAL NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (content, metric, version, judge)
) WITHOUT ROWID;
