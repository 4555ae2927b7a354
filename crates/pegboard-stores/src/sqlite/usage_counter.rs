//! Precomputed counts and sizes of stored entries.

use pegboard_core::store::StoreUsage;
use rusqlite::{Connection, OptionalExtension};

/// A count maintained by the triggers of the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum UsageCounter<'a> {
    Cache,
    Outputs,
    OutputsOfSession(&'a str),
    Sessions,
    Leases,
    LeasesOfQueue(&'a str),
    Catalogue,
}

impl UsageCounter<'_> {
    /// Returns the number and size of entries, expired or not.
    pub(super) fn usage(self, connection: &Connection) -> rusqlite::Result<StoreUsage> {
        let (subject, part) = match self {
            Self::Cache => ("cache", ""),
            Self::Outputs => ("outputs", ""),
            Self::OutputsOfSession(session) => ("outputs of session", session),
            Self::Sessions => ("sessions", ""),
            Self::Leases => ("leases", ""),
            Self::LeasesOfQueue(queue) => ("leases of queue", queue),
            Self::Catalogue => ("catalogue", ""),
        };
        let mut select = connection
            .prepare_cached("SELECT n_kept, n_bytes FROM tallies WHERE subject = ?1 AND part = ?2")?;
        let tally = select.query_row((subject, part), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (n_kept, n_bytes): (i64, i64) = tally.unwrap_or_default();
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(StoreUsage { n_entries: number(n_kept), n_bytes: number(n_bytes) })
    }
}
