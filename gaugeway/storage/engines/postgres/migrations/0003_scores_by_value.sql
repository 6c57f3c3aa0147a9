-- oldest: 1
-- The lowest scores of a month without reading all of them. Over millions of rows this takes longer than a statement may.
SET LOCAL statement_timeout = 0;
CREATE INDEX evaluations_value ON evaluations (metric, value, started_at, app) WHERE outcome = 'score';
