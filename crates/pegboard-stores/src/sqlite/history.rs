//! Past calls, in SQLite.

use std::time::{Duration, SystemTime};

use pegboard_core::store::{
    CallSummary, FinishedCall, HistoryQuery, HistoryStore, SessionSummary, StoreFuture,
};
use rusqlite::{Connection, OptionalExtension, Row};

use super::time::{from_millis, millis};
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, sql_integer, sql_limit};
use crate::limits::{HistoryLimits, past_call_len};

/// Columns of a call summary.
const SUMMARY_COLUMNS: &str = "id, session, owner, tool_name, error, started_at, duration_us";

impl HistoryStore for Database {
    fn add(&self, calls: Vec<FinishedCall>, now: SystemTime) -> StoreFuture<'_, ()> {
        let limits = self.limits.history;
        self.run_to_completion(move |connection| {
            limits.admit(&calls)?;
            insert(connection, limits, &calls, now)
        })
    }

    fn get(&self, id: String, now: SystemTime) -> StoreFuture<'_, Option<FinishedCall>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(&format!(
                "SELECT {SUMMARY_COLUMNS}, expires_at, body FROM history WHERE id = ?1 AND expires_at > ?2"
            ))?;
            let call = select.query_row((&id, millis(now)), |row| {
                let (expires, body): (i64, Vec<u8>) = (row.get(7)?, row.get(8)?);
                Ok(FinishedCall {
                    summary: summary_from_row(row)?,
                    expires: from_millis(expires),
                    body: body.into(),
                })
            });
            Ok(call.optional()?)
        })
    }

    fn calls(&self, query: HistoryQuery, now: SystemTime) -> StoreFuture<'_, Vec<CallSummary>> {
        self.run_cancellable(move |connection| {
            // Absent conditions are left out of the query, so that the index for the rest is used.
            let session = query.session.as_ref().map_or("?2 IS NULL", |_| "session = ?2");
            let owner = query.owner.as_ref().map_or("?3 IS NULL", |_| "owner = ?3");
            let id = query.id_prefix.as_ref().map_or("?4 IS ?5", |_| "id >= ?4 AND substr(id, 1, ?5) = ?4");
            let n_characters = query.id_prefix.as_ref().map(|prefix| sql_limit(prefix.chars().count()));
            let mut select = connection.prepare_cached(&format!(
                "SELECT {SUMMARY_COLUMNS} FROM history WHERE expires_at > ?1 AND {session} AND {owner} AND {id} \
                 ORDER BY started_at DESC, id DESC LIMIT ?6"
            ))?;
            let HistoryQuery { id_prefix, session, owner, limit } = &query;
            let parameters = (millis(now), session, owner, id_prefix, n_characters, sql_limit(*limit));
            let found = select.query_map(parameters, summary_from_row)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn sessions(
        &self,
        owner: Option<String>,
        limit: usize,
        now: SystemTime,
    ) -> StoreFuture<'_, Vec<SessionSummary>> {
        self.run_cancellable(move |connection| {
            let owner_filter = owner.as_ref().map_or("?2 IS NULL", |_| "owner = ?2");
            let mut select = connection.prepare_cached(&format!(
                "SELECT session, owner, min(started_at), max(started_at), count(*), count(error), max(id) \
                 FROM history WHERE expires_at > ?1 AND {owner_filter} GROUP BY session, owner \
                 ORDER BY 4 DESC, 7 DESC LIMIT ?3"
            ))?;
            let found = select.query_map((millis(now), &owner, sql_limit(limit)), session_from_row)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }
}

fn summary_from_row(row: &Row<'_>) -> rusqlite::Result<CallSummary> {
    let micros = u64::try_from(row.get::<_, i64>(6)?).unwrap_or_default();
    Ok(CallSummary {
        id: row.get(0)?,
        session: row.get(1)?,
        owner: row.get(2)?,
        tool: row.get(3)?,
        error: row.get(4)?,
        started: from_millis(row.get(5)?),
        duration: Duration::from_micros(micros),
    })
}

fn session_from_row(row: &Row<'_>) -> rusqlite::Result<SessionSummary> {
    let number =
        |at: usize| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(at)?).unwrap_or_default());
    Ok(SessionSummary {
        id: row.get(0)?,
        owner: row.get(1)?,
        started: from_millis(row.get(2)?),
        used: from_millis(row.get(3)?),
        n_calls: number(4)?,
        n_failed: number(5)?,
    })
}

fn insert(
    connection: &mut Connection,
    limits: HistoryLimits,
    calls: &[FinishedCall],
    now: SystemTime,
) -> JobResult<()> {
    let change = begin(connection, Durability::Process)?;
    change.prepare_cached("DELETE FROM history WHERE expires_at <= ?1")?.execute([millis(now)])?;
    {
        let mut replaced = change.prepare_cached("DELETE FROM history WHERE id = ?1")?;
        let mut insert = change.prepare_cached(
            "INSERT INTO history (id, session, owner, tool_name, error, started_at, duration_us, n_bytes, expires_at, \
             body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        for call in calls {
            let CallSummary { id, session, owner, tool, error, started, duration } = &call.summary;
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            replaced.execute([id])?;
            insert.execute((
                id,
                session,
                owner,
                tool,
                error,
                millis(*started),
                sql_integer(micros),
                sql_integer(past_call_len(call)),
                millis(call.expires),
                call.body.as_ref(),
            ))?;
        }
        let mut drop_oldest = change.prepare_cached(
            "DELETE FROM history WHERE id = (SELECT id FROM history ORDER BY started_at, id LIMIT 1)",
        )?;
        while limits.are_exceeded_by(UsageCounter::History.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    }
    Ok(change.commit()?)
}
