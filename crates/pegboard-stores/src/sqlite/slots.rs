//! Slots that several processes share.

use std::time::SystemTime;

use pegboard_core::store::{LeaseId, SlotStore, Stored};
use rusqlite::Connection;
use uuid::Uuid;

use super::tally::Tally;
use super::time::millis;
use super::{Answer, Database, Outlives, begin};
use crate::limits::SlotLimits;

impl SlotStore for Database {
    fn lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> Stored<'_, Option<LeaseId>> {
        let limits = self.limits.slots;
        // A lease that nobody waits for would only keep others from the slot until it ends.
        self.ask(move |connection| {
            let wanted = Wanted { queue, capacity, expires };
            lease_one(connection, limits, &wanted, now)
        })
    }

    fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> Stored<'_, bool> {
        self.tell(move |connection| {
            let change = begin(connection, Outlives::Process)?;
            let n_renewed = change
                .prepare_cached("UPDATE leases SET expires_at = ?1 WHERE id = ?2 AND expires_at > ?3")?
                .execute((millis(expires), &lease.0, millis(now)))?;
            change.commit()?;
            Ok(n_renewed > 0)
        })
    }

    fn release(&self, lease: LeaseId) -> Stored<'_, ()> {
        self.tell(move |connection| {
            let change = begin(connection, Outlives::Process)?;
            change.prepare_cached("DELETE FROM leases WHERE id = ?1")?.execute([&lease.0])?;
            Ok(change.commit()?)
        })
    }
}

/// A slot that somebody wants.
struct Wanted {
    queue: String,
    capacity: usize,
    expires: SystemTime,
}

fn lease_one(
    connection: &mut Connection,
    limits: SlotLimits,
    wanted: &Wanted,
    now: SystemTime,
) -> Answer<Option<LeaseId>> {
    let change = begin(connection, Outlives::Process)?;
    change.prepare_cached("DELETE FROM leases WHERE expires_at <= ?1")?.execute([millis(now)])?;
    let n_leased = Tally::LeasesOfQueue(&wanted.queue).usage(&change)?.n_kept;
    if n_leased >= u64::try_from(wanted.capacity).unwrap_or(u64::MAX) {
        change.commit()?;
        return Ok(None);
    }
    limits.admit(Tally::Leases.usage(&change)?.n_kept)?;
    let id = Uuid::new_v4().to_string();
    change.prepare_cached("INSERT INTO leases (id, queue, expires_at) VALUES (?1, ?2, ?3)")?.execute((
        &id,
        &wanted.queue,
        millis(wanted.expires),
    ))?;
    change.commit()?;
    Ok(Some(LeaseId(id)))
}
