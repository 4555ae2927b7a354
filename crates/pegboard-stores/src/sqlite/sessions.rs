//! Resumable sessions, in SQLite.

use std::time::SystemTime;

use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError, StoreFuture};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::time::{from_millis, millis};
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, owner_filter, sql_limit};
use crate::limits::SessionLimits;

impl SessionStore for Database {
    fn get(&self, owner: Owner, id: String, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT id, name, owner, workspace, created_at, used_at, expires_at FROM sessions \
                 WHERE owner = ?1 AND id = ?2 AND expires_at > ?3",
            )?;
            Ok(select.query_row((owner.as_str(), &id, millis(now)), session_from_row).optional()?)
        })
    }

    fn put(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, ()> {
        let limits = self.limits.sessions;
        self.run_to_completion(move |connection| {
            // Sessions are written at each use; losing the last timestamp does no harm.
            let change = begin(connection, Durability::Process)?;
            drop_expired(&change, now)?;
            insert(&change, limits, &session)?;
            Ok(change.commit()?)
        })
    }

    fn create(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, bool> {
        let limits = self.limits.sessions;
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::PowerLoss)?;
            drop_expired(&change, now)?;
            let is_new = !exists(&change, &session.owner, &session.id)?;
            if is_new {
                insert(&change, limits, &session)?;
            }
            change.commit()?;
            Ok(is_new)
        })
    }

    fn find(&self, handle: SessionHandle, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT s.id, s.name, s.owner, s.workspace, s.created_at, s.used_at, s.expires_at \
                 FROM session_handles h JOIN sessions s ON s.owner = h.owner AND s.id = h.session_id \
                 WHERE h.owner = ?1 AND h.workspace = ?2 AND h.name = ?3 AND s.expires_at > ?4",
            )?;
            let key = (handle.owner.as_str(), &handle.workspace, &handle.name, millis(now));
            Ok(select.query_row(key, session_from_row).optional()?)
        })
    }

    fn bind(&self, handle: SessionHandle, id: String, now: SystemTime) -> StoreFuture<'_, String> {
        let limits = self.limits.sessions;
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::PowerLoss)?;
            drop_expired(&change, now)?;
            let answer = bind_handle(&change, limits, &handle, id);
            // Expired sessions are removed even if the handle is refused.
            change.commit()?;
            answer
        })
    }

    fn remove(&self, owner: Owner, id: String) -> StoreFuture<'_, bool> {
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::PowerLoss)?;
            let n_removed = change
                .prepare_cached("DELETE FROM sessions WHERE owner = ?1 AND id = ?2")?
                .execute((owner.as_str(), &id))?;
            change.commit()?;
            Ok(n_removed > 0)
        })
    }

    fn list(&self, scope: OwnerScope, limit: usize, now: SystemTime) -> StoreFuture<'_, Vec<SessionRecord>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT id, name, owner, workspace, created_at, used_at, expires_at FROM sessions \
                 WHERE expires_at > ?1 AND (?2 IS NULL OR owner = ?2) \
                 ORDER BY used_at DESC, owner DESC, id DESC LIMIT ?3",
            )?;
            let key = (millis(now), owner_filter(&scope), sql_limit(limit));
            let found = select.query_map(key, session_from_row)?;
            Ok(found.collect::<Result<_, _>>()?)
        })
    }
}

fn session_from_row(row: &Row<'_>) -> rusqlite::Result<SessionRecord> {
    Ok(SessionRecord {
        id: row.get(0)?,
        name: row.get(1)?,
        owner: row.get::<_, String>(2)?.into(),
        workspace: row.get(3)?,
        created: from_millis(row.get(4)?),
        used: from_millis(row.get(5)?),
        expires: from_millis(row.get(6)?),
    })
}

fn exists(connection: &Connection, owner: &Owner, id: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM sessions WHERE owner = ?1 AND id = ?2")?
        .exists((owner.as_str(), id))
}

/// Removes expired sessions, and with them their handles.
fn drop_expired(change: &Transaction<'_>, now: SystemTime) -> rusqlite::Result<()> {
    change.prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?.execute([millis(now)])?;
    Ok(())
}

/// Inserts or replaces a session; its handles stay.
fn insert(change: &Transaction<'_>, limits: SessionLimits, session: &SessionRecord) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "INSERT INTO sessions (id, name, owner, workspace, created_at, used_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
             ON CONFLICT (owner, id) DO UPDATE SET name = excluded.name, workspace = excluded.workspace, created_at = excluded.created_at, used_at = excluded.used_at, \
             expires_at = excluded.expires_at",
        )?
        .execute((
            &session.id,
            &session.name,
            session.owner.as_str(),
            &session.workspace,
            millis(session.created),
            millis(session.used),
            millis(session.expires),
        ))?;
    let mut drop_oldest = change.prepare_cached(
        "DELETE FROM sessions WHERE (owner, id) = (SELECT owner, id FROM sessions ORDER BY used_at, owner, id LIMIT 1)",
    )?;
    while UsageCounter::Sessions.usage(change)?.n_entries > limits.max_sessions
        && drop_oldest.execute(())? > 0
    {}
    Ok(())
}

/// Binds a handle to `id`, unless it is bound already; returns the bound id.
fn bind_handle(
    change: &Transaction<'_>,
    limits: SessionLimits,
    handle: &SessionHandle,
    id: String,
) -> JobResult<String> {
    let key = (handle.owner.as_str(), &handle.workspace, &handle.name);
    let mut select = change.prepare_cached(
        "SELECT session_id FROM session_handles WHERE owner = ?1 AND workspace = ?2 AND name = ?3",
    )?;
    if let Some(bound) = select.query_row(key, |row| row.get(0)).optional()? {
        return Ok(bound);
    }
    if !exists(change, &handle.owner, &id)? {
        // Otherwise two callers could each believe that theirs won.
        let reason = "cannot bind the handle: the session does not exist".to_owned();
        return Err(StoreError::Failed { reason }.into());
    }
    let n_handles: i64 = change
        .prepare_cached("SELECT count(*) FROM session_handles WHERE owner = ?1 AND session_id = ?2")?
        .query_row((key.0, &id), |row| row.get(0))?;
    limits.admit_handle(u64::try_from(n_handles).unwrap_or_default())?;
    change
        .prepare_cached(
            "INSERT INTO session_handles (owner, workspace, name, session_id) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute((key.0, key.1, key.2, &id))?;
    Ok(id)
}
