//! Answers that may be given again.

use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::store::{CacheKey, CacheStore, CachedAnswer, Stored};

use super::lock;
use super::shelf::{Shelf, Thing};
use crate::limits::{CacheLimits, total_len};

/// A cache in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::{Duration, SystemTime};
///
/// use pegboard_core::store::{CacheKey, CacheStore, CachedAnswer};
/// use pegboard_stores::limits::CacheLimits;
/// use pegboard_stores::memory::Cache;
///
/// let cache = Cache::new(CacheLimits::default());
/// let (made, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(60));
/// let answer = CachedAnswer { body: "42".into(), tool: "add".to_owned(), made, expires };
/// cache.put(CacheKey([7; 32]), answer, made).await.unwrap();
/// assert!(cache.get(CacheKey([7; 32]), made).await.unwrap().is_some());
/// assert!(cache.get(CacheKey([7; 32]), expires).await.unwrap().is_none());
/// # });
/// ```
#[derive(Debug)]
pub struct Cache {
    limits: CacheLimits,
    answers: Mutex<Shelf<CacheKey, CachedAnswer>>,
}

impl Cache {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, answers: Mutex::default() }
    }

    fn keep(&self, key: CacheKey, mut answer: CachedAnswer, now: SystemTime) {
        let n_bytes = total_len([answer.body.len(), answer.tool.len()]);
        let is_kept = n_bytes <= self.limits.max_entry_bytes && answer.expires > now;
        if is_kept {
            // A slice would keep alive the whole that it was cut from.
            answer.body = Bytes::copy_from_slice(&answer.body);
        }
        let mut answers = lock(&self.answers);
        while answers.take_expired(now).is_some() {}
        // Even if the new answer is not kept, the one before it is no longer true.
        answers.take(&key);
        if !is_kept {
            return;
        }
        let (since, expires) = (answer.made, answer.expires);
        answers.put(key, Thing { value: answer, since, expires, n_bytes });
        while self.limits.are_exceeded_by(answers.usage()) && answers.take_oldest().is_some() {}
    }
}

impl CacheStore for Cache {
    fn get(&self, key: CacheKey, now: SystemTime) -> Stored<'_, Option<CachedAnswer>> {
        async move { Ok(lock(&self.answers).alive(&key, now).cloned()) }.boxed()
    }

    fn put(&self, key: CacheKey, answer: CachedAnswer, now: SystemTime) -> Stored<'_, ()> {
        async move {
            self.keep(key, answer, now);
            Ok(())
        }
        .boxed()
    }

    fn clear(&self) -> Stored<'_, ()> {
        async move {
            *lock(&self.answers) = Shelf::default();
            Ok(())
        }
        .boxed()
    }
}
