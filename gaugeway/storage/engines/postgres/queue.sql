-- Statements of the PostgreSQL queue. A time that is given takes the place of the database's clock.

-- name: put
INSERT INTO waiting (id, started_at, payload)
SELECT new.id, new.started_at, new.payload
FROM unnest($1::text[], $2::float8[], $3::bytea[]) WITH ORDINALITY AS new (id, started_at, payload, place)
WHERE NOT EXISTS (SELECT 1 FROM dead WHERE dead.id = new.id)
ORDER BY place
ON CONFLICT (id) DO NOTHING

-- name: supply
INSERT INTO supplies (id, received_at, payload)
SELECT new.id, new.received_at, new.payload
FROM unnest($1::text[], $2::float8[], $3::bytea[]) WITH ORDINALITY AS new (id, received_at, payload, place)
ORDER BY place
ON CONFLICT (id) DO NOTHING

-- name: lease
WITH clock AS (
    SELECT coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8) AS now
), free AS MATERIALIZED (
    SELECT position FROM waiting
    WHERE leased_until IS NULL OR (leased_until <= (SELECT now FROM clock) AND attempts < $4)
    ORDER BY position LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE waiting SET attempts = attempts + 1, leased_until = (SELECT now FROM clock) + $2
FROM free WHERE waiting.position = free.position
RETURNING waiting.position, id, attempts, payload

-- name: renew
UPDATE waiting SET leased_until = coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8) + $2
WHERE id = ANY($3::text[]) AND leased_until IS NOT NULL

-- name: take
WITH clock AS (
    SELECT coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8) AS now
), free AS MATERIALIZED (
    SELECT position FROM supplies WHERE taken_until IS NULL OR taken_until <= (SELECT now FROM clock)
    ORDER BY position LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE supplies SET taken_until = (SELECT now FROM clock) + $2 FROM free WHERE supplies.position = free.position
RETURNING supplies.position, id, payload

-- name: bury
WITH over AS MATERIALIZED (
    SELECT position FROM waiting
    WHERE leased_until <= coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8) AND attempts >= $2
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM waiting USING over WHERE waiting.position = over.position
    RETURNING id, started_at, payload, attempts, 'attempts'
)
INSERT INTO dead (id, started_at, payload, attempts, reason) SELECT * FROM gone
ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, attempts = excluded.attempts, reason = excluded.reason

-- name: set_aside
WITH gone AS (DELETE FROM waiting WHERE id = $1 RETURNING id, started_at, payload, attempts, $2::text)
INSERT INTO dead (id, started_at, payload, attempts, reason) SELECT * FROM gone
ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, attempts = excluded.attempts, reason = excluded.reason

-- name: set_unreadable_aside
WITH gone AS (DELETE FROM waiting WHERE position = $1 RETURNING id, started_at, payload, attempts, $2::text)
INSERT INTO dead (id, started_at, payload, attempts, reason) SELECT * FROM gone
ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, attempts = excluded.attempts, reason = excluded.reason

-- name: depth
-- To add up all payloads would read the whole table: the youngest stand for them.
SELECT (SELECT count(*) FROM waiting), (
        SELECT count(*) FROM waiting
        WHERE leased_until > coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8)
    ),
    (SELECT count(*) FROM dead), (SELECT min(started_at) FROM waiting),
    (SELECT count(*) FROM waiting) * coalesce((SELECT avg(pg_column_size(payload)) FROM (
        SELECT payload FROM waiting ORDER BY position DESC LIMIT 200
    ) AS youngest), 0)::bigint

-- name: remove_supplies
DELETE FROM supplies WHERE id = ANY($1::text[])

-- name: prune_waiting
DELETE FROM waiting WHERE position IN (
    SELECT position FROM waiting
    WHERE started_at < $1 AND (
        leased_until IS NULL OR leased_until <= coalesce($3::float8, extract(epoch FROM clock_timestamp())::float8)
    ) LIMIT $2 FOR UPDATE SKIP LOCKED
)

-- name: prune_dead
DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE started_at < $1 LIMIT $2)

-- name: prune_supplies
DELETE FROM supplies WHERE position IN (
    SELECT position FROM supplies
    WHERE received_at < $1 AND (
        taken_until IS NULL OR taken_until <= coalesce($3::float8, extract(epoch FROM clock_timestamp())::float8)
    ) LIMIT $2 FOR UPDATE SKIP LOCKED
)

-- name: page_of_waiting
SELECT position, id, payload FROM waiting WHERE position > $1 ORDER BY position LIMIT $2

-- name: page_of_dead
SELECT id, id, payload FROM dead WHERE id > $1 ORDER BY id LIMIT $2

-- name: page_of_supplies
SELECT position, id, payload FROM supplies WHERE position > $1 ORDER BY position LIMIT $2

-- name: delete_waiting
-- Locked in one order, so that two who delete the same cannot block each other.
WITH locked AS MATERIALIZED (SELECT position FROM waiting WHERE position = ANY($1) ORDER BY position FOR UPDATE)
DELETE FROM waiting USING locked WHERE waiting.position = locked.position

-- name: delete_dead
WITH locked AS MATERIALIZED (SELECT id FROM dead WHERE id = ANY($1) ORDER BY id FOR UPDATE)
DELETE FROM dead USING locked WHERE dead.id = locked.id

-- name: delete_supplies
WITH locked AS MATERIALIZED (SELECT position FROM supplies WHERE position = ANY($1) ORDER BY position FOR UPDATE)
DELETE FROM supplies USING locked WHERE supplies.position = locked.position

-- name: remove
WITH gone AS (DELETE FROM dead WHERE id = ANY($1::text[]))
DELETE FROM waiting WHERE id = ANY($1::text[])
