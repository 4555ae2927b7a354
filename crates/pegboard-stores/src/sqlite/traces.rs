//! Trace records, in SQLite.

use pegboard_core::store::{StoreFuture, TraceQuery, TraceRecord, TraceStore};
use rusqlite::{Connection, Row};

use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, sql_integer, sql_limit};
use crate::limits::TraceLimits;
use crate::stored_trace::StoredTrace;

impl TraceStore for Database {
    fn append(&self, record: TraceRecord) -> StoreFuture<'_, ()> {
        let limits = self.limits.traces;
        self.run_to_completion(move |connection| {
            let trace = StoredTrace::new(record, limits)?;
            insert(connection, limits, &trace)
        })
    }

    fn find(&self, query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        self.run_cancellable(move |connection| {
            // Absent conditions are left out of the query, so that the index for the rest is used.
            let workspace = query.workspace.as_ref().map_or("?1 IS NULL", |_| "workspace_id = ?1");
            let session = query.session.as_ref().map_or("?2 IS NULL", |_| "session_id = ?2");
            let mut select = connection.prepare_cached(&format!(
                "SELECT workspace_id, session_id, kind, content, done_at, metadata FROM traces \
                 WHERE {workspace} AND {session} ORDER BY done_at DESC, id DESC LIMIT ?3"
            ))?;
            let found = select
                .query_map((&query.workspace, &query.session, sql_limit(query.limit)), trace_from_row)?;
            found.map(|trace| Ok(trace?.into_record()?)).collect()
        })
    }
}

fn trace_from_row(row: &Row<'_>) -> rusqlite::Result<StoredTrace> {
    Ok(StoredTrace {
        workspace: row.get(0)?,
        session: row.get(1)?,
        kind: row.get(2)?,
        content: row.get(3)?,
        timestamp: u64::try_from(row.get::<_, i64>(4)?).unwrap_or_default(),
        metadata: row.get(5)?,
    })
}

fn insert(connection: &mut Connection, limits: TraceLimits, trace: &StoredTrace) -> JobResult<()> {
    let change = begin(connection, Durability::Process)?;
    change
        .prepare_cached(
            "INSERT INTO traces (workspace_id, session_id, kind, done_at, n_bytes, content, metadata) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            &trace.workspace,
            &trace.session,
            &trace.kind,
            sql_integer(trace.timestamp),
            sql_integer(trace.n_bytes()),
            &trace.content,
            &trace.metadata,
        ))?;
    let mut drop_oldest = change.prepare_cached(
        "DELETE FROM traces WHERE id = (SELECT id FROM traces ORDER BY done_at, id LIMIT 1)",
    )?;
    while limits.are_exceeded_by(UsageCounter::Traces.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    drop(drop_oldest);
    Ok(change.commit()?)
}
