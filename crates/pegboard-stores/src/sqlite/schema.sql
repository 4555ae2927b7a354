-- Version 1: the tables of a database.
--
-- Times are milliseconds since 1970. Large columns come last, so that the others are read without them. Tables with
-- expiry or eviction by age have an index for it. `tallies` holds precomputed counts and sizes.

CREATE TABLE tallies (
    subject TEXT NOT NULL,
    part TEXT NOT NULL,
    n_kept INTEGER NOT NULL,
    n_bytes INTEGER NOT NULL,
    PRIMARY KEY (subject, part)
) STRICT, WITHOUT ROWID;

-- A tally of zero has no row.
CREATE TRIGGER tallies_end AFTER UPDATE ON tallies WHEN new.n_kept <= 0 BEGIN
    DELETE FROM tallies WHERE subject = new.subject AND part = new.part;
END;

CREATE TABLE cache (
    key_hash BLOB PRIMARY KEY,
    tool_name TEXT NOT NULL,
    payload_bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    payload BLOB NOT NULL
) STRICT;
CREATE INDEX cache_by_age ON cache (created_at, key_hash);
CREATE INDEX cache_by_expiry ON cache (expires_at);
CREATE TRIGGER cache_in AFTER INSERT ON cache BEGIN
    INSERT INTO tallies VALUES ('cache', '', 1, new.payload_bytes)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1, n_bytes = n_bytes + excluded.n_bytes;
END;
CREATE TRIGGER cache_out AFTER DELETE ON cache BEGIN
    UPDATE tallies SET n_kept = n_kept - 1, n_bytes = n_bytes - old.payload_bytes
        WHERE subject = 'cache' AND part = '';
END;

CREATE TABLE outputs (
    handle TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    principal TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    content_type TEXT NOT NULL,
    n_bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX outputs_by_session ON outputs (session);
CREATE INDEX outputs_by_expiry ON outputs (expires_at);
CREATE TRIGGER outputs_in AFTER INSERT ON outputs BEGIN
    INSERT INTO tallies VALUES
        ('outputs', '', 1, new.n_bytes), ('outputs of session', new.session, 1, new.n_bytes)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1, n_bytes = n_bytes + excluded.n_bytes;
END;
CREATE TRIGGER outputs_out AFTER DELETE ON outputs BEGIN
    UPDATE tallies SET n_kept = n_kept - 1, n_bytes = n_bytes - old.n_bytes
        WHERE (subject = 'outputs' AND part = '') OR (subject = 'outputs of session' AND part = old.session);
END;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,
    workspace TEXT,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_use ON sessions (used_at, id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE TRIGGER sessions_in AFTER INSERT ON sessions BEGIN
    INSERT INTO tallies VALUES ('sessions', '', 1, 0) ON CONFLICT DO UPDATE SET n_kept = n_kept + 1;
END;
CREATE TRIGGER sessions_out AFTER DELETE ON sessions BEGIN
    UPDATE tallies SET n_kept = n_kept - 1 WHERE subject = 'sessions' AND part = '';
END;

CREATE TABLE session_handles (
    principal TEXT NOT NULL,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    PRIMARY KEY (principal, workspace, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_handles_by_session ON session_handles (session_id);

CREATE TABLE traces (
    id INTEGER PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    done_at INTEGER NOT NULL,
    n_bytes INTEGER NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL
) STRICT;
CREATE INDEX traces_by_age ON traces (done_at);
CREATE INDEX traces_by_workspace ON traces (workspace_id, done_at);
CREATE INDEX traces_by_session ON traces (session_id, done_at);
CREATE TRIGGER traces_in AFTER INSERT ON traces BEGIN
    INSERT INTO tallies VALUES ('traces', '', 1, new.n_bytes)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1, n_bytes = n_bytes + excluded.n_bytes;
END;
CREATE TRIGGER traces_out AFTER DELETE ON traces BEGIN
    UPDATE tallies SET n_kept = n_kept - 1, n_bytes = n_bytes - old.n_bytes
        WHERE subject = 'traces' AND part = '';
END;

CREATE TABLE leases (
    id TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_expiry ON leases (expires_at);
CREATE TRIGGER leases_in AFTER INSERT ON leases BEGIN
    INSERT INTO tallies VALUES ('leases', '', 1, 0), ('leases of queue', new.queue, 1, 0)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1;
END;
CREATE TRIGGER leases_out AFTER DELETE ON leases BEGIN
    UPDATE tallies SET n_kept = n_kept - 1
        WHERE (subject = 'leases' AND part = '') OR (subject = 'leases of queue' AND part = old.queue);
END;
