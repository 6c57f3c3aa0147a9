-- oldest: 1
-- Prompt templates that the gateways learned from traffic (monitors.templates).
CREATE TABLE templates (
    app text NOT NULL,
    version text NOT NULL,
    state text NOT NULL,
    learned_at double precision NOT NULL,
    payload text NOT NULL,
    PRIMARY KEY (app, version)
);
