//! Leases of queue slots, shared by several processes, in SQLite.

use std::time::SystemTime;

use pegboard_core::store::{LeaseId, SlotStore, StoreFuture};
use rusqlite::Connection;
use uuid::Uuid;

use super::time::millis;
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin};
use crate::limits::SlotLimits;

impl SlotStore for Database {
    fn lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> StoreFuture<'_, Option<LeaseId>> {
        let limits = self.limits.slots;
        // A lease without a waiting caller would only block the slot until it expires.
        self.run_cancellable(move |connection| {
            let request = LeaseRequest { queue, capacity, expires };
            try_lease(connection, limits, &request, now)
        })
    }

    fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> StoreFuture<'_, bool> {
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::Process)?;
            let n_renewed = change
                .prepare_cached("UPDATE leases SET expires_at = ?1 WHERE id = ?2 AND expires_at > ?3")?
                .execute((millis(expires), &lease.0, millis(now)))?;
            change.commit()?;
            Ok(n_renewed > 0)
        })
    }

    fn release(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::Process)?;
            change.prepare_cached("DELETE FROM leases WHERE id = ?1")?.execute([&lease.0])?;
            Ok(change.commit()?)
        })
    }
}

/// A request for a slot lease.
struct LeaseRequest {
    queue: String,
    capacity: usize,
    expires: SystemTime,
}

fn try_lease(
    connection: &mut Connection,
    limits: SlotLimits,
    request: &LeaseRequest,
    now: SystemTime,
) -> JobResult<Option<LeaseId>> {
    let change = begin(connection, Durability::Process)?;
    change.prepare_cached("DELETE FROM leases WHERE expires_at <= ?1")?.execute([millis(now)])?;
    let n_leased = UsageCounter::LeasesOfQueue(&request.queue).usage(&change)?.n_entries;
    if n_leased >= u64::try_from(request.capacity).unwrap_or(u64::MAX) {
        change.commit()?;
        return Ok(None);
    }
    limits.admit(UsageCounter::Leases.usage(&change)?.n_entries)?;
    let id = Uuid::new_v4().to_string();
    change.prepare_cached("INSERT INTO leases (id, queue, expires_at) VALUES (?1, ?2, ?3)")?.execute((
        &id,
        &request.queue,
        millis(request.expires),
    ))?;
    change.commit()?;
    Ok(Some(LeaseId(id)))
}
