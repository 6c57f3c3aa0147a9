-- oldest: 1
-- The conversation of a sample, which of the user's turns it answers, and which of the exchanges of the turn it is.
-- Samples of older releases belong to none.
SET LOCAL statement_timeout = 0;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS conversation text;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS turn integer;
ALTER TABLE samples ADD COLUMN IF NOT EXISTS hop integer;
CREATE INDEX IF NOT EXISTS samples_conversation ON samples (conversation, started_at) WHERE conversation IS NOT NULL;

-- What joins exchanges to conversations (gaugeway.storage.conversations), for 30 hours.
CREATE TABLE links (
    id text PRIMARY KEY,
    started_at double precision NOT NULL,
    before text,
    payload text NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX links_started_at ON links (started_at);
CREATE TABLE link_keys (
    app text NOT NULL,
    key text NOT NULL,
    started_at double precision NOT NULL,
    id text NOT NULL,
    PRIMARY KEY (app, key, started_at, id)
);
CREATE INDEX link_keys_started_at ON link_keys (started_at);
