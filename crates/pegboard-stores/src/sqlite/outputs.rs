//! Outputs that were too large to hand over.

use std::time::SystemTime;

use pegboard_core::store::{
    OutputHandle, OutputQuery, OutputStore, OutputSummary, Stored, StoredOutput, Usage,
};
use rusqlite::{Connection, OptionalExtension, Row};

use super::tally::Tally;
use super::time::{millis, moment};
use super::{Answer, Database, Outlives, begin, count, limit};
use crate::limits::{OutputLimits, output_len};

impl OutputStore for Database {
    fn put(&self, handle: OutputHandle, output: StoredOutput, now: SystemTime) -> Stored<'_, ()> {
        let limits = self.limits.outputs;
        // A handle that nobody waits for is never given out, so there is no need for its output.
        self.ask(move |connection| {
            drop_expired(connection, now)?;
            keep(connection, limits, &handle, &output)
        })
    }

    fn get(&self, handle: OutputHandle, now: SystemTime) -> Stored<'_, Option<StoredOutput>> {
        self.ask(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT session, principal, tool_name, content_type, created_at, expires_at, body FROM outputs \
                 WHERE handle = ?1 AND expires_at > ?2",
            )?;
            Ok(select.query_row((&handle.0, millis(now)), output).optional()?)
        })
    }

    fn list(&self, query: OutputQuery, now: SystemTime) -> Stored<'_, Vec<OutputSummary>> {
        self.ask(move |connection| {
            // What is not asked for is left out of the question, so that the index for the rest is used.
            let principal = query.principal.as_ref().map_or("?2 IS NULL", |_| "principal = ?2");
            let mut select = connection.prepare_cached(&format!(
                "SELECT handle, session, principal, tool_name, content_type, created_at, expires_at, length(body) \
                 FROM outputs WHERE expires_at > ?1 AND {principal} \
                 ORDER BY created_at DESC, handle DESC LIMIT ?3"
            ))?;
            let found = select.query_map((millis(now), &query.principal, limit(query.n_most)), summary)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn remove(&self, handle: OutputHandle) -> Stored<'_, bool> {
        self.tell(move |connection| {
            let change = begin(connection, Outlives::Process)?;
            let n_removed =
                change.prepare_cached("DELETE FROM outputs WHERE handle = ?1")?.execute([&handle.0])?;
            change.commit()?;
            Ok(n_removed > 0)
        })
    }

    fn remove_session(&self, session: String) -> Stored<'_, ()> {
        self.tell(move |connection| {
            let change = begin(connection, Outlives::Process)?;
            change.prepare_cached("DELETE FROM outputs WHERE session = ?1")?.execute([&session])?;
            Ok(change.commit()?)
        })
    }

    fn usage(&self) -> Stored<'_, Usage> {
        self.ask(|connection| Ok(Tally::Outputs.usage(connection)?))
    }
}

fn output(row: &Row<'_>) -> rusqlite::Result<StoredOutput> {
    Ok(StoredOutput {
        session: row.get(0)?,
        principal: row.get(1)?,
        tool: row.get(2)?,
        content_type: row.get(3)?,
        made: moment(row.get(4)?),
        expires: moment(row.get(5)?),
        body: row.get::<_, Vec<u8>>(6)?.into(),
    })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<OutputSummary> {
    Ok(OutputSummary {
        handle: OutputHandle(row.get(0)?),
        session: row.get(1)?,
        principal: row.get(2)?,
        tool: row.get(3)?,
        content_type: row.get(4)?,
        made: moment(row.get(5)?),
        expires: moment(row.get(6)?),
        n_bytes: u64::try_from(row.get::<_, i64>(7)?).unwrap_or_default(),
    })
}

/// Forgets what has expired, whatever becomes of the output for which there should be room.
fn drop_expired(connection: &mut Connection, now: SystemTime) -> Answer<()> {
    let change = begin(connection, Outlives::Process)?;
    change.prepare_cached("DELETE FROM outputs WHERE expires_at <= ?1")?.execute([millis(now)])?;
    Ok(change.commit()?)
}

fn keep(
    connection: &mut Connection,
    limits: OutputLimits,
    handle: &OutputHandle,
    output: &StoredOutput,
) -> Answer<()> {
    let change = begin(connection, Outlives::PowerLoss)?;
    // Without a commit all of this is undone, so a refused output leaves the one before it as it was.
    change.prepare_cached("DELETE FROM outputs WHERE handle = ?1")?.execute([&handle.0])?;
    let n_bytes = output_len(output);
    let session = Tally::OutputsOfSession(&output.session).usage(&change)?;
    limits.admit(Tally::Outputs.usage(&change)?, session, n_bytes)?;
    change
        .prepare_cached(
            "INSERT INTO outputs \
             (handle, session, principal, tool_name, content_type, n_bytes, created_at, expires_at, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            &handle.0,
            &output.session,
            &output.principal,
            &output.tool,
            &output.content_type,
            count(n_bytes),
            millis(output.made),
            millis(output.expires),
            output.body.as_ref(),
        ))?;
    Ok(change.commit()?)
}
