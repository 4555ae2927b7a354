//! Outputs too large to return directly, in SQLite.

use std::time::SystemTime;

use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{
    OutputHandle, OutputQuery, OutputStore, OutputSummary, StoreFuture, StoreUsage, StoredOutput,
};
use rusqlite::{Connection, OptionalExtension, Row};

use super::time::{from_millis, millis};
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, owner_filter, sql_integer, sql_limit};
use crate::limits::{OutputLimits, output_len};

impl OutputStore for Database {
    fn put(&self, handle: OutputHandle, output: StoredOutput, now: SystemTime) -> StoreFuture<'_, ()> {
        let limits = self.limits.outputs;
        // A handle without a waiting caller is never given out, so its output is not needed.
        self.run_cancellable(move |connection| {
            drop_expired(connection, now)?;
            insert(connection, limits, &handle, &output)
        })
    }

    fn get(
        &self,
        scope: OwnerScope,
        handle: OutputHandle,
        now: SystemTime,
    ) -> StoreFuture<'_, Option<StoredOutput>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT session, owner, tool_name, content_type, created_at, expires_at, body FROM outputs \
                 WHERE handle = ?1 AND expires_at > ?2 AND (?3 IS NULL OR owner = ?3)",
            )?;
            let key = (&handle.0, millis(now), owner_filter(&scope));
            Ok(select.query_row(key, output_from_row).optional()?)
        })
    }

    fn list(&self, query: OutputQuery, now: SystemTime) -> StoreFuture<'_, Vec<OutputSummary>> {
        self.run_cancellable(move |connection| {
            // Absent conditions are left out of the query, so that the index for the rest is used.
            let owner = query.scope.only().map_or("?2 IS NULL", |_| "owner = ?2");
            let mut select = connection.prepare_cached(&format!(
                "SELECT handle, session, owner, tool_name, content_type, created_at, expires_at, length(body) \
                 FROM outputs WHERE expires_at > ?1 AND {owner} \
                 ORDER BY created_at DESC, handle DESC LIMIT ?3"
            ))?;
            let key = (millis(now), owner_filter(&query.scope), sql_limit(query.limit));
            let found = select.query_map(key, summary_from_row)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn remove(&self, scope: OwnerScope, handle: OutputHandle) -> StoreFuture<'_, bool> {
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::Process)?;
            let n_removed = change
                .prepare_cached("DELETE FROM outputs WHERE handle = ?1 AND (?2 IS NULL OR owner = ?2)")?
                .execute((&handle.0, owner_filter(&scope)))?;
            change.commit()?;
            Ok(n_removed > 0)
        })
    }

    fn remove_session(&self, owner: Owner, session: String) -> StoreFuture<'_, ()> {
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::Process)?;
            change
                .prepare_cached("DELETE FROM outputs WHERE session = ?1 AND owner = ?2")?
                .execute((&session, owner.as_str()))?;
            Ok(change.commit()?)
        })
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        self.run_cancellable(|connection| Ok(UsageCounter::Outputs.usage(connection)?))
    }
}

fn output_from_row(row: &Row<'_>) -> rusqlite::Result<StoredOutput> {
    Ok(StoredOutput {
        session: row.get(0)?,
        owner: row.get::<_, String>(1)?.into(),
        tool: row.get(2)?,
        content_type: row.get(3)?,
        created: from_millis(row.get(4)?),
        expires: from_millis(row.get(5)?),
        body: row.get::<_, Vec<u8>>(6)?.into(),
    })
}

fn summary_from_row(row: &Row<'_>) -> rusqlite::Result<OutputSummary> {
    Ok(OutputSummary {
        handle: OutputHandle(row.get(0)?),
        session: row.get(1)?,
        owner: row.get::<_, String>(2)?.into(),
        tool: row.get(3)?,
        content_type: row.get(4)?,
        created: from_millis(row.get(5)?),
        expires: from_millis(row.get(6)?),
        n_bytes: u64::try_from(row.get::<_, i64>(7)?).unwrap_or_default(),
    })
}

/// Removes expired outputs, even if the new output turns out not to fit.
fn drop_expired(connection: &mut Connection, now: SystemTime) -> JobResult<()> {
    let change = begin(connection, Durability::Process)?;
    change.prepare_cached("DELETE FROM outputs WHERE expires_at <= ?1")?.execute([millis(now)])?;
    Ok(change.commit()?)
}

fn insert(
    connection: &mut Connection,
    limits: OutputLimits,
    handle: &OutputHandle,
    output: &StoredOutput,
) -> JobResult<()> {
    let change = begin(connection, Durability::PowerLoss)?;
    // Without a commit all of this is rolled back, so a refused output leaves the previous one unchanged.
    change
        .prepare_cached("DELETE FROM outputs WHERE handle = ?1 AND owner = ?2")?
        .execute((&handle.0, output.owner.as_str()))?;
    let n_bytes = output_len(output);
    let session = UsageCounter::OutputsOfSession(&output.session).usage(&change)?;
    limits.admit(UsageCounter::Outputs.usage(&change)?, session, n_bytes)?;
    change
        .prepare_cached(
            "INSERT INTO outputs \
             (handle, session, owner, tool_name, content_type, n_bytes, created_at, expires_at, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            &handle.0,
            &output.session,
            output.owner.as_str(),
            &output.tool,
            &output.content_type,
            sql_integer(n_bytes),
            millis(output.created),
            millis(output.expires),
            output.body.as_ref(),
        ))?;
    Ok(change.commit()?)
}
