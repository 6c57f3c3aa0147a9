-- oldest: 1
-- The same requests sent to a candidate: definitions, requests that wait, answers (gaugeway.storage.trials).
CREATE TABLE trials (
    trial text NOT NULL PRIMARY KEY,
    state text NOT NULL,
    changed_at double precision NOT NULL,
    left_out text NOT NULL,
    payload text NOT NULL
);
CREATE TABLE trial_requests (
    trial text NOT NULL,
    exchange text NOT NULL,
    at double precision NOT NULL,
    size double precision NOT NULL,
    payload text NOT NULL,
    PRIMARY KEY (trial, exchange)
);
CREATE TABLE trial_answers (
    trial text NOT NULL,
    arm text NOT NULL,
    exchange text NOT NULL,
    state text NOT NULL,
    at double precision NOT NULL,
    usd double precision NOT NULL,
    judge_usd double precision NOT NULL,
    payload text NOT NULL,
    PRIMARY KEY (trial, arm, exchange)
);
