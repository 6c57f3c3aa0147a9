CREATE TABLE datasets (
    dataset TEXT NOT NULL,
    part TEXT NOT NULL,
    changed_at REAL NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (dataset, part)
);
