ALTER TABLE signals ADD COLUMN addresses_judge REAL;
CREATE INDEX signals_addresses_judge ON signals (addresses_judge, started_at, app) WHERE addresses_judge > 0.0;
