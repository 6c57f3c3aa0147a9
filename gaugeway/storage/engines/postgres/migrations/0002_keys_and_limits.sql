-- oldest: 1
-- The gateways' own keys, each as the hash of its secret.
CREATE TABLE keys (
    id text PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    app text NOT NULL,
    models text NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision,
    requests_per_min double precision,
    tokens_per_min double precision,
    usd_per_day double precision
);

-- A new revision tells the running gateways that the keys are to be read again. Its row makes changes take turns.
CREATE TABLE key_revision (value uuid NOT NULL);
INSERT INTO key_revision VALUES (gen_random_uuid());
CREATE FUNCTION keys_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = gaugeway AS $$
BEGIN
    UPDATE key_revision SET value = gen_random_uuid();
    RETURN NULL;
END
$$;
CREATE TRIGGER keys_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON keys
    FOR EACH STATEMENT EXECUTE FUNCTION keys_changed();

CREATE TABLE spending (
    day integer NOT NULL,
    subject text NOT NULL,
    usd double precision NOT NULL,
    PRIMARY KEY (day, subject)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- What is left of limits that gateways share. It lasts a minute: after a crash the gateways know it better.
CREATE UNLOGGED TABLE limit_levels (
    kind text NOT NULL,
    subject text NOT NULL,
    per_min double precision NOT NULL,
    burst double precision NOT NULL,
    used double precision NOT NULL,
    level double precision NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (kind, subject)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

CREATE UNLOGGED TABLE limit_processes (
    id text PRIMARY KEY,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
