-- Signals share a row (`signal_rows`); those of an older release stay evaluations until they are pruned.
CREATE TABLE signals (
    started_at REAL NOT NULL,
    sample_id TEXT NOT NULL,
    version TEXT NOT NULL,
    app TEXT NOT NULL,
    model TEXT NOT NULL,
    rate REAL NOT NULL,
    weight REAL,
    prompt TEXT,
    cluster TEXT,
    tags TEXT,
    abstained REAL,
    no_contexts REAL,
    contexts_per_answer REAL,
    retriever_score REAL,
    language_mismatch REAL,
    truncated REAL,
    tool_invalid REAL,
    tool_unknown REAL,
    tool_repeated REAL,
    tool_empty REAL,
    slow REAL,
    expensive REAL,
    PRIMARY KEY (started_at, sample_id)
) WITHOUT ROWID;
CREATE INDEX signals_app ON signals (app, started_at);
CREATE INDEX signals_abstained ON signals (abstained, started_at, app) WHERE abstained > 0.0;
CREATE INDEX signals_no_contexts ON signals (no_contexts, started_at, app) WHERE no_contexts > 0.0;
CREATE INDEX signals_language_mismatch ON signals (language_mismatch, started_at, app)
    WHERE language_mismatch > 0.0;
CREATE INDEX signals_truncated ON signals (truncated, started_at, app) WHERE truncated > 0.0;
CREATE INDEX signals_tool_invalid ON signals (tool_invalid, started_at, app) WHERE tool_invalid > 0.0;
CREATE INDEX signals_tool_unknown ON signals (tool_unknown, started_at, app) WHERE tool_unknown > 0.0;
CREATE INDEX signals_tool_repeated ON signals (tool_repeated, started_at, app) WHERE tool_repeated > 0.0;
CREATE INDEX signals_tool_empty ON signals (tool_empty, started_at, app) WHERE tool_empty > 0.0;
CREATE INDEX signals_slow ON signals (slow, started_at, app) WHERE slow > 0.0;
CREATE INDEX signals_expensive ON signals (expensive, started_at, app) WHERE expensive > 0.0;
CREATE TRIGGER signals_added AFTER INSERT ON signals BEGIN
    DELETE FROM sums WHERE start IN (
        CAST(NEW.started_at AS INTEGER) / 3600 * 3600, CAST(NEW.started_at AS INTEGER) / 86400 * 86400
    );
END;
CREATE TRIGGER signals_removed AFTER DELETE ON signals BEGIN
    DELETE FROM sums WHERE start IN (
        CAST(OLD.started_at AS INTEGER) / 3600 * 3600, CAST(OLD.started_at AS INTEGER) / 86400 * 86400
    );
END;
CREATE TRIGGER signals_changed AFTER UPDATE ON signals BEGIN
    DELETE FROM sums WHERE start IN (
        CAST(OLD.started_at AS INTEGER) / 3600 * 3600, CAST(OLD.started_at AS INTEGER) / 86400 * 86400,
        CAST(NEW.started_at AS INTEGER) / 3600 * 3600, CAST(NEW.started_at AS INTEGER) / 86400 * 86400
    );
END;
