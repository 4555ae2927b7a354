-- Version 2: the last known listing of each server.

CREATE TABLE catalogue (
    fingerprint TEXT PRIMARY KEY,
    n_bytes INTEGER NOT NULL,
    saved_at INTEGER NOT NULL,
    offer BLOB NOT NULL
) STRICT;
CREATE INDEX catalogue_by_age ON catalogue (saved_at, fingerprint);
CREATE TRIGGER catalogue_in AFTER INSERT ON catalogue BEGIN
    INSERT INTO tallies VALUES ('catalogue', '', 1, new.n_bytes)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1, n_bytes = n_bytes + excluded.n_bytes;
END;
CREATE TRIGGER catalogue_out AFTER DELETE ON catalogue BEGIN
    UPDATE tallies SET n_kept = n_kept - 1, n_bytes = n_bytes - old.n_bytes
        WHERE subject = 'catalogue' AND part = '';
END;
