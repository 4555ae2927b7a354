//! Answers that may be given again.

use std::time::SystemTime;

use pegboard_core::store::{CacheKey, CacheStore, CachedAnswer, Stored};
use rusqlite::{Connection, OptionalExtension, Row};

use super::tally::Tally;
use super::time::{millis, moment};
use super::{Answer, Database, Outlives, begin, count};
use crate::limits::{CacheLimits, total_len};

impl CacheStore for Database {
    fn get(&self, key: CacheKey, now: SystemTime) -> Stored<'_, Option<CachedAnswer>> {
        self.ask(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT tool_name, created_at, expires_at, payload FROM cache \
                 WHERE key_hash = ?1 AND expires_at > ?2",
            )?;
            Ok(select.query_row((key.0, millis(now)), answer).optional()?)
        })
    }

    fn put(&self, key: CacheKey, answer: CachedAnswer, now: SystemTime) -> Stored<'_, ()> {
        let limits = self.limits.cache;
        self.tell(move |connection| keep(connection, limits, key, &answer, now))
    }

    fn clear(&self) -> Stored<'_, ()> {
        self.tell(|connection| {
            let change = begin(connection, Outlives::Process)?;
            change.prepare_cached("DELETE FROM cache")?.execute(())?;
            Ok(change.commit()?)
        })
    }
}

fn answer(row: &Row<'_>) -> rusqlite::Result<CachedAnswer> {
    Ok(CachedAnswer {
        tool: row.get(0)?,
        made: moment(row.get(1)?),
        expires: moment(row.get(2)?),
        body: row.get::<_, Vec<u8>>(3)?.into(),
    })
}

fn keep(
    connection: &mut Connection,
    limits: CacheLimits,
    key: CacheKey,
    answer: &CachedAnswer,
    now: SystemTime,
) -> Answer<()> {
    let change = begin(connection, Outlives::Process)?;
    // Even if the new answer is not kept, the one before it is no longer true.
    change
        .prepare_cached("DELETE FROM cache WHERE expires_at <= ?1 OR key_hash = ?2")?
        .execute((millis(now), key.0))?;
    let n_bytes = total_len([answer.body.len(), answer.tool.len()]);
    if n_bytes <= limits.max_entry_bytes && answer.expires > now {
        change
            .prepare_cached(
                "INSERT INTO cache (key_hash, tool_name, payload_bytes, created_at, expires_at, payload) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                key.0,
                &answer.tool,
                count(n_bytes),
                millis(answer.made),
                millis(answer.expires),
                answer.body.as_ref(),
            ))?;
        let mut drop_oldest = change.prepare_cached(
            "DELETE FROM cache WHERE key_hash = (SELECT key_hash FROM cache ORDER BY created_at, key_hash LIMIT 1)",
        )?;
        while limits.are_exceeded_by(Tally::Cache.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    }
    Ok(change.commit()?)
}
