-- Version 6: what belongs to a principal is kept under its owner. Owners have sessions of their own, even with equal
-- ids; trace records have owners.
--
-- Data without a principal belongs to the local one, and so do trace records: their sessions may have expired, and
-- the ids may have been given to others since.

ALTER TABLE session_handles RENAME TO old_session_handles;
ALTER TABLE sessions RENAME TO old_sessions;
CREATE TABLE sessions (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    workspace TEXT,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT;
CREATE TABLE session_handles (
    owner TEXT NOT NULL,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    session_id TEXT NOT NULL,
    PRIMARY KEY (owner, workspace, name),
    FOREIGN KEY (owner, session_id) REFERENCES sessions (owner, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
INSERT INTO sessions
    SELECT iif(principal = '0::', '0::local', principal), id, name, workspace, created_at, used_at, expires_at
    FROM old_sessions;
INSERT OR IGNORE INTO session_handles
    SELECT iif(h.principal = '0::', '0::local', h.principal), h.workspace, h.name, h.session_id
    FROM old_session_handles h JOIN old_sessions s ON s.id = h.session_id AND s.principal = h.principal;
DROP TABLE old_session_handles;
DROP TABLE old_sessions;
CREATE INDEX sessions_by_use ON sessions (used_at, owner, id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE TRIGGER sessions_in AFTER INSERT ON sessions BEGIN
    INSERT INTO tallies VALUES ('sessions', '', 1, 0) ON CONFLICT DO UPDATE SET n_kept = n_kept + 1;
END;
CREATE TRIGGER sessions_out AFTER DELETE ON sessions BEGIN
    UPDATE tallies SET n_kept = n_kept - 1 WHERE subject = 'sessions' AND part = '';
END;
CREATE INDEX session_handles_by_session ON session_handles (owner, session_id);

ALTER TABLE outputs RENAME COLUMN principal TO owner;
UPDATE outputs SET owner = '0::local' WHERE owner = '0::';

UPDATE log_segments SET heads = (
    SELECT group_concat(iif(value ->> 2 = '0::', json_set(value, '$[2]', '0::local'), value) || char(10), ''
        ORDER BY key)
    FROM json_each('[' || rtrim(replace(heads, char(10), ','), ',') || ']')
)
WHERE kind = 'call' AND instr(heads, '"0::"') > 0;

UPDATE log_segments SET heads = (
    SELECT group_concat(json_set(value, '$.owner', '0::local') || char(10), '' ORDER BY key)
    FROM json_each('[' || rtrim(replace(heads, char(10), ','), ',') || ']')
)
WHERE kind = 'trace';
