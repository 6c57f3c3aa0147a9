CREATE TABLE supplies (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    received_at REAL NOT NULL,
    payload BLOB NOT NULL,
    taken_until REAL
);
CREATE INDEX supplies_received_at ON supplies (received_at);
