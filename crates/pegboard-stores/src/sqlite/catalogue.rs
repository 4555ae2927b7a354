//! Last known listings of servers, in SQLite.

use std::time::SystemTime;

use bytes::Bytes;
use pegboard_core::store::{CatalogueStore, StoreFuture};
use rusqlite::{Connection, OptionalExtension};

use super::time::millis;
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, sql_integer};
use crate::limits::{CatalogueLimits, total_len};

impl CatalogueStore for Database {
    fn load(&self, fingerprint: String) -> StoreFuture<'_, Option<Bytes>> {
        self.run_cancellable(move |connection| {
            let mut select =
                connection.prepare_cached("SELECT offer FROM catalogue WHERE fingerprint = ?1")?;
            let found = select.query_row((fingerprint,), |row| row.get::<_, Vec<u8>>(0)).optional()?;
            Ok(found.map(Bytes::from))
        })
    }

    fn save(&self, fingerprint: String, offer: Bytes, now: SystemTime) -> StoreFuture<'_, ()> {
        let limits = self.limits.catalogue;
        self.run_to_completion(move |connection| insert(connection, limits, &fingerprint, &offer, now))
    }
}

fn insert(
    connection: &mut Connection,
    limits: CatalogueLimits,
    fingerprint: &str,
    offer: &Bytes,
    now: SystemTime,
) -> JobResult<()> {
    let change = begin(connection, Durability::Process)?;
    change.prepare_cached("DELETE FROM catalogue WHERE fingerprint = ?1")?.execute((fingerprint,))?;
    let n_bytes = total_len([fingerprint.len(), offer.len()]);
    change
        .prepare_cached(
            "INSERT INTO catalogue (fingerprint, n_bytes, saved_at, offer) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute((fingerprint, sql_integer(n_bytes), millis(now), offer.as_ref()))?;
    let mut drop_oldest = change.prepare_cached(
        "DELETE FROM catalogue WHERE fingerprint = \
         (SELECT fingerprint FROM catalogue ORDER BY saved_at, fingerprint LIMIT 1)",
    )?;
    while limits.are_exceeded_by(UsageCounter::Catalogue.usage(&change)?) && drop_oldest.execute(())? > 0 {}
    drop(drop_oldest);
    Ok(change.commit()?)
}
