//! What was done, for people and models that look back.

use pegboard_core::store::{Stored, TraceQuery, TraceRecord, TraceStore};
use rusqlite::{Connection, Row};

use super::tally::Tally;
use super::{Answer, Database, Outlives, begin, count, limit};
use crate::limits::TraceLimits;
use crate::trace_text::TraceText;

impl TraceStore for Database {
    fn append(&self, record: TraceRecord) -> Stored<'_, ()> {
        let limits = self.limits.traces;
        self.tell(move |connection| {
            let text = TraceText::new(record, limits)?;
            keep(connection, limits, &text)
        })
    }

    fn find(&self, query: TraceQuery) -> Stored<'_, Vec<TraceRecord>> {
        self.ask(move |connection| {
            // What is not asked for is left out of the question, so that the index for the rest is used.
            let workspace = query.workspace.as_ref().map_or("?1 IS NULL", |_| "workspace_id = ?1");
            let session = query.session.as_ref().map_or("?2 IS NULL", |_| "session_id = ?2");
            let mut select = connection.prepare_cached(&format!(
                "SELECT workspace_id, session_id, kind, content, done_at, metadata FROM traces \
                 WHERE {workspace} AND {session} ORDER BY done_at DESC, id DESC LIMIT ?3"
            ))?;
            let found = select.query_map((&query.workspace, &query.session, limit(query.n_most)), text)?;
            found.map(|text| Ok(text?.into_record()?)).collect()
        })
    }
}

fn text(row: &Row<'_>) -> rusqlite::Result<TraceText> {
    Ok(TraceText {
        workspace: row.get(0)?,
        session: row.get(1)?,
        kind: row.get(2)?,
        content: row.get(3)?,
        timestamp: u64::try_from(row.get::<_, i64>(4)?).unwrap_or_default(),
        metadata: row.get(5)?,
    })
}

fn keep(connection: &mut Connection, limits: TraceLimits, text: &TraceText) -> Answer<()> {
    let change = begin(connection, Outlives::Process)?;
    change
        .prepare_cached(
            "INSERT INTO traces (workspace_id, session_id, kind, done_at, n_bytes, content, metadata) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            &text.workspace,
            &text.session,
            &text.kind,
            count(text.timestamp),
            count(text.n_bytes()),
            &text.content,
            &text.metadata,
        ))?;
    let mut drop_oldest = change.prepare_cached(
        "DELETE FROM traces WHERE id = (SELECT id FROM traces ORDER BY done_at, id LIMIT 1)",
    )?;
    while limits.are_exceeded_by(Tally::Traces.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    drop(drop_oldest);
    Ok(change.commit()?)
}
