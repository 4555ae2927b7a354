//! Encrypted credentials of principals, in SQLite.

use std::time::SystemTime;

use bytes::Bytes;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CredentialKey, CredentialStore, StoreFuture};
use rusqlite::{Connection, OptionalExtension};

use super::time::millis;
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin};
use crate::limits::{CredentialLimits, total_len};

impl CredentialStore for Database {
    fn load(&self, owner: Owner, key: CredentialKey) -> StoreFuture<'_, Option<Bytes>> {
        self.run_cancellable(move |connection| {
            let mut select =
                connection.prepare_cached("SELECT sealed FROM credentials WHERE owner = ?1 AND key = ?2")?;
            let found =
                select.query_row((owner.as_str(), &key.0), |row| row.get::<_, Vec<u8>>(0)).optional()?;
            Ok(found.map(Bytes::from))
        })
    }

    fn save(&self, owner: Owner, key: CredentialKey, sealed: Bytes, now: SystemTime) -> StoreFuture<'_, ()> {
        let limits = self.limits.credentials;
        self.run_to_completion(move |connection| {
            insert(connection, limits, &SealedCredential { owner, key, sealed }, now)
        })
    }

    fn remove(&self, owner: Owner, key: CredentialKey) -> StoreFuture<'_, bool> {
        self.run_to_completion(move |connection| {
            let change = begin(connection, Durability::PowerLoss)?;
            let n_removed = change
                .prepare_cached("DELETE FROM credentials WHERE owner = ?1 AND key = ?2")?
                .execute((owner.as_str(), &key.0))?;
            change.commit()?;
            Ok(n_removed > 0)
        })
    }

    fn list(&self, scope: OwnerScope, limit: usize) -> StoreFuture<'_, Vec<(Owner, CredentialKey)>> {
        self.run_cancellable(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT owner, key FROM credentials WHERE ?1 IS NULL OR owner = ?1 ORDER BY owner, key LIMIT ?2",
            )?;
            let owner = scope.only().map(Owner::as_str);
            let rows = select.query_map((owner, i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
                Ok((Owner::from_stored(&row.get::<_, String>(0)?), CredentialKey(row.get(1)?)))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

/// A credential as it is stored.
struct SealedCredential {
    owner: Owner,
    key: CredentialKey,
    sealed: Bytes,
}

fn insert(
    connection: &mut Connection,
    limits: CredentialLimits,
    credential: &SealedCredential,
    now: SystemTime,
) -> JobResult<()> {
    let SealedCredential { owner, key, sealed } = credential;
    let change = begin(connection, Durability::PowerLoss)?;
    change
        .prepare_cached("DELETE FROM credentials WHERE owner = ?1 AND key = ?2")?
        .execute((owner.as_str(), &key.0))?;
    let n_entries = UsageCounter::CredentialsOf(owner.as_str()).usage(&change)?.n_entries;
    // A transaction that is not committed leaves the previous credential in place.
    limits.admit(n_entries, total_len([key.0.len(), sealed.len()]))?;
    change
        .prepare_cached("INSERT INTO credentials (owner, key, saved_at, sealed) VALUES (?1, ?2, ?3, ?4)")?
        .execute((owner.as_str(), &key.0, millis(now), sealed.as_ref()))?;
    Ok(change.commit()?)
}
