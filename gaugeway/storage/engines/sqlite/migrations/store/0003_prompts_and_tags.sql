ALTER TABLE evaluations ADD COLUMN prompt TEXT;
ALTER TABLE evaluations ADD COLUMN tags TEXT;
UPDATE evaluations SET tags = (
    SELECT CASE WHEN json_valid(payload) THEN nullif(json_extract(payload, '$.tags'), '{}') END
    FROM samples WHERE id = sample_id
);
