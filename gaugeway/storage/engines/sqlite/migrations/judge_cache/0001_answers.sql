CREATE TABLE answers (
    key BLOB PRIMARY KEY, answer BLOB NOT NULL, usd REAL NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX answers_by_expiry ON answers (expires);
