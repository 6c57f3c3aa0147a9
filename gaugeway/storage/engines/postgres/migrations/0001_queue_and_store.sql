CREATE TABLE versions (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The queue. Rows come and go all the time: vacuum early, and leave room so that a lease stays on its page.
CREATE TABLE waiting (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    started_at double precision NOT NULL,
    payload bytea NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    leased_until double precision
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX waiting_started_at ON waiting (started_at);
CREATE INDEX waiting_leased_until ON waiting (leased_until) WHERE leased_until IS NOT NULL;

CREATE TABLE dead (
    id text PRIMARY KEY,
    started_at double precision NOT NULL,
    payload bytea NOT NULL,
    attempts integer NOT NULL,
    reason text NOT NULL
);
CREATE INDEX dead_started_at ON dead (started_at);

CREATE TABLE supplies (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    received_at double precision NOT NULL,
    payload bytea NOT NULL,
    taken_until double precision
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX supplies_received_at ON supplies (received_at);

-- The store. What belongs to one UTC day (days since 1970) lies in partitions of its own; retention drops them.
CREATE TABLE samples (
    id text NOT NULL,
    day integer NOT NULL,
    started_at double precision NOT NULL,
    app text NOT NULL,
    model text NOT NULL,
    payload json NOT NULL,
    trace_id text,
    context_key text,
    PRIMARY KEY (id, day)
) PARTITION BY LIST (day);
CREATE INDEX samples_started_at ON samples (started_at);
CREATE INDEX samples_trace_id ON samples (trace_id, started_at) WHERE trace_id IS NOT NULL;
CREATE INDEX samples_context_key ON samples (context_key, started_at) WHERE context_key IS NOT NULL;

CREATE SEQUENCE evaluations_position;
CREATE TABLE evaluations (
    sample_id text NOT NULL,
    metric text NOT NULL,
    version text NOT NULL,
    day integer NOT NULL,
    position bigint NOT NULL DEFAULT nextval('evaluations_position'),
    started_at double precision NOT NULL,
    app text NOT NULL,
    model text NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('score', 'skipped', 'failed')),
    value double precision,
    reason text NOT NULL,
    detail text NOT NULL,
    evidence json NOT NULL,
    judge text,
    seconds double precision NOT NULL,
    cost_usd double precision NOT NULL,
    rate double precision NOT NULL,
    prompt text,
    tags jsonb,
    PRIMARY KEY (sample_id, metric, version, day),
    CHECK ((outcome = 'score') = (value IS NOT NULL))
) PARTITION BY LIST (day);
CREATE INDEX evaluations_metric ON evaluations (metric, started_at);
CREATE INDEX evaluations_started_at ON evaluations (started_at);

-- `says`: a rating, a label, or a reference by feedback, which is what people say about an answer.
CREATE TABLE supplements (
    id text PRIMARY KEY,
    received_at double precision NOT NULL,
    kind text NOT NULL,
    value text NOT NULL,
    says boolean NOT NULL,
    payload json NOT NULL
);
CREATE INDEX supplements_address ON supplements (kind, value, received_at);
CREATE INDEX supplements_received_at ON supplements (received_at);
CREATE INDEX supplements_says ON supplements (received_at) WHERE says;

CREATE TABLE states (name text PRIMARY KEY, value bytea NOT NULL);

-- Who leads. A new term begins with every new leader; what an older term saves is refused.
CREATE TABLE terms (name text PRIMARY KEY, term bigint NOT NULL, holder text NOT NULL, since timestamptz NOT NULL);
