//! Memory for the data that chains and batches collect: a limit for each call, within one for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Approximate size of a member of an object beside its name and its value.
const MEMBER_BYTES: usize = 64;

/// Limits the memory of collected data. Clones share it.
///
/// ```
/// use pegboard_core::memory::MemoryPool;
///
/// let pool = MemoryPool::new(100);
/// let first = pool.reservation();
/// first.try_grow(80).unwrap();
/// assert!(pool.part(50).reservation().try_grow(30).is_err());
/// drop(first);
/// assert_eq!(pool.n_bytes(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct MemoryPool(Arc<PoolAccount>);

/// Memory with a limit; part of that of its parent.
#[derive(Debug)]
struct PoolAccount {
    max_bytes: usize,
    n_bytes: AtomicUsize,
    parent: Option<MemoryPool>,
}

/// Data that does not fit into a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} KiB do not fit: chains and batches hold {} of at most {} KiB",
    requested.div_ceil(1 << 10),
    used >> 10,
    limit >> 10
)]
pub struct MemoryPoolFull {
    requested: usize,
    used: usize,
    limit: usize,
}

impl Default for MemoryPool {
    /// Creates the pool of one call.
    fn default() -> Self {
        Self::new(Self::CALL_BYTES)
    }
}

impl MemoryPool {
    /// Limit of one call of a client with all calls that it makes: 64 MiB.
    pub const CALL_BYTES: usize = 64 << 20;
    /// Limit of all calls of a runtime: 256 MiB.
    pub const RUNTIME_BYTES: usize = 4 * Self::CALL_BYTES;

    /// Creates a pool of `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(PoolAccount { max_bytes, n_bytes: AtomicUsize::new(0), parent: None }))
    }

    /// Returns a part of this pool with a limit of its own.
    #[must_use]
    pub fn part(&self, max_bytes: usize) -> Self {
        let parent = Some(self.clone());
        Self(Arc::new(PoolAccount { max_bytes, n_bytes: AtomicUsize::new(0), parent }))
    }

    /// Returns the number of reserved bytes.
    pub fn n_bytes(&self) -> usize {
        self.0.n_bytes.load(Ordering::Relaxed)
    }

    /// Returns an empty reservation.
    pub fn reservation(&self) -> PoolReservation {
        PoolReservation { pool: self.clone(), n_bytes: AtomicUsize::new(0) }
    }

    fn reserve(&self, n_bytes: usize) -> Result<(), MemoryPoolFull> {
        let PoolAccount { max_bytes, n_bytes: n_reserved, parent } = &*self.0;
        let grown = |n_used: usize| n_used.checked_add(n_bytes).filter(|sum| sum <= max_bytes);
        n_reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .map_err(|used| MemoryPoolFull { requested: n_bytes, used, limit: *max_bytes })?;
        let of_parent = parent.as_ref().map_or(Ok(()), |parent| parent.reserve(n_bytes));
        of_parent.inspect_err(|_| {
            n_reserved.fetch_sub(n_bytes, Ordering::Relaxed);
        })
    }

    fn release(&self, n_bytes: usize) {
        self.0.n_bytes.fetch_sub(n_bytes, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.release(n_bytes);
        }
    }
}

/// A part of a pool in use, released when it is dropped.
#[derive(Debug)]
pub struct PoolReservation {
    pool: MemoryPool,
    n_bytes: AtomicUsize,
}

impl PoolReservation {
    /// Reserves more bytes, all or none.
    pub fn try_grow(&self, n_bytes: usize) -> Result<(), MemoryPoolFull> {
        self.pool.reserve(n_bytes)?;
        self.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Releases bytes, at most those that are reserved.
    pub fn shrink(&self, n_bytes: usize) {
        let shrunk = |n_reserved: usize| Some(n_reserved.saturating_sub(n_bytes));
        if let Ok(n_reserved) = self.n_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrunk) {
            self.pool.release(n_bytes.min(n_reserved));
        }
    }

    /// Copies a value, if the copy fits.
    pub(crate) fn copy(&self, value: &Value) -> Result<Value, MemoryPoolFull> {
        self.try_grow(value_bytes(value))?;
        Ok(value.clone())
    }
}

impl Drop for PoolReservation {
    fn drop(&mut self) {
        self.pool.release(*self.n_bytes.get_mut());
    }
}

/// Estimates the memory of a value.
pub(crate) fn value_bytes(value: &Value) -> usize {
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_bytes).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| member_bytes(name) + value_bytes(member)).sum()
        }
    };
    size_of::<Value>() + content
}

/// Estimates the memory of a member beside its value.
pub(crate) fn member_bytes(name: &str) -> usize {
    MEMBER_BYTES + name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_in_its_pool_until_it_is_dropped() {
        let pool = MemoryPool::new(100);
        let (one, other) = (pool.part(60).reservation(), pool.part(60).reservation());
        one.try_grow(60).unwrap();
        assert_eq!(one.try_grow(1).unwrap_err().limit, 60);
        let full = other.try_grow(50).unwrap_err();
        assert_eq!((full.used, full.limit), (60, 100));
        other.try_grow(40).unwrap();
        other.shrink(30);
        other.shrink(usize::MAX);
        assert_eq!(pool.n_bytes(), 60, "nothing is released twice");
        drop((one, other));
        assert_eq!(pool.n_bytes(), 0);
    }
}
