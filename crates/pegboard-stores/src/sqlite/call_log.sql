-- Version 4: the call log, in segments of many entries, replaces a row per call and per trace record.
--
-- `heads` has a line of JSON per entry, `bodies` the bodies of the entries in the same order. Its rows in
-- `tallies` are written with the segments.

CREATE TABLE log_segments (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    newest_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    n_entries INTEGER NOT NULL,
    n_bytes INTEGER NOT NULL,
    heads TEXT NOT NULL,
    bodies TEXT NOT NULL
) STRICT;
CREATE INDEX log_segments_by_age ON log_segments (kind, newest_at);

INSERT INTO log_segments (kind, newest_at, expires_at, n_entries, n_bytes, heads, bodies)
    SELECT 'call', max(started_at), max(expires_at), count(*), sum(length(CAST(head AS BLOB)) + length(body)),
        group_concat(head, '' ORDER BY number), group_concat(CAST(body AS TEXT), '' ORDER BY number)
    FROM (
        SELECT *, row_number() OVER (ORDER BY started_at, id) AS number,
            json_object('id', id, 'session', session, 'owner', owner, 'tool', tool_name, 'error', error,
                'started', started_at, 'duration', duration_us, 'body', length(body)) || char(10) AS head
        FROM history
    )
    GROUP BY (number - 1) / 64;

INSERT INTO log_segments (kind, newest_at, expires_at, n_entries, n_bytes, heads, bodies)
    SELECT 'trace', max(done_at), 253402300799999, count(*), sum(length(CAST(head || metadata AS BLOB))),
        group_concat(head, '' ORDER BY number), group_concat(metadata, '' ORDER BY number)
    FROM (
        SELECT *, row_number() OVER (ORDER BY done_at, id) AS number,
            json_object('workspace', workspace_id, 'session', session_id, 'kind', kind, 'content', content,
                'timestamp', done_at, 'body', length(CAST(metadata AS BLOB))) || char(10) AS head
        FROM traces
    )
    GROUP BY (number - 1) / 64;

DROP TABLE history;
DROP TABLE traces;
DELETE FROM tallies WHERE subject IN ('history', 'traces');
INSERT INTO tallies SELECT 'log', kind, sum(n_entries), sum(n_bytes) FROM log_segments GROUP BY kind;
