-- oldest: 1
-- What a score may be alike with (records.Sample.cluster). Scores of older releases know none.
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS cluster text;
