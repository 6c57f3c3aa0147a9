-- A write changes the sums of its hour and its day, which are then recomputed (`storage/stores/rollups.py`).
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
