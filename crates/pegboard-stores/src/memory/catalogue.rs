//! Last known listings of servers, in memory.

use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{CatalogueStore, StoreFuture};

use super::ttl_map::{TtlEntry, TtlMap};
use crate::limits::{CatalogueLimits, total_len};

/// An in-memory store of server listings.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
///
/// use pegboard_core::store::CatalogueStore;
/// use pegboard_stores::limits::CatalogueLimits;
/// use pegboard_stores::memory::MemoryCatalogue;
///
/// let catalogue = MemoryCatalogue::new(CatalogueLimits::default());
/// catalogue.save("f00d".to_owned(), "tools".into(), SystemTime::UNIX_EPOCH).await.unwrap();
/// assert_eq!(catalogue.load("f00d".to_owned()).await.unwrap(), Some("tools".into()));
/// # });
/// ```
#[derive(Debug)]
pub struct MemoryCatalogue {
    limits: CatalogueLimits,
    offers: Mutex<TtlMap<String, Bytes>>,
}

impl MemoryCatalogue {
    /// Creates an empty store.
    pub fn new(limits: CatalogueLimits) -> Self {
        Self { limits, offers: Mutex::default() }
    }

    fn insert(&self, fingerprint: String, offer: &Bytes, now: SystemTime) {
        let n_bytes = total_len([fingerprint.len(), offer.len()]);
        // A slice would keep its whole source buffer alive.
        let value = Bytes::copy_from_slice(offer);
        let mut offers = self.offers.lock();
        // The expiry is never checked: a listing is valid until the server changes it.
        offers.put(fingerprint, TtlEntry { value, created: now, expires: now, n_bytes });
        while self.limits.are_exceeded_by(offers.usage()) && offers.pop_oldest().is_some() {}
    }
}

impl CatalogueStore for MemoryCatalogue {
    fn load(&self, fingerprint: String) -> StoreFuture<'_, Option<Bytes>> {
        async move { Ok(self.offers.lock().get_any(&fingerprint).map(|entry| entry.value.clone())) }.boxed()
    }

    fn save(&self, fingerprint: String, offer: Bytes, now: SystemTime) -> StoreFuture<'_, ()> {
        async move {
            self.insert(fingerprint, &offer, now);
            Ok(())
        }
        .boxed()
    }
}
