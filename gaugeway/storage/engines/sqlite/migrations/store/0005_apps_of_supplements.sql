-- What an older release stored says no app: it joins any, until retention removes it.
ALTER TABLE supplements ADD COLUMN app TEXT;
DROP INDEX supplements_address;
CREATE INDEX supplements_address ON supplements (kind, value, app, received_at);
