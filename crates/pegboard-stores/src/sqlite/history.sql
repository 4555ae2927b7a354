-- Version 3: finished calls, and an index of outputs by age.

CREATE TABLE history (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    owner TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    error TEXT,
    started_at INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    n_bytes INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX history_by_age ON history (started_at, id);
CREATE INDEX history_by_expiry ON history (expires_at);
CREATE INDEX history_by_session ON history (session, started_at, id);
CREATE INDEX history_by_owner ON history (owner, started_at, id);
CREATE TRIGGER history_in AFTER INSERT ON history BEGIN
    INSERT INTO tallies VALUES ('history', '', 1, new.n_bytes)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1, n_bytes = n_bytes + excluded.n_bytes;
END;
CREATE TRIGGER history_out AFTER DELETE ON history BEGIN
    UPDATE tallies SET n_kept = n_kept - 1, n_bytes = n_bytes - old.n_bytes
        WHERE subject = 'history' AND part = '';
END;

CREATE INDEX outputs_by_age ON outputs (created_at, handle);
