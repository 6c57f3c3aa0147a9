-- Evaluations of an older release have no weight: alerts derive it from the rates.
ALTER TABLE evaluations ADD COLUMN weight REAL;
