-- Statements of the SQLite queue.

-- name: put
INSERT OR IGNORE INTO samples (id, started_at, payload)
SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM dead WHERE id = ?1)

-- name: supply
INSERT OR IGNORE INTO supplies (id, received_at, payload) VALUES (?1, ?2, ?3)

-- name: lease
UPDATE samples SET attempts = attempts + 1, leased_until = ?2
WHERE position IN (
    SELECT position FROM samples WHERE leased_until IS NULL OR leased_until <= ?1 ORDER BY position LIMIT ?3
)
RETURNING position, id, attempts, CAST(payload AS BLOB)

-- name: renew
UPDATE samples SET leased_until = ?2 WHERE id = ?1 AND leased_until IS NOT NULL

-- name: any_supply
SELECT 1 FROM supplies WHERE taken_until IS NULL OR taken_until <= ?1 LIMIT 1

-- name: take
UPDATE supplies SET taken_until = ?2
WHERE position IN (
    SELECT position FROM supplies WHERE taken_until IS NULL OR taken_until <= ?1 ORDER BY position LIMIT ?3
)
RETURNING position, id, CAST(payload AS BLOB)

-- name: bury
INSERT OR REPLACE INTO dead (id, started_at, payload, attempts, reason)
SELECT id, started_at, payload, attempts, 'attempts' FROM samples WHERE leased_until <= ?1 AND attempts >= ?2

-- name: remove_buried
DELETE FROM samples WHERE leased_until <= ?1 AND attempts >= ?2

-- name: set_aside
INSERT OR REPLACE INTO dead (id, started_at, payload, attempts, reason)
SELECT id, started_at, payload, attempts, ?2 FROM samples WHERE id = ?1

-- name: set_unreadable_aside
INSERT OR REPLACE INTO dead (id, started_at, payload, attempts, reason)
SELECT id, started_at, payload, attempts, ?2 FROM samples WHERE position = ?1

-- name: depth
SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM samples WHERE leased_until > ?1),
    (SELECT count(*) FROM dead), (SELECT min(started_at) FROM samples)

-- name: bytes
-- What the file's pages in use take up: a look at its head, however much waits.
SELECT page_size * (page_count - freelist_count) FROM pragma_page_size, pragma_page_count, pragma_freelist_count

-- name: remove
DELETE FROM samples WHERE id = ?1

-- name: remove_dead
DELETE FROM dead WHERE id = ?1

-- name: remove_supply
DELETE FROM supplies WHERE id = ?1

-- name: prune_waiting
DELETE FROM samples WHERE position IN (
    SELECT position FROM samples
    WHERE started_at < ?1 AND (leased_until IS NULL OR leased_until <= ?3) LIMIT ?2
)

-- name: prune_dead
DELETE FROM dead WHERE rowid IN (SELECT rowid FROM dead WHERE started_at < ?1 LIMIT ?2)

-- name: prune_supplies
DELETE FROM supplies WHERE position IN (
    SELECT position FROM supplies
    WHERE received_at < ?1 AND (taken_until IS NULL OR taken_until <= ?3) LIMIT ?2
)

-- name: page_of_waiting
SELECT position, id, CAST(payload AS BLOB) FROM samples WHERE position > ?1 ORDER BY position LIMIT ?2

-- name: page_of_dead
SELECT rowid, id, CAST(payload AS BLOB) FROM dead WHERE rowid > ?1 ORDER BY rowid LIMIT ?2

-- name: page_of_supplies
SELECT position, id, CAST(payload AS BLOB) FROM supplies WHERE position > ?1 ORDER BY position LIMIT ?2

-- name: delete_waiting
DELETE FROM samples WHERE position = ?1

-- name: delete_dead
DELETE FROM dead WHERE rowid = ?1

-- name: delete_supplies
DELETE FROM supplies WHERE position = ?1
