ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS weight Nullable(Float64) AFTER rate;
