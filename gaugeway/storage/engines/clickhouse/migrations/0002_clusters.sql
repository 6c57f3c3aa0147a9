ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS cluster Nullable(String) AFTER prompt;
