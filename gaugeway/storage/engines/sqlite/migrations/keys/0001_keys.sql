-- A new revision makes the running gateways read the keys again.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    app TEXT NOT NULL,
    models TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    requests_per_min REAL,
    tokens_per_min REAL,
    usd_per_day REAL
);
CREATE TABLE revision (value BLOB NOT NULL);
INSERT INTO revision VALUES (randomblob(16));
CREATE TRIGGER keys_added AFTER INSERT ON keys BEGIN UPDATE revision SET value = randomblob(16); END;
CREATE TRIGGER keys_changed AFTER UPDATE ON keys BEGIN UPDATE revision SET value = randomblob(16); END;
CREATE TRIGGER keys_removed AFTER DELETE ON keys BEGIN UPDATE revision SET value = randomblob(16); END;
CREATE TABLE spending (
    day INTEGER NOT NULL,
    subject TEXT NOT NULL,
    usd REAL NOT NULL,
    PRIMARY KEY (day, subject)
) WITHOUT ROWID;
