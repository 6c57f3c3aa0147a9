"""The tables of the embedded store, and how older files come to have them."""

from __future__ import annotations

from gaugeway.storage.engines.sqlite.connection import Schema

SCHEMA = Schema(
    kind="store",
    application_id=0x67777374,  # "gwst"
    migrations=(
        """
        CREATE TABLE samples (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            app TEXT NOT NULL,
            model TEXT NOT NULL,
            payload TEXT NOT NULL
        );
        CREATE INDEX samples_started_at ON samples (started_at);
        CREATE TABLE evaluations (
            sample_id TEXT NOT NULL,
            metric TEXT NOT NULL,
            version TEXT NOT NULL,
            started_at REAL NOT NULL,
            app TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            value REAL,
            reason TEXT NOT NULL,
            detail TEXT NOT NULL,
            evidence TEXT NOT NULL,
            judge TEXT,
            seconds REAL NOT NULL,
            cost_usd REAL NOT NULL,
            rate REAL NOT NULL,
            PRIMARY KEY (sample_id, metric, version)
        );
        CREATE INDEX evaluations_metric ON evaluations (metric, started_at);
        CREATE INDEX evaluations_app ON evaluations (app, metric, started_at);
        CREATE INDEX evaluations_started_at ON evaluations (started_at);
        CREATE TABLE states (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        """,
        # Keys are new; the traces of the samples that are there are found in them, where they can be read.
        """
        ALTER TABLE samples ADD COLUMN trace_id TEXT;
        ALTER TABLE samples ADD COLUMN context_key TEXT;
        UPDATE samples SET trace_id = CASE WHEN json_valid(payload) THEN json_extract(payload, '$.trace_id') END
        WHERE CASE WHEN json_valid(payload) THEN json_extract(payload, '$.trace_id') END IS NOT NULL;
        CREATE INDEX samples_trace_id ON samples (trace_id) WHERE trace_id IS NOT NULL;
        CREATE INDEX samples_context_key ON samples (context_key) WHERE context_key IS NOT NULL;
        CREATE TABLE supplements (
            id TEXT PRIMARY KEY,
            received_at REAL NOT NULL,
            kind TEXT NOT NULL,
            value TEXT NOT NULL,
            payload TEXT NOT NULL
        );
        CREATE INDEX supplements_address ON supplements (kind, value, received_at);
        CREATE INDEX supplements_received_at ON supplements (received_at);
        """,
        """
        ALTER TABLE evaluations ADD COLUMN prompt TEXT;
        ALTER TABLE evaluations ADD COLUMN tags TEXT;
        UPDATE evaluations SET tags = (
            SELECT CASE WHEN json_valid(payload) THEN nullif(json_extract(payload, '$.tags'), '{}') END
            FROM samples WHERE id = sample_id
        );
        """,
        # A write changes the sums of its hour and its day, which are then recomputed (`stores.rollups`).
        """
        CREATE INDEX evaluations_value ON evaluations (metric, value, started_at, app) WHERE outcome = 'score';
        CREATE TABLE sums (
            start INTEGER NOT NULL,
            seconds INTEGER NOT NULL,
            kind TEXT NOT NULL,
            sums TEXT NOT NULL,
            PRIMARY KEY (start, seconds, kind)
        ) WITHOUT ROWID;
        CREATE TRIGGER evaluations_added AFTER INSERT ON evaluations BEGIN
            DELETE FROM sums WHERE start IN (
                CAST(NEW.started_at AS INTEGER) / 3600 * 3600, CAST(NEW.started_at AS INTEGER) / 86400 * 86400
            );
        END;
        CREATE TRIGGER evaluations_removed AFTER DELETE ON evaluations BEGIN
            DELETE FROM sums WHERE start IN (
                CAST(OLD.started_at AS INTEGER) / 3600 * 3600, CAST(OLD.started_at AS INTEGER) / 86400 * 86400
            );
        END;
        CREATE TRIGGER evaluations_changed AFTER UPDATE ON evaluations BEGIN
            DELETE FROM sums WHERE start IN (
                CAST(OLD.started_at AS INTEGER) / 3600 * 3600, CAST(OLD.started_at AS INTEGER) / 86400 * 86400,
                CAST(NEW.started_at AS INTEGER) / 3600 * 3600, CAST(NEW.started_at AS INTEGER) / 86400 * 86400
            );
        END;
        """,
        # What an older release stored says no app: it joins any, until retention removes it.
        """
        ALTER TABLE supplements ADD COLUMN app TEXT;
        DROP INDEX supplements_address;
        CREATE INDEX supplements_address ON supplements (kind, value, app, received_at);
        """,
        # Scores of an older release know no cluster: each is one of its own.
        """
        ALTER TABLE evaluations ADD COLUMN cluster TEXT;
        """,
        # Samples of an older release belong to no conversation.
        """
        ALTER TABLE samples ADD COLUMN conversation TEXT;
        ALTER TABLE samples ADD COLUMN turn INTEGER;
        ALTER TABLE samples ADD COLUMN hop INTEGER;
        CREATE INDEX samples_conversation ON samples (conversation, started_at) WHERE conversation IS NOT NULL;
        CREATE TABLE links (id TEXT PRIMARY KEY, started_at REAL NOT NULL, before TEXT, payload TEXT NOT NULL);
        CREATE INDEX links_started_at ON links (started_at);
        CREATE TABLE link_keys (
            app TEXT NOT NULL,
            key TEXT NOT NULL,
            started_at REAL NOT NULL,
            id TEXT NOT NULL,
            PRIMARY KEY (app, key, started_at, id)
        ) WITHOUT ROWID;
        CREATE INDEX link_keys_started_at ON link_keys (started_at);
        """,
        # Evaluations of an older release have no weight: alerts derive it from the rates.
        """
        ALTER TABLE evaluations ADD COLUMN weight REAL;
        """,
        # Signals share a row (`signal_rows`); those of an older release stay evaluations until they are pruned.
        """
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
        """,
    ),
)
