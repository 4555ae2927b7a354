-- Version 7: credentials of principals, encrypted by their user.

CREATE TABLE credentials (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    saved_at INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER credentials_in AFTER INSERT ON credentials BEGIN
    INSERT INTO tallies VALUES ('credentials of owner', new.owner, 1, 0)
        ON CONFLICT DO UPDATE SET n_kept = n_kept + 1;
END;
CREATE TRIGGER credentials_out AFTER DELETE ON credentials BEGIN
    UPDATE tallies SET n_kept = n_kept - 1 WHERE subject = 'credentials of owner' AND part = old.owner;
END;
