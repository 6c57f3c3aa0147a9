-- oldest: 1
-- The weight of an evaluation in alerts (records.Evaluation.weight). Evaluations of older releases have none.
SET LOCAL statement_timeout = 0;
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS weight float8;
