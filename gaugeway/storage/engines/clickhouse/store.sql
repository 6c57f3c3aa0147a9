-- Statements of the ClickHouse store. Words in single braces are parts that conditions.py makes, what stands in double
-- braces becomes a parameter. Both tables have a row and all that replace it within one partition, so that each can be
-- read by itself: that is what the setting at the end of most statements says.

-- name: found
SELECT DISTINCT id, day FROM samples WHERE id IN {ids:Array(String)} AND day IN {days:Array(Int32)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: stored
SELECT id, day, started_at, revision, payload FROM samples FINAL
WHERE id IN {ids:Array(String)} AND day IN {days:Array(Int32)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: outcomes_of_samples
SELECT sample_id, day, metric, version, outcome FROM evaluations FINAL
WHERE day IN {days:Array(Int32)} AND started_at IN {moments:Array(Float64)} AND sample_id IN {ids:Array(String)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: sample
SELECT payload, conversation, turn, hop, day, started_at FROM samples FINAL
WHERE id = {id:String} ORDER BY day LIMIT 1
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: evaluations
SELECT metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight
FROM evaluations FINAL WHERE day = {day:Int32} AND started_at = {at:Float64} AND sample_id = {id:String}
ORDER BY position
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: payloads
SELECT payload FROM samples FINAL WHERE id IN {ids:Array(String)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: moments
SELECT id, day, started_at FROM samples FINAL WHERE id IN {ids:Array(String)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: conversation
SELECT payload, conversation, turn, hop FROM samples FINAL WHERE conversation = {v1:String}
ORDER BY started_at DESC, id DESC LIMIT {v2:UInt64}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: addressed_by_key
SELECT payload, conversation, turn, hop FROM samples FINAL
WHERE {column} = {{v1:String}} AND day BETWEEN {{v4:Int32}} AND {{v5:Int32}}
    AND started_at >= {{v2:Float64}} AND started_at < {{v3:Float64}}
ORDER BY started_at DESC, id DESC LIMIT 100
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: addressed_by_text
SELECT payload, conversation, turn, hop FROM samples FINAL
WHERE position(payload, {v1:String}) > 0 AND day BETWEEN {v4:Int32} AND {v5:Int32}
    AND started_at >= {v2:Float64} AND started_at < {v3:Float64}
ORDER BY started_at DESC, id DESC LIMIT 100
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: silent
SELECT conversation FROM samples FINAL
WHERE day >= {v3:Int32} AND started_at >= {v1:Float64} AND conversation IS NOT NULL
GROUP BY conversation HAVING max(started_at) < {v2:Float64}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: known_supplements
SELECT DISTINCT id FROM supplements WHERE id IN {ids:Array(String)}

-- name: concerned
SELECT payload, id FROM samples FINAL
WHERE {column} IN {{values:Array(String)}}
    AND ({{app:Nullable(String)}} IS NULL OR app = {{app:Nullable(String)}})
ORDER BY started_at DESC LIMIT 100 BY {column}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: supplements
-- The app is read out of the payload: a column would shut out the release before, which is beside this one for a while.
SELECT kind, value, app, received_at, id, payload FROM (
    SELECT kind, value, JSONExtractString(payload, 'app') AS app, received_at, id, payload,
        sum(length(payload)) OVER (PARTITION BY kind, value, app ORDER BY received_at, id) AS bytes
    FROM supplements FINAL
    WHERE (kind, value) IN arrayMap(one -> (one.1, one.2), {{targets:Array(Tuple(String, String, String))}})
        AND (kind, value, app) IN {{targets:Array(Tuple(String, String, String))}}
) WHERE bytes <= {most_bytes}
ORDER BY received_at, id LIMIT {most} BY kind, value, app

-- name: ids
SELECT DISTINCT id FROM samples WHERE id > {v1:String} ORDER BY id LIMIT {v2:UInt64}

-- name: said
SELECT id, payload FROM supplements FINAL WHERE id > {v1:String} ORDER BY id LIMIT {v2:UInt64}

-- name: load_states
SELECT name, value FROM states FINAL

-- name: points
SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
    weight, cluster, toJSONString(tags)
FROM evaluations FINAL WHERE {points} {order} {limit}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: summary
SELECT app, metric, {slice} AS slice, outcome, rate, count(), count(value), sum(value), sum(value * value)
FROM evaluations FINAL WHERE {conditions} GROUP BY app, metric, slice, outcome, rate
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: outcomes
SELECT app, metric, outcome, if(outcome = 'score', '', reason) AS why, count()
FROM evaluations FINAL WHERE {within} AND metric NOT IN ({signals}) GROUP BY app, metric, outcome, why
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: spent
SELECT app, metric, sum(cost_usd), countIf(outcome = 'score')
FROM evaluations FINAL WHERE {within} AND metric NOT IN ({signals}) GROUP BY app, metric
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: exchanges
SELECT app, '', multiIf(scores > 0, 'score', failures > 0, 'failed', skips > 0, 'skipped', 'none') AS ended,
    multiIf(scores > 0, '', failures > 0, failure, skips > 0, skip, '') AS why, count()
FROM (
    SELECT id, started_at, app FROM samples FINAL WHERE {within} AND NOT startsWith(id, 'conversation-')
) AS one LEFT JOIN (
    SELECT sample_id, started_at, countIf(outcome = 'score') AS scores, countIf(outcome = 'failed') AS failures,
        countIf(outcome = 'skipped') AS skips, minIf(reason, outcome = 'failed') AS failure,
        minIf(reason, outcome = 'skipped') AS skip
    FROM evaluations FINAL WHERE {within} AND metric NOT IN ({signals}) GROUP BY sample_id, started_at
) AS of_one ON of_one.sample_id = one.id AND of_one.started_at = one.started_at
GROUP BY app, ended, why
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: paired
SELECT app, metric, outcome, rate, cheap_rate, count(), coalesce(sum(value), 0), coalesce(sum(cheap_value), 0),
    coalesce(sum(value * value), 0), coalesce(sum(value * cheap_value), 0),
    coalesce(sum(cheap_value * cheap_value), 0)
FROM (
    SELECT sample_id, started_at, app, metric, outcome, rate, value
    FROM evaluations FINAL WHERE metric <> {cheap} AND {conditions}
) AS dear LEFT JOIN (
    SELECT sample_id, started_at, argMin(value, position) AS cheap_value,
        argMin(toNullable(rate), position) AS cheap_rate
    FROM evaluations FINAL WHERE metric = {cheap} AND outcome = 'score' AND {window}
    GROUP BY sample_id, started_at
) AS cheap USING (sample_id, started_at)
GROUP BY app, metric, outcome, rate, cheap_rate
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: cheap
SELECT app, count(), sum(value), sum(value * value)
FROM evaluations FINAL WHERE outcome = 'score' AND {conditions} GROUP BY app
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: ratings
-- What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
WITH said AS (
    SELECT id, received_at, kind, value, payload, JSONExtractString(payload, 'app') AS by FROM supplements FINAL
    WHERE says AND day >= {earliest_day} AND received_at >= {earliest}
), labelled AS (
    SELECT about, moment, payload, received_at, said.id AS said_id
    FROM (SELECT * FROM said WHERE kind = 'exchange') AS said JOIN (
        SELECT id AS about, started_at AS moment, id AS named, app AS its_app,
            max(started_at) OVER (PARTITION BY id) AS latest,
            max(started_at) OVER (PARTITION BY id, app) AS latest_of_app
        FROM samples FINAL WHERE id IN (SELECT value FROM said WHERE kind = 'exchange')
    ) AS last ON last.named = said.value
    WHERE if(said.by = '', moment = latest, its_app = said.by AND moment = latest_of_app)
    UNION ALL
    SELECT about, moment, payload, received_at, said.id AS said_id
    FROM (SELECT * FROM said WHERE kind = 'key') AS said JOIN (
        SELECT id AS about, started_at AS moment, context_key AS named, app AS its_app,
            max(started_at) OVER (PARTITION BY context_key) AS latest,
            max(started_at) OVER (PARTITION BY context_key, app) AS latest_of_app
        FROM samples FINAL WHERE context_key IN (SELECT value FROM said WHERE kind = 'key')
    ) AS last ON last.named = said.value
    WHERE if(said.by = '', moment = latest, its_app = said.by AND moment = latest_of_app)
    UNION ALL
    SELECT about, moment, payload, received_at, said.id AS said_id
    FROM (SELECT * FROM said WHERE kind = 'trace') AS said JOIN (
        SELECT id AS about, started_at AS moment, trace_id AS named, app AS its_app,
            max(started_at) OVER (PARTITION BY trace_id) AS latest,
            max(started_at) OVER (PARTITION BY trace_id, app) AS latest_of_app
        FROM samples FINAL WHERE trace_id IN (SELECT value FROM said WHERE kind = 'trace')
    ) AS last ON last.named = said.value
    WHERE if(said.by = '', moment = latest, its_app = said.by AND moment = latest_of_app)
)
SELECT sample_id, app, metric, value, rate, received_at, payload, correct
FROM (
    SELECT sample_id, started_at, app, metric, value, rate, position FROM evaluations FINAL
    WHERE outcome = 'score' AND {conditions} AND sample_id IN (SELECT about FROM labelled)
) AS scored
JOIN labelled ON scored.sample_id = labelled.about AND scored.started_at = labelled.moment
LEFT JOIN (
    SELECT sample_id AS known, started_at AS known_at, argMax(value, position) AS correct FROM evaluations FINAL
    WHERE metric = 'answer_correctness' AND outcome = 'score' AND {window}
        AND sample_id IN (SELECT about FROM labelled)
    GROUP BY known, known_at
) AS verdicts ON verdicts.known = scored.sample_id AND verdicts.known_at = scored.started_at
ORDER BY received_at, said_id, position {limit}

-- name: tagged
mapContains(tags, {name}) AND tags[{name}] = {value}

-- name: tag
tags[{name}]

-- name: contains
sample_id IN (
    SELECT id FROM samples FINAL WHERE {window} AND (
        positionCaseInsensitive(JSONExtractString(payload, 'question'), {name}) > 0
        OR positionCaseInsensitive(JSONExtractString(payload, 'response'), {name}) > 0
    )
)

-- name: retrieved
sample_id IN (
    SELECT id FROM samples FINAL WHERE {window} AND arrayExists(
        one -> trimBoth(JSONExtractString(one, 'id')) = {name}
            OR trimBoth(JSONExtractString(one, 'source')) = {name},
        JSONExtractArrayRaw(payload, 'contexts')
    )
)

-- name: in_session
sample_id IN (
    SELECT id FROM samples FINAL WHERE {window} AND JSONExtractString(payload, 'session') = {name}
)

-- name: links
SELECT id, payload FROM links FINAL WHERE id IN {ids:Array(String)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: look_up
SELECT * FROM (
    SELECT {number} AS number, id, started_at FROM link_keys FINAL
    WHERE app = {{a{number}:String}} AND key = {{k{number}:String}}
        AND started_at >= {{s{number}:Float64}} AND started_at <= {{u{number}:Float64}}
    ORDER BY started_at DESC, id DESC LIMIT {most}
)

-- name: write_again
INSERT INTO {table} ({columns}) SELECT {values} FROM {table} FINAL WHERE {where}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: days_over
SELECT day, count() FROM samples FINAL WHERE day < {day:Int32} GROUP BY day ORDER BY day
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: days
SELECT DISTINCT day FROM {table} WHERE day < {{day:Int32}} ORDER BY day

-- name: old_supplements
SELECT count() FROM supplements WHERE day = {day:Int32} AND received_at < {before:Float64}

-- name: drop_day
-- A server refuses to drop more than 50 GB at once, against mistakes; this is none.
ALTER TABLE {table} DROP PARTITION {day} SETTINGS max_partition_size_to_drop = 0

-- name: delete_old_supplements
ALTER TABLE supplements DELETE IN PARTITION {day} WHERE received_at < {{before:Float64}} SETTINGS mutations_sync = 2

-- name: all_samples
-- What a merge would throw away is read too: an older payload of the same sample may say more.
SELECT id, day, revision, started_at, id, payload FROM samples
WHERE (id, day, revision) > ({v1:String}, {v2:Int32}, {v3:UInt32})
ORDER BY id, day, revision LIMIT {v4:UInt64}

-- name: all_supplements
SELECT kind, value, id, revision, kind, value, id, payload FROM supplements
WHERE (kind, value, id, revision) > ({v1:String}, {v2:String}, {v3:String}, {v4:UInt64})
ORDER BY kind, value, id, revision LIMIT {v5:UInt64}

-- name: count_evaluations
SELECT count() FROM evaluations FINAL
WHERE day IN {days:Array(Int32)} AND started_at IN {moments:Array(Float64)} AND sample_id IN {ids:Array(String)}
SETTINGS do_not_merge_across_partitions_select_final = 1

-- name: delete
ALTER TABLE {table} DELETE WHERE {column} IN {{ids:Array(String)}} SETTINGS mutations_sync = 0

-- name: mutations
SELECT count(), countIf(latest_fail_reason <> '') FROM system.mutations
WHERE database = currentDatabase() AND table = {table:String} AND NOT is_done
