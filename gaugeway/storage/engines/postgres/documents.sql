-- Statements of spending and of the levels of limits in PostgreSQL.

-- name: key_revision
SELECT value FROM key_revision

-- name: lock
-- Older releases change the tables too: what they write waits.
LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE

-- name: spend
INSERT INTO spending AS known (day, subject, usd)
SELECT * FROM unnest($1::integer[], $2::text[], $3::float8[]) AS new (day, subject, usd) ORDER BY day, subject
ON CONFLICT (day, subject) DO UPDATE SET usd = known.usd + excluded.usd

-- name: forget_spending
DELETE FROM spending WHERE (day, subject) IN (
    SELECT day, subject FROM spending WHERE day < $1 FOR UPDATE SKIP LOCKED
)

-- name: spent
SELECT subject, usd FROM spending WHERE day = $1

-- name: exchange
-- Ordered by name, so that two processes cannot deadlock on each other's rows.
INSERT INTO limit_levels AS known (kind, subject, per_min, burst, used, level, at)
SELECT kind, subject, per_min, burst, used, least(burst, level) - used, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[], $5::float8[], $6::float8[])
    AS reported (kind, subject, per_min, burst, used, level)
ORDER BY kind, subject
ON CONFLICT (kind, subject) DO UPDATE SET
    per_min = excluded.per_min,
    burst = excluded.burst,
    used = excluded.used,
    level = least(
        excluded.burst,
        known.level
            + greatest(extract(epoch FROM excluded.at - known.at)::float8, 0) * excluded.per_min / 60
    ) - excluded.used,
    at = greatest(known.at, excluded.at)
RETURNING kind, subject, level

-- name: see_processes
WITH me AS (
    INSERT INTO limit_processes (id, seen_at) VALUES ($1, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
)
SELECT count(*) + 1 FROM limit_processes
WHERE id <> $1 AND seen_at > clock_timestamp() - make_interval(secs => $2)

-- name: leave
DELETE FROM limit_processes WHERE id = $1

-- name: tidy_levels
-- An unknown bucket counts as full, so full ones can be deleted. Locked rows are skipped until the next time.
DELETE FROM limit_levels WHERE (kind, subject) IN (
    SELECT kind, subject FROM limit_levels
    WHERE extract(epoch FROM clock_timestamp() - at) > (burst - level) * 60 / per_min + $1
    FOR UPDATE SKIP LOCKED
)

-- name: tidy_processes
DELETE FROM limit_processes WHERE id IN (
    SELECT id FROM limit_processes WHERE seen_at < clock_timestamp() - make_interval(secs => 2 * $1::float8)
    FOR UPDATE SKIP LOCKED
)
