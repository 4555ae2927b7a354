//! Precomputed counts and sizes of stored entries.

use pegboard_core::store::StoreUsage;
use rusqlite::{Connection, OptionalExtension};

use super::sql_integer;

/// A count, maintained by the triggers of the schema unless noted.
#[derive(Clone, Copy, Debug)]
pub(super) enum UsageCounter<'a> {
    Cache,
    Outputs,
    OutputsOfSession(&'a str),
    Sessions,
    Leases,
    LeasesOfQueue(&'a str),
    Catalogue,
    CredentialsOf(&'a str),
    /// Entries of the call log of one kind. Set by its writer, not by a trigger.
    Log(&'a str),
}

impl UsageCounter<'_> {
    /// Returns the number and size of entries, expired or not.
    pub(super) fn usage(self, connection: &Connection) -> rusqlite::Result<StoreUsage> {
        let (subject, part) = self.key();
        let mut select = connection
            .prepare_cached("SELECT n_kept, n_bytes FROM tallies WHERE subject = ?1 AND part = ?2")?;
        let tally = select.query_row((subject, part), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (n_kept, n_bytes): (i64, i64) = tally.unwrap_or_default();
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(StoreUsage { n_entries: number(n_kept), n_bytes: number(n_bytes) })
    }

    /// Sets the number and size of entries.
    pub(super) fn set(self, connection: &Connection, usage: StoreUsage) -> rusqlite::Result<()> {
        let (subject, part) = self.key();
        let mut upsert = connection.prepare_cached(
            "INSERT INTO tallies VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO UPDATE SET n_kept = excluded.n_kept, n_bytes = excluded.n_bytes",
        )?;
        upsert.execute((subject, part, sql_integer(usage.n_entries), sql_integer(usage.n_bytes)))?;
        Ok(())
    }
}

impl<'a> UsageCounter<'a> {
    /// Returns the key of its row.
    fn key(self) -> (&'static str, &'a str) {
        match self {
            Self::Cache => ("cache", ""),
            Self::Outputs => ("outputs", ""),
            Self::OutputsOfSession(session) => ("outputs of session", session),
            Self::Sessions => ("sessions", ""),
            Self::Leases => ("leases", ""),
            Self::LeasesOfQueue(queue) => ("leases of queue", queue),
            Self::Catalogue => ("catalogue", ""),
            Self::CredentialsOf(owner) => ("credentials of owner", owner),
            Self::Log(kind) => ("log", kind),
        }
    }
}
