CREATE TABLE trials (
    trial TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    changed_at REAL NOT NULL,
    left_out TEXT NOT NULL,
    payload TEXT NOT NULL
);
CREATE TABLE trial_requests (
    trial TEXT NOT NULL,
    exchange TEXT NOT NULL,
    at REAL NOT NULL,
    size REAL NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (trial, exchange)
);
CREATE TABLE trial_answers (
    trial TEXT NOT NULL,
    arm TEXT NOT NULL,
    exchange TEXT NOT NULL,
    state TEXT NOT NULL,
    at REAL NOT NULL,
    usd REAL NOT NULL,
    judge_usd REAL NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (trial, arm, exchange)
);
