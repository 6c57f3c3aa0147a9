-- oldest: 1
-- Sums of hours and days that are over. What is written, changed or deleted removes those of its hour and its day; whoever
-- adds an hour up first waits for all who are writing into it (`engines/postgres/rollups.py` takes the same locks).
CREATE TABLE sums (
    start bigint NOT NULL,
    seconds integer NOT NULL,
    kind text NOT NULL,
    sums text NOT NULL,
    PRIMARY KEY (start, seconds, kind)
);
CREATE FUNCTION evaluations_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hour bigint;
BEGIN
    FOR hour IN SELECT DISTINCT floor(started_at / 3600)::bigint FROM changed ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock_shared(1735878515, (hour % 1000000000)::integer);
        -- The day first, and its hours in their order: so nobody who writes waits for one who waits for him.
        DELETE FROM gaugeway.sums WHERE start = floor(hour / 24.0)::bigint * 86400;
        DELETE FROM gaugeway.sums WHERE start = hour * 3600;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER evaluations_added AFTER INSERT ON evaluations
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION evaluations_changed();
CREATE TRIGGER evaluations_replaced AFTER UPDATE ON evaluations
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION evaluations_changed();
CREATE TRIGGER evaluations_removed AFTER DELETE ON evaluations
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION evaluations_changed();
