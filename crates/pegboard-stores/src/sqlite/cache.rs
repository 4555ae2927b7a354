//! Cached results, in SQLite.

use std::time::SystemTime;

use pegboard_core::store::{CacheKey, CacheStore, CachedResult, StoreFuture};
use rusqlite::{Connection, OptionalExtension, Row};

use super::time::{from_millis, millis};
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, sql_integer};
use crate::limits::{CacheLimits, total_len};

impl CacheStore for Database {
    fn get(&self, key: CacheKey, now: SystemTime) -> StoreFuture<'_, Option<CachedResult>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT tool_name, created_at, expires_at, payload FROM cache \
                 WHERE key_hash = ?1 AND expires_at > ?2",
            )?;
            Ok(select.query_row((key.0, millis(now)), answer_from_row).optional()?)
        })
    }

    fn put(&self, key: CacheKey, answer: CachedResult, now: SystemTime) -> StoreFuture<'_, ()> {
        let limits = self.limits.cache;
        self.run_to_completion(move |connection| insert(connection, limits, key, &answer, now))
    }

    fn clear(&self) -> StoreFuture<'_, ()> {
        self.run_to_completion(|connection| {
            let change = begin(connection, Durability::Process)?;
            change.prepare_cached("DELETE FROM cache")?.execute(())?;
            Ok(change.commit()?)
        })
    }
}

fn answer_from_row(row: &Row<'_>) -> rusqlite::Result<CachedResult> {
    Ok(CachedResult {
        tool: row.get(0)?,
        created: from_millis(row.get(1)?),
        expires: from_millis(row.get(2)?),
        body: row.get::<_, Vec<u8>>(3)?.into(),
    })
}

fn insert(
    connection: &mut Connection,
    limits: CacheLimits,
    key: CacheKey,
    answer: &CachedResult,
    now: SystemTime,
) -> JobResult<()> {
    let change = begin(connection, Durability::Process)?;
    // Even if the new result is not cached, the previous one is outdated.
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
                sql_integer(n_bytes),
                millis(answer.created),
                millis(answer.expires),
                answer.body.as_ref(),
            ))?;
        let mut drop_oldest = change.prepare_cached(
            "DELETE FROM cache WHERE key_hash = (SELECT key_hash FROM cache ORDER BY created_at, key_hash LIMIT 1)",
        )?;
        while limits.are_exceeded_by(UsageCounter::Cache.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    }
    Ok(change.commit()?)
}
