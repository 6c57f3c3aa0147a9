-- Statements of the SQLite store. Words in braces are parts that conditions.py and signal_rows.py make.

-- name: add_sample
INSERT OR IGNORE INTO samples (
    id, started_at, app, model, payload, trace_id, context_key, conversation, turn, hop
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_evaluation
INSERT INTO evaluations (
    sample_id, metric, version, started_at, app, model,
    outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight, prompt, cluster, tags
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (sample_id, metric, version) DO UPDATE SET
    outcome = excluded.outcome, value = excluded.value, reason = excluded.reason, detail = excluded.detail,
    evidence = excluded.evidence, judge = excluded.judge, seconds = excluded.seconds,
    cost_usd = excluded.cost_usd, rate = excluded.rate, weight = excluded.weight
WHERE evaluations.outcome = 'skipped' AND excluded.outcome <> 'skipped'

-- name: add_supplement
INSERT OR IGNORE INTO supplements (id, received_at, kind, value, app, payload) VALUES (?, ?, ?, ?, ?, ?)

-- name: replace_sample
UPDATE samples SET payload = ?1 WHERE id = ?2

-- name: sample
SELECT payload, conversation, turn, hop FROM samples WHERE id = ?1

-- name: payloads
SELECT payload FROM samples WHERE id IN (SELECT value FROM json_each(?1))

-- name: evaluations
SELECT metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight
FROM evaluations WHERE sample_id = ?1 ORDER BY rowid

-- name: outcomes_of_sample
SELECT metric, version, outcome FROM evaluations WHERE sample_id = ?1

-- name: conversation
SELECT payload, conversation, turn, hop FROM samples WHERE conversation = ?1
ORDER BY started_at DESC, id DESC LIMIT ?2

-- name: addressed_by_key
SELECT payload, conversation, turn, hop FROM samples
WHERE {column} = ?1 AND started_at >= ?2 AND started_at < ?3 ORDER BY started_at DESC, id DESC LIMIT 100

-- name: addressed_by_text
SELECT payload, conversation, turn, hop FROM samples
WHERE instr(payload, ?1) > 0 AND started_at >= ?2 AND started_at < ?3 ORDER BY started_at DESC, id DESC LIMIT 100

-- name: silent
SELECT DISTINCT conversation FROM samples AS last
WHERE started_at >= ?1 AND started_at < ?2 AND conversation IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM samples WHERE conversation = last.conversation AND started_at >= ?2
)

-- name: concerned
SELECT payload, id FROM samples WHERE {column} = ?1 AND (?2 IS NULL OR app = ?2)
ORDER BY started_at DESC LIMIT 100

-- name: supplements
-- Each term by itself is a place in the index: what other apps say under the same address is not read.
SELECT payload FROM supplements WHERE rowid IN (
    SELECT position FROM (
        SELECT rowid AS position, sum(length(payload)) OVER (ORDER BY received_at, id) AS bytes FROM supplements
        WHERE kind = 'exchange' AND value = ?1 AND app IS NULL OR kind = 'exchange' AND value = ?1 AND app = ?4
            OR kind = 'key' AND value = ?2 AND app IS NULL OR kind = 'key' AND value = ?2 AND app = ?4
            OR kind = 'trace' AND value = ?3 AND app IS NULL OR kind = 'trace' AND value = ?3 AND app = ?4
        ORDER BY received_at, id LIMIT 1000
    ) WHERE bytes <= ?5
) ORDER BY received_at, id

-- name: any_supplement
SELECT 1 FROM supplements LIMIT 1

-- name: ids
SELECT id FROM samples WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: said
SELECT id, payload FROM supplements WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: holds
SELECT id, (SELECT count(*) FROM evaluations WHERE sample_id = id) + (
    SELECT {count_of_signals} FROM signals WHERE sample_id = id AND signals.started_at = samples.started_at
)
FROM samples WHERE id IN (SELECT value FROM json_each(?1))

-- name: load_states
SELECT name, value FROM states

-- name: save_state
INSERT INTO states (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: metrics
WITH RECURSIVE known (metric) AS (
    SELECT min(metric) FROM evaluations
    UNION ALL SELECT (SELECT min(metric) FROM evaluations WHERE metric > known.metric) FROM known
    WHERE known.metric IS NOT NULL
)
SELECT metric FROM known WHERE metric IS NOT NULL

-- name: top
SELECT value FROM evaluations INDEXED BY evaluations_value
WHERE {readable} ORDER BY value DESC LIMIT 1 OFFSET {place}

-- name: summary
-- There are few rates, so that their weights can be worked out by who reads this: that takes SQLite four times as long.
SELECT app, metric, {slice} AS slice, outcome, rate, count(*), count(*) FILTER (WHERE typeof(value) = 'real'),
    total(value) FILTER (WHERE typeof(value) = 'real'), total(value * value) FILTER (WHERE typeof(value) = 'real')
FROM ({summed_rows}) GROUP BY app, metric, slice, outcome, rate

-- name: signal_summary
SELECT app, {slice} AS slice, rate, {sums_of_signals} FROM signals {index_of_signals} WHERE {conditions}
GROUP BY app, slice, rate

-- name: scored
SELECT app, metric, count(*), total(value), total(value * value), min(rate), max(rate)
FROM (
    SELECT app, metric, value, rate, max(place) FROM ({answered_rows})
    WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
        AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0
    GROUP BY sample_id, metric
) GROUP BY app, metric

-- name: spread
SELECT app, metric, {slice} AS slice, version, judge, rate, min(CAST(value * 100.0 AS INTEGER), 99) AS k, count(*),
    sum(value), sum(value * value)
FROM ({grouped_rows})
WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
    AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0
GROUP BY app, metric, slice, version, judge, rate, k

-- name: outcomes
-- Of an app, the metric stands before the time in the index.
SELECT app, metric, outcome, CASE WHEN outcome = 'score' THEN '' ELSE reason END AS why, count(*)
FROM evaluations INDEXED BY evaluations_started_at WHERE {within} AND metric NOT IN ({signals})
GROUP BY app, metric, outcome, why

-- name: spent
SELECT app, metric, total(cost_usd), count(*) FILTER (WHERE outcome = 'score')
FROM evaluations INDEXED BY evaluations_started_at WHERE {within} AND metric NOT IN ({signals}) GROUP BY app, metric

-- name: exchanges
SELECT app, '', outcome, CASE WHEN outcome = 'score' THEN '' ELSE coalesce(failure, skip, '') END AS why, count(*)
FROM (
    SELECT app, failure, skip,
        CASE WHEN scores THEN 'score' WHEN failure IS NOT NULL THEN 'failed' WHEN skip IS NOT NULL THEN 'skipped'
            ELSE 'none' END AS outcome
    FROM (
        SELECT app, (
            SELECT count(*) FROM evaluations
            WHERE sample_id = samples.id AND outcome = 'score' AND metric NOT IN ({signals})
        ) AS scores, (
            SELECT min(reason) FROM evaluations
            WHERE sample_id = samples.id AND outcome = 'failed' AND metric NOT IN ({signals})
        ) AS failure, (
            SELECT min(reason) FROM evaluations
            WHERE sample_id = samples.id AND outcome = 'skipped' AND metric NOT IN ({signals})
        ) AS skip
        FROM samples INDEXED BY samples_started_at WHERE {within} AND id NOT GLOB 'conversation-*'
    )
) GROUP BY app, outcome, why

-- name: paired
SELECT app, metric, outcome, rate, cheap_rate, count(*), total(value), total(cheap), total(value * value),
    total(value * cheap), total(cheap * cheap)
FROM (
    SELECT app, metric, outcome, rate, value, {cheap_value} AS cheap, {cheap_rate} AS cheap_rate
    FROM ({paired_rows}) AS one WHERE metric <> {cheap}
) GROUP BY app, metric, outcome, rate, cheap_rate

-- name: cheap
SELECT app, count(*), total(value), total(value * value)
FROM ({cheap_rows}) WHERE outcome = 'score' AND typeof(value) = 'real'
GROUP BY app

-- name: ratings
-- What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
WITH said AS (
    SELECT id, received_at, kind, value, app, payload, json_extract(payload, '$.reference') IS NOT NULL AS refers
    FROM supplements WHERE received_at >= {earliest} AND CASE WHEN json_valid(payload) THEN
        coalesce(json_extract(payload, '$.rating'), json_extract(payload, '$.label')) IS NOT NULL
        OR (json_extract(payload, '$.source') = 'feedback' AND json_extract(payload, '$.reference') IS NOT NULL)
    END
), labelled AS MATERIALIZED (
    SELECT samples.id AS about, samples.started_at AS about_since, said.payload, said.received_at, said.id, said.refers
    FROM said JOIN samples ON samples.id = said.value
    WHERE said.kind = 'exchange' AND (said.app IS NULL OR said.app = samples.app)
    UNION ALL
    SELECT samples.id, samples.started_at, said.payload, said.received_at, said.id, said.refers
    FROM said JOIN samples ON samples.context_key = said.value
    WHERE said.kind = 'key' AND (said.app IS NULL OR said.app = samples.app) AND NOT EXISTS (
        SELECT 1 FROM samples AS later
        WHERE later.context_key = said.value AND later.started_at > samples.started_at
            AND (said.app IS NULL OR said.app = later.app)
    )
    UNION ALL
    SELECT samples.id, samples.started_at, said.payload, said.received_at, said.id, said.refers
    FROM said JOIN samples ON samples.trace_id = said.value
    WHERE said.kind = 'trace' AND (said.app IS NULL OR said.app = samples.app) AND NOT EXISTS (
        SELECT 1 FROM samples AS later
        WHERE later.trace_id = said.value AND later.started_at > samples.started_at
            AND (said.app IS NULL OR said.app = later.app)
    )
)
SELECT sample_id, app, metric, value, rate, received_at, payload, CASE WHEN refers THEN (
    SELECT value FROM evaluations
    WHERE sample_id = about AND metric = 'answer_correctness' AND outcome = 'score' AND typeof(value) = 'real'
    ORDER BY rowid DESC LIMIT 1
) END
FROM ({labelled_rows}) ORDER BY received_at, id, place {limit}

-- name: tagged
CASE WHEN json_valid(tags) THEN EXISTS (SELECT 1 FROM json_each(tags) WHERE key = {name} AND value = {value}) END

-- name: tag
coalesce((SELECT value FROM json_each(CASE WHEN json_valid(tags) THEN tags ELSE '{{}}' END) WHERE key = {name}), '')

-- name: contains
EXISTS (
    SELECT 1 FROM samples WHERE id = sample_id AND CASE WHEN json_valid(payload) THEN
        json_extract(payload, '$.question') LIKE {name} ESCAPE '\'
        OR json_extract(payload, '$.response') LIKE {name} ESCAPE '\'
    END
)

-- name: retrieved
EXISTS (
    SELECT 1 FROM samples,
        json_each(CASE WHEN json_valid(payload) THEN payload ELSE '{{}}' END, '$.contexts') AS one
    WHERE samples.id = sample_id AND (
        trim(json_extract(one.value, '$.id')) = {name} OR trim(json_extract(one.value, '$.source')) = {name}
    )
)

-- name: in_session
EXISTS (
    SELECT 1 FROM samples WHERE id = sample_id
        AND CASE WHEN json_valid(payload) THEN json_extract(payload, '$.session') = {name} END
)

-- name: add_link
INSERT OR IGNORE INTO links (id, started_at, before, payload) VALUES (?, ?, ?, ?)

-- name: add_link_key
INSERT OR IGNORE INTO link_keys (app, key, started_at, id) VALUES (?, ?, ?, ?)

-- name: links
SELECT payload FROM links WHERE id IN (SELECT value FROM json_each(?1))

-- name: look_up
SELECT payload FROM link_keys JOIN links USING (id)
WHERE app = ?1 AND key = ?2 AND link_keys.started_at >= ?3 AND link_keys.started_at <= ?4
ORDER BY link_keys.started_at DESC, id DESC LIMIT {most}

-- name: move_links
UPDATE links SET before = moved.before, payload = moved.payload FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS before, value ->> 2 AS payload, value ->> 3 AS expected
    FROM json_each(?1)
) AS moved WHERE links.id = moved.id AND links.before IS moved.expected RETURNING links.id

-- name: move_sample
UPDATE samples SET conversation = ?, turn = ?, hop = ? WHERE id = ?

-- name: move_evaluations
UPDATE evaluations SET cluster = ?2 WHERE sample_id = ?1

-- name: move_signals
UPDATE signals SET cluster = ?2
WHERE sample_id = ?1 AND started_at = (SELECT started_at FROM samples WHERE id = ?1)

-- name: prune_links
DELETE FROM links WHERE rowid IN (SELECT rowid FROM links WHERE started_at < ?1 LIMIT ?2)

-- name: prune_link_keys
DELETE FROM link_keys WHERE (app, key, started_at, id) IN (
    SELECT app, key, started_at, id FROM link_keys WHERE started_at < ?1 LIMIT ?2
)

-- name: prune_evaluations
DELETE FROM evaluations WHERE sample_id IN (
    SELECT id FROM samples WHERE started_at < ?1 ORDER BY started_at, id LIMIT ?2
)

-- name: prune_signals
DELETE FROM signals WHERE (started_at, sample_id) IN (
    SELECT started_at, id FROM samples WHERE started_at < ?1 ORDER BY started_at, id LIMIT ?2
)

-- name: prune_samples
DELETE FROM samples WHERE id IN (SELECT id FROM samples WHERE started_at < ?1 ORDER BY started_at, id LIMIT ?2)

-- name: prune_supplements
DELETE FROM supplements WHERE rowid IN (SELECT rowid FROM supplements WHERE received_at < ?1 LIMIT ?2)

-- name: all_samples
SELECT rowid, id, CAST(payload AS TEXT) FROM samples WHERE rowid > ?1 ORDER BY rowid LIMIT ?2

-- name: all_supplements
SELECT rowid, kind, value, id, CAST(payload AS TEXT) FROM supplements WHERE rowid > ?1 ORDER BY rowid LIMIT ?2

-- name: count_evaluations
SELECT (SELECT count(*) FROM evaluations WHERE sample_id = ?1) + (
    SELECT {count_of_signals} FROM signals
    WHERE sample_id = ?1 AND started_at = (SELECT started_at FROM samples WHERE id = ?1)
)

-- name: delete_evaluations
DELETE FROM evaluations WHERE sample_id = ?1

-- name: delete_signals
DELETE FROM signals WHERE sample_id = ?1 AND started_at = (SELECT started_at FROM samples WHERE id = ?1)

-- name: delete_links
DELETE FROM links WHERE id = ?1

-- name: delete_sample
DELETE FROM samples WHERE id = ?1

-- name: delete_supplement
DELETE FROM supplements WHERE id = ?1

-- name: bounds
SELECT min(first), max(last) FROM (
    SELECT (SELECT min(started_at) FROM evaluations) AS first, (SELECT max(started_at) FROM evaluations) AS last
    UNION ALL SELECT (SELECT min(started_at) FROM signals), (SELECT max(started_at) FROM signals)
)

-- name: known_sums
SELECT start, seconds, sums FROM sums WHERE kind = ?1 AND start >= ?2 AND start < ?3

-- name: announce_sums
INSERT OR REPLACE INTO sums (start, seconds, kind, sums) VALUES (?1, ?2, ?3, ?4)

-- name: keep_sums
UPDATE sums SET sums = ?5 WHERE start = ?1 AND seconds = ?2 AND kind = ?3 AND sums = ?4
