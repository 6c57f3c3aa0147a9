-- Scores of an older release know no cluster: each is one of its own.
ALTER TABLE evaluations ADD COLUMN cluster TEXT;
