-- oldest: 1
-- Data sets of captured exchanges, in versions (monitors.analysis.datasets).
CREATE TABLE datasets (
    dataset text NOT NULL,
    part text NOT NULL,
    changed_at double precision NOT NULL,
    payload text NOT NULL,
    PRIMARY KEY (dataset, part)
);
