//! Calls that have ended.

use std::time::{Duration, SystemTime};

use pegboard_core::store::{CallSummary, HistoryQuery, HistoryStore, PastCall, PastSession, Stored};
use rusqlite::{Connection, OptionalExtension, Row};

use super::tally::Tally;
use super::time::{millis, moment};
use super::{Answer, Database, Outlives, begin, count, limit};
use crate::limits::{HistoryLimits, past_call_len};

/// What a summary is read from.
const COLUMNS: &str = "id, session, owner, tool_name, error, started_at, duration_us";

impl HistoryStore for Database {
    fn add(&self, calls: Vec<PastCall>, now: SystemTime) -> Stored<'_, ()> {
        let limits = self.limits.history;
        self.tell(move |connection| {
            limits.admit(&calls)?;
            keep(connection, limits, &calls, now)
        })
    }

    fn get(&self, id: String, now: SystemTime) -> Stored<'_, Option<PastCall>> {
        self.ask(move |connection| {
            let mut select = connection.prepare_cached(&format!(
                "SELECT {COLUMNS}, expires_at, body FROM history WHERE id = ?1 AND expires_at > ?2"
            ))?;
            let call = select.query_row((&id, millis(now)), |row| {
                let (expires, body): (i64, Vec<u8>) = (row.get(7)?, row.get(8)?);
                Ok(PastCall { summary: summary(row)?, expires: moment(expires), body: body.into() })
            });
            Ok(call.optional()?)
        })
    }

    fn calls(&self, query: HistoryQuery, now: SystemTime) -> Stored<'_, Vec<CallSummary>> {
        self.ask(move |connection| {
            // What is not asked for is left out of the question, so that the index for the rest is used.
            let session = query.session.as_ref().map_or("?2 IS NULL", |_| "session = ?2");
            let owner = query.owner.as_ref().map_or("?3 IS NULL", |_| "owner = ?3");
            let id = query.id_prefix.as_ref().map_or("?4 IS ?5", |_| "id >= ?4 AND substr(id, 1, ?5) = ?4");
            let n_characters = query.id_prefix.as_ref().map(|prefix| limit(prefix.chars().count()));
            let mut select = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM history WHERE expires_at > ?1 AND {session} AND {owner} AND {id} \
                 ORDER BY started_at DESC, id DESC LIMIT ?6"
            ))?;
            let HistoryQuery { id_prefix, session, owner, n_most } = &query;
            let asked = (millis(now), session, owner, id_prefix, n_characters, limit(*n_most));
            let found = select.query_map(asked, summary)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn sessions(
        &self,
        owner: Option<String>,
        n_most: usize,
        now: SystemTime,
    ) -> Stored<'_, Vec<PastSession>> {
        self.ask(move |connection| {
            let wanted = owner.as_ref().map_or("?2 IS NULL", |_| "owner = ?2");
            let mut select = connection.prepare_cached(&format!(
                "SELECT session, owner, min(started_at), max(started_at), count(*), count(error), max(id) \
                 FROM history WHERE expires_at > ?1 AND {wanted} GROUP BY session, owner \
                 ORDER BY 4 DESC, 7 DESC LIMIT ?3"
            ))?;
            let found = select.query_map((millis(now), &owner, limit(n_most)), session)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }
}

fn summary(row: &Row<'_>) -> rusqlite::Result<CallSummary> {
    let micros = u64::try_from(row.get::<_, i64>(6)?).unwrap_or_default();
    Ok(CallSummary {
        id: row.get(0)?,
        session: row.get(1)?,
        owner: row.get(2)?,
        tool: row.get(3)?,
        error: row.get(4)?,
        started: moment(row.get(5)?),
        duration: Duration::from_micros(micros),
    })
}

fn session(row: &Row<'_>) -> rusqlite::Result<PastSession> {
    let number =
        |at: usize| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(at)?).unwrap_or_default());
    Ok(PastSession {
        id: row.get(0)?,
        owner: row.get(1)?,
        started: moment(row.get(2)?),
        used: moment(row.get(3)?),
        n_calls: number(4)?,
        n_failed: number(5)?,
    })
}

fn keep(
    connection: &mut Connection,
    limits: HistoryLimits,
    calls: &[PastCall],
    now: SystemTime,
) -> Answer<()> {
    let change = begin(connection, Outlives::Process)?;
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
                count(micros),
                count(past_call_len(call)),
                millis(call.expires),
                call.body.as_ref(),
            ))?;
        }
        let mut drop_oldest = change.prepare_cached(
            "DELETE FROM history WHERE id = (SELECT id FROM history ORDER BY started_at, id LIMIT 1)",
        )?;
        while limits.are_exceeded_by(Tally::History.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    }
    Ok(change.commit()?)
}
