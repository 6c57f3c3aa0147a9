-- oldest: 1
-- The conversation of a sample, which of the user's turns it answers, and which of the exchanges of the turn it is.
-- Samples of older releases belong to none.
SET LOCAL statement_timeout = 0;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS conversation text;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS turn integer;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS hop integer;
CREATE INDEX IF NOT EXISTS samples_conversation ON samples (conversation, started_at) WHERE conversation IS NOT NULL;
