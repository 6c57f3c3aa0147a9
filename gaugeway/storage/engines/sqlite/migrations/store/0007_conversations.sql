-- Samples of an older release belong to no conversation.
ALTER TABLE samples ADD COLUMN conversation TEXT;
ALTER TABLE samples ADD COLUMN turn INTEGER;
ALTER TABLE samples ADD COLUMN hop INTEGER;
CREATE INDEX samples_conversation ON samples (conversation, started_at) WHERE conversation IS NOT NULL;
CREATE TABLE links (id TEXT PRIMARY KEY, started_at REAL NOT NULL, before TEXT, payload TEXT NOT NULL);
CREATE INDEX links_started_at ON links (started_at);
CREATE TABLE link_keys (
    app TEXT NOT NULL,
    key TEXT NOT NULL,
    started_at REAL NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (app, key, started_at, id)
) WITHOUT ROWID;
CREATE INDEX link_keys_started_at ON link_keys (started_at);
