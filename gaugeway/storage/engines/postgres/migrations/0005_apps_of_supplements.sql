-- oldest: 1
-- The app that a sender may speak for. What an older release stores says none: it joins any, until retention removes it.
SET LOCAL statement_timeout = 0;
ALTER TABLE supplements ADD COLUMN app text;
DROP INDEX supplements_address;
CREATE INDEX supplements_address ON supplements (kind, value, app, received_at);
