-- Statements of the PostgreSQL store. Words in braces are parts that conditions.py makes.

-- name: add_fresh
-- One statement, one journey: most samples are new. The count says whether this one was.
WITH fresh AS (
    INSERT INTO samples (
        id, day, started_at, app, model, payload, trace_id, context_key, conversation, turn, hop
    ) VALUES ($1, $2, $3, $4, $5, $21::text::json, $22, $23, $25, $26, $27) ON CONFLICT DO NOTHING RETURNING id
), added AS (
    INSERT INTO evaluations (sample_id, metric, version, day, started_at, app, model, outcome, value, reason, detail,
        evidence, judge, seconds, cost_usd, rate, weight, prompt, cluster, tags)
    SELECT $1::text, metric, version, $2::integer, $3::float8, $4::text, $5::text, outcome, value, reason, detail,
        evidence::json, judge, seconds, cost_usd, rate, weight, $6::text, $7::text, $8::text::jsonb
    FROM unnest($9::text[], $10::text[], $11::text[], $12::float8[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::float8[], $18::float8[], $19::float8[], $20::float8[]) WITH ORDINALITY
    AS new (metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight, place)
    WHERE EXISTS (SELECT FROM fresh) ORDER BY place
), waited AS (
    DELETE FROM waiting WHERE id = ANY($24::text[]) AND EXISTS (SELECT FROM fresh)
), set_aside AS (
    DELETE FROM dead WHERE id = ANY($24::text[]) AND EXISTS (SELECT FROM fresh)
)
SELECT count(*) FROM fresh

-- name: add_evaluations
INSERT INTO evaluations (sample_id, metric, version, day, started_at, app, model, outcome, value, reason, detail,
    evidence, judge, seconds, cost_usd, rate, weight, prompt, cluster, tags)
SELECT $1::text, metric, version, $2::integer, $3::float8, $4::text, $5::text, outcome, value, reason, detail,
    evidence::json, judge, seconds, cost_usd, rate, weight, $6::text, $7::text, $8::text::jsonb
FROM unnest($9::text[], $10::text[], $11::text[], $12::float8[], $13::text[], $14::text[], $15::text[],
    $16::text[], $17::float8[], $18::float8[], $19::float8[], $20::float8[]) WITH ORDINALITY
AS new (metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight, place)
ORDER BY place
ON CONFLICT (sample_id, metric, version, day) DO UPDATE SET
    outcome = excluded.outcome, value = excluded.value, reason = excluded.reason, detail = excluded.detail,
    evidence = excluded.evidence, judge = excluded.judge, seconds = excluded.seconds,
    cost_usd = excluded.cost_usd, rate = excluded.rate, weight = excluded.weight
WHERE evaluations.outcome = 'skipped' AND excluded.outcome <> 'skipped'

-- name: stored_sample
SELECT payload::text FROM samples WHERE id = $1 AND day = $2 FOR UPDATE

-- name: replace_sample
UPDATE samples SET payload = $3::text::json WHERE id = $1 AND day = $2

-- name: outcomes_of_sample
SELECT metric, version, outcome FROM evaluations WHERE sample_id = $1 AND day = $2

-- name: payloads
SELECT payload::text FROM samples WHERE id = ANY($1)

-- name: sample
SELECT payload::text, conversation, turn, hop, day FROM samples WHERE id = $1 ORDER BY day LIMIT 1

-- name: evaluations
SELECT metric, version, outcome, value, reason, detail, evidence::text, judge, seconds, cost_usd, rate, weight
FROM evaluations WHERE sample_id = $1 AND day = $2 ORDER BY position

-- name: conversation
SELECT payload::text, conversation, turn, hop FROM samples WHERE conversation = $1
ORDER BY started_at DESC, id DESC LIMIT $2

-- name: addressed_by_key
SELECT payload::text, conversation, turn, hop FROM samples
WHERE {column} = $1 AND started_at >= $2 AND started_at < $3 AND day BETWEEN $4 AND $5
ORDER BY started_at DESC, id DESC LIMIT 100

-- name: addressed_by_text
SELECT payload::text, conversation, turn, hop FROM samples
WHERE strpos(payload::text, $1) > 0 AND started_at >= $2 AND started_at < $3 AND day BETWEEN $4 AND $5
ORDER BY started_at DESC, id DESC LIMIT 100

-- name: silent
SELECT DISTINCT conversation FROM samples AS last
WHERE started_at >= $1 AND started_at < $2 AND day BETWEEN $3 AND $4 AND conversation IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM samples WHERE conversation = last.conversation AND started_at >= $2 AND day >= $4
)

-- name: add_supplement
INSERT INTO supplements (id, received_at, kind, value, app, says, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7::text::json)
ON CONFLICT DO NOTHING

-- name: concerned
SELECT payload::text, id FROM samples WHERE {column} = $1 AND ($2::text IS NULL OR app = $2)
ORDER BY started_at DESC LIMIT 100

-- name: supplements
-- Each term by itself is a place in the index: what other apps say under the same address is not read.
SELECT payload::text FROM supplements WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(octet_length(payload::text)) OVER (ORDER BY received_at, id) AS bytes FROM supplements
        WHERE kind = 'exchange' AND value = $1 AND app IS NULL OR kind = 'exchange' AND value = $1 AND app = $4
            OR kind = 'key' AND value = $2 AND app IS NULL OR kind = 'key' AND value = $2 AND app = $4
            OR kind = 'trace' AND value = $3 AND app IS NULL OR kind = 'trace' AND value = $3 AND app = $4
        ORDER BY received_at, id LIMIT 1000
    ) AS said WHERE bytes <= $5
) ORDER BY received_at, id

-- name: ids
SELECT DISTINCT id FROM samples WHERE id > $1 ORDER BY id LIMIT $2

-- name: said
SELECT id, payload::text FROM supplements WHERE id > $1 ORDER BY id LIMIT $2

-- name: holds
SELECT id, (SELECT count(*) FROM evaluations WHERE sample_id = id AND evaluations.day = samples.day)
FROM samples WHERE id = ANY($1::text[])

-- name: load_states
SELECT name, value FROM states

-- name: points
SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
    weight, cluster, tags::text
FROM evaluations WHERE {points} {order} {limit}

-- name: top
SELECT value FROM evaluations WHERE outcome = 'score' AND {conditions} ORDER BY value DESC LIMIT 1 OFFSET {place}

-- name: metrics
-- One probe of the index after the other.
WITH RECURSIVE known (metric) AS (
    SELECT (SELECT metric FROM evaluations WHERE {days} ORDER BY metric LIMIT 1)
    UNION ALL
    SELECT (SELECT metric FROM evaluations WHERE {days} AND metric > known.metric ORDER BY metric LIMIT 1)
    FROM known WHERE known.metric IS NOT NULL
)
SELECT metric FROM known WHERE metric IS NOT NULL

-- name: summary
SELECT app, metric, {slice} AS slice, outcome, rate, count(*), count(value), sum(value), sum(value * value)
FROM evaluations WHERE {conditions} GROUP BY app, metric, slice, outcome, rate

-- name: scored
SELECT app, metric, count(*), sum(value), sum(value * value), min(rate), max(rate)
FROM (
    SELECT DISTINCT ON (sample_id, day, metric) app, metric, value, rate FROM evaluations
    WHERE outcome = 'score' AND rate > 0 AND rate <= 1 AND value >= 0 AND value <= 1 AND {conditions}
    ORDER BY sample_id, day, metric, position DESC
) AS last GROUP BY app, metric

-- name: spread
SELECT app, metric, {slice} AS slice, version, judge, rate, least(floor(value * 100), 99)::integer AS k, count(*),
    sum(value), sum(value * value)
FROM evaluations
WHERE outcome = 'score' AND rate > 0 AND rate <= 1 AND value >= 0 AND value <= 1 AND {conditions}
GROUP BY app, metric, slice, version, judge, rate, k

-- name: outcomes
SELECT app, metric, outcome, CASE WHEN outcome = 'score' THEN '' ELSE reason END AS why, count(*)
FROM evaluations WHERE {within} AND metric NOT IN ({signals}) GROUP BY app, metric, outcome, why

-- name: spent
SELECT app, metric, sum(cost_usd), count(*) FILTER (WHERE outcome = 'score')
FROM evaluations WHERE {within} AND metric NOT IN ({signals}) GROUP BY app, metric

-- name: exchanges
SELECT app, '', outcome, CASE WHEN outcome = 'score' THEN '' ELSE coalesce(failure, skip, '') END AS why, count(*)
FROM (
    SELECT app, failure, skip,
        CASE WHEN scores > 0 THEN 'score' WHEN failure IS NOT NULL THEN 'failed'
            WHEN skip IS NOT NULL THEN 'skipped' ELSE 'none' END AS outcome
    FROM (SELECT id, day, app FROM samples WHERE {within} AND id NOT LIKE 'conversation-%') AS one
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE outcome = 'score') AS scores,
            min(reason) FILTER (WHERE outcome = 'failed') AS failure,
            min(reason) FILTER (WHERE outcome = 'skipped') AS skip
        FROM evaluations WHERE sample_id = one.id AND evaluations.day = one.day AND metric NOT IN ({signals})
    ) AS of_one
) AS every GROUP BY app, outcome, why

-- name: paired
WITH cheap AS MATERIALIZED (
    SELECT DISTINCT ON (sample_id, day) sample_id, day, value, rate FROM evaluations
    WHERE metric = {cheap} AND outcome = 'score' AND {window} ORDER BY sample_id, day, position
)
SELECT app, metric, outcome, dear.rate, cheap.rate, count(*),
    coalesce(sum(dear.value), 0), coalesce(sum(cheap.value), 0), coalesce(sum(dear.value * dear.value), 0),
    coalesce(sum(dear.value * cheap.value), 0), coalesce(sum(cheap.value * cheap.value), 0)
FROM (SELECT * FROM evaluations WHERE metric <> {cheap} AND {conditions}) AS dear
LEFT JOIN cheap USING (sample_id, day)
GROUP BY app, metric, outcome, dear.rate, cheap.rate

-- name: cheap
SELECT app, count(*), sum(value), sum(value * value) FROM evaluations
WHERE outcome = 'score' AND {conditions} GROUP BY app

-- name: ratings
-- Most is said of an exchange on its day or the next one: no other day needs to be looked at.
-- What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
WITH said AS (
    SELECT id, received_at, kind, value, app, payload, strpos(payload::text, '"reference":"') > 0 AS refers,
        greatest(0, least(1e9, floor(received_at / 86400)))::integer AS received_day
    FROM supplements
    WHERE says AND received_at >= {earliest}::float8
), near AS MATERIALIZED (
    SELECT samples.id AS about, day AS about_day, said.payload, said.received_at, said.id, said.refers
    FROM said JOIN samples ON samples.id = said.value AND day IN (received_day, received_day - 1)
    WHERE said.kind = 'exchange' AND (said.app IS NULL OR said.app = samples.app)
), labelled AS MATERIALIZED (
    SELECT * FROM near
    UNION ALL
    SELECT last.id AS about, last.day AS about_day, said.payload, said.received_at, said.id, said.refers
    FROM said CROSS JOIN LATERAL (
        SELECT samples.id, day FROM samples
        WHERE samples.id = said.value AND (said.app IS NULL OR said.app = samples.app)
        ORDER BY started_at DESC FETCH FIRST 1 ROW WITH TIES
    ) AS last WHERE said.kind = 'exchange' AND said.id NOT IN (SELECT id FROM near)
    UNION ALL
    SELECT last.id, last.day, said.payload, said.received_at, said.id, said.refers
    FROM said CROSS JOIN LATERAL (
        SELECT samples.id, day FROM samples
        WHERE samples.context_key = said.value AND (said.app IS NULL OR said.app = samples.app)
        ORDER BY started_at DESC FETCH FIRST 1 ROW WITH TIES
    ) AS last WHERE said.kind = 'key'
    UNION ALL
    SELECT last.id, last.day, said.payload, said.received_at, said.id, said.refers
    FROM said CROSS JOIN LATERAL (
        SELECT samples.id, day FROM samples
        WHERE samples.trace_id = said.value AND (said.app IS NULL OR said.app = samples.app)
        ORDER BY started_at DESC FETCH FIRST 1 ROW WITH TIES
    ) AS last WHERE said.kind = 'trace'
)
SELECT sample_id, app, metric, value, rate, received_at, payload::text, CASE WHEN refers THEN (
    SELECT value FROM evaluations AS other
    WHERE other.sample_id = about AND other.day = about_day AND metric = 'answer_correctness' AND outcome = 'score'
    ORDER BY position DESC LIMIT 1
) END
FROM labelled JOIN evaluations ON sample_id = about AND day = about_day
WHERE outcome = 'score' AND {conditions} ORDER BY received_at, labelled.id, position {limit}

-- name: tagged
tags ->> {name} = {value}

-- name: tag
coalesce(tags ->> {name}, '')

-- name: contains
-- A text is searched for in its JSON form: PostgreSQL's text type cannot hold NUL. A payload with \u0000 cannot be
-- taken apart, and is searched as a whole.
EXISTS (
    SELECT 1 FROM samples WHERE samples.id = sample_id AND samples.day = evaluations.day
        AND CASE WHEN strpos(payload::text, '\u0000') > 0 THEN payload::text ILIKE {name}
        ELSE (payload -> 'question')::text ILIKE {name} OR (payload -> 'response')::text ILIKE {name} END
)

-- name: retrieved
EXISTS (
    SELECT 1 FROM samples WHERE samples.id = sample_id AND samples.day = evaluations.day
        AND CASE WHEN strpos(payload::text, '\u0000') > 0 THEN strpos(payload::text, {written}) > 0
        ELSE EXISTS (
            SELECT 1 FROM json_array_elements(payload -> 'contexts') AS one
            WHERE btrim(one ->> 'id') = {name} OR btrim(one ->> 'source') = {name}
        ) END
)

-- name: in_session
EXISTS (
    SELECT 1 FROM samples WHERE samples.id = sample_id AND samples.day = evaluations.day
        AND CASE WHEN strpos(payload::text, '\u0000') > 0 THEN strpos(payload::text, {written}) > 0
        ELSE payload ->> 'session' = {name} END
)

-- name: add_links
WITH added AS (
    INSERT INTO links (id, started_at, before, payload)
    SELECT * FROM unnest($1::text[], $2::float8[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING RETURNING id
), keyed AS (
    INSERT INTO link_keys (app, key, started_at, id)
    SELECT * FROM unnest($5::text[], $6::text[], $7::float8[], $8::text[]) ON CONFLICT DO NOTHING
)
SELECT id FROM added

-- name: links
SELECT payload FROM links WHERE id = ANY($1::text[])

-- name: look_up
SELECT number - 1, payload
FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[]) WITH ORDINALITY
    AS wanted (app, key, since, until, number)
CROSS JOIN LATERAL (
    SELECT id, started_at FROM link_keys
    WHERE app = wanted.app AND key = wanted.key AND started_at >= since AND started_at <= until
    ORDER BY started_at DESC, id DESC LIMIT {most}
) AS found JOIN links USING (id) ORDER BY number, found.started_at DESC, id DESC

-- name: move_link
UPDATE links SET before = $2, payload = $3 WHERE id = $1 AND before IS NOT DISTINCT FROM $4

-- name: move_sample
UPDATE samples SET conversation = $3, turn = $4, hop = $5 WHERE id = $1 AND day = $2

-- name: move_evaluations
UPDATE evaluations SET cluster = $3 WHERE sample_id = $1 AND day = $2

-- name: prune_links
DELETE FROM links WHERE id IN (SELECT id FROM links WHERE started_at < $1 LIMIT $2)

-- name: prune_link_keys
DELETE FROM link_keys WHERE (app, key, started_at, id) IN (
    SELECT app, key, started_at, id FROM link_keys WHERE started_at < $1 LIMIT $2
)

-- name: prune_supplements
DELETE FROM supplements WHERE id IN (SELECT id FROM supplements WHERE received_at < $1 LIMIT $2)

-- name: today
SELECT extract(epoch FROM now())::float8

-- name: all_samples
SELECT id, day, id, payload::text FROM samples WHERE (id, day) > ($1::text, $2::integer) ORDER BY id, day LIMIT $3

-- name: all_supplements
SELECT id, kind, value, id, payload::text FROM supplements WHERE id > $1 ORDER BY id LIMIT $2

-- name: count_evaluations
SELECT count(*) FROM evaluations JOIN unnest($1::text[], $2::integer[]) AS one (id, day)
ON sample_id = one.id AND evaluations.day = one.day

-- name: delete_evaluations
DELETE FROM evaluations USING unnest($1::text[], $2::integer[]) AS one (id, day)
WHERE sample_id = one.id AND evaluations.day = one.day

-- name: delete_links
DELETE FROM links WHERE id = ANY($1::text[])

-- name: delete_samples
DELETE FROM samples USING unnest($1::text[], $2::integer[]) AS one (id, day)
WHERE samples.id = one.id AND samples.day = one.day

-- name: delete_supplements
DELETE FROM supplements WHERE id = ANY($1::text[])

-- name: bounds
-- The days have partitions, so that the first and the last row are found in the first and the last of them.
SELECT (SELECT started_at FROM samples ORDER BY started_at LIMIT 1),
    (SELECT started_at FROM samples ORDER BY started_at DESC LIMIT 1)

-- name: known_sums
SELECT start, seconds, sums FROM sums WHERE kind = $1 AND start >= $2 AND start < $3

-- name: wait_for_writers
SELECT pg_advisory_xact_lock($1::integer, hour) FROM unnest($2::integer[]) WITH ORDINALITY AS a (hour, place)

-- name: announce_sums
INSERT INTO sums (start, seconds, kind, sums) VALUES ($1, $2, $3, $4)
ON CONFLICT (start, seconds, kind) DO UPDATE SET sums = excluded.sums

-- name: keep_sums
UPDATE sums SET sums = $5 WHERE start = $1 AND seconds = $2 AND kind = $3 AND sums = $4

-- name: save_states
INSERT INTO states (name, value) SELECT * FROM unnest($1::text[], $2::bytea[]) AS new (name, value) ORDER BY name
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: begin_term
INSERT INTO terms (name, term, holder, since) VALUES ($1, 1, $2, now())
ON CONFLICT (name) DO UPDATE SET term = terms.term + 1, holder = excluded.holder, since = excluded.since
RETURNING term

-- name: days
SELECT substring(relname FROM '-?[0-9]+$')::integer AS day
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'samples'::regclass
