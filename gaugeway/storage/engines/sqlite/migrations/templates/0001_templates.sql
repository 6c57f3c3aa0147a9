CREATE TABLE templates (
    app TEXT NOT NULL,
    version TEXT NOT NULL,
    state TEXT NOT NULL,
    learned_at REAL NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (app, version)
);
