//! Cached results, in memory.

use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{CacheKey, CacheStore, CachedResult, StoreFuture};

use super::ttl_map::{TtlEntry, TtlMap};
use crate::limits::{CacheLimits, total_len};

/// An in-memory cache of results.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::{Duration, SystemTime};
///
/// use pegboard_core::store::{CacheKey, CacheStore, CachedResult};
/// use pegboard_stores::limits::CacheLimits;
/// use pegboard_stores::memory::MemoryCache;
///
/// let cache = MemoryCache::new(CacheLimits::default());
/// let (created, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(60));
/// let answer = CachedResult { body: "42".into(), tool: "add".to_owned(), created, expires };
/// cache.put(CacheKey([7; 32]), answer, created).await.unwrap();
/// assert!(cache.get(CacheKey([7; 32]), created).await.unwrap().is_some());
/// assert!(cache.get(CacheKey([7; 32]), expires).await.unwrap().is_none());
/// # });
/// ```
#[derive(Debug)]
pub struct MemoryCache {
    limits: CacheLimits,
    answers: Mutex<TtlMap<CacheKey, CachedResult>>,
}

impl MemoryCache {
    /// Creates an empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, answers: Mutex::default() }
    }

    fn insert(&self, key: CacheKey, mut answer: CachedResult, now: SystemTime) {
        let n_bytes = total_len([answer.body.len(), answer.tool.len()]);
        let is_kept = n_bytes <= self.limits.max_entry_bytes && answer.expires > now;
        if is_kept {
            // A slice would keep its whole source buffer alive.
            answer.body = Bytes::copy_from_slice(&answer.body);
        }
        let mut answers = self.answers.lock();
        while answers.pop_expired(now).is_some() {}
        // Even if the new result is not cached, the previous one is outdated.
        answers.remove(&key);
        if !is_kept {
            return;
        }
        let (created, expires) = (answer.created, answer.expires);
        answers.put(key, TtlEntry { value: answer, created, expires, n_bytes });
        while self.limits.are_exceeded_by(answers.usage()) && answers.pop_oldest().is_some() {}
    }
}

impl CacheStore for MemoryCache {
    fn get(&self, key: CacheKey, now: SystemTime) -> StoreFuture<'_, Option<CachedResult>> {
        async move { Ok(self.answers.lock().get_live(&key, now).cloned()) }.boxed()
    }

    fn put(&self, key: CacheKey, answer: CachedResult, now: SystemTime) -> StoreFuture<'_, ()> {
        async move {
            self.insert(key, answer, now);
            Ok(())
        }
        .boxed()
    }

    fn clear(&self) -> StoreFuture<'_, ()> {
        async move {
            *self.answers.lock() = TtlMap::default();
            Ok(())
        }
        .boxed()
    }
}
