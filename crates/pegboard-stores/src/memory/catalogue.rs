//! What servers offered when they were last there.

use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::store::{CatalogueStore, Stored};

use super::lock;
use super::shelf::{Shelf, Thing};
use crate::limits::{CatalogueLimits, total_len};

/// What servers offered, in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
///
/// use pegboard_core::store::CatalogueStore;
/// use pegboard_stores::limits::CatalogueLimits;
/// use pegboard_stores::memory::Catalogue;
///
/// let catalogue = Catalogue::new(CatalogueLimits::default());
/// catalogue.save("f00d".to_owned(), "tools".into(), SystemTime::UNIX_EPOCH).await.unwrap();
/// assert_eq!(catalogue.load("f00d".to_owned()).await.unwrap(), Some("tools".into()));
/// # });
/// ```
#[derive(Debug)]
pub struct Catalogue {
    limits: CatalogueLimits,
    offers: Mutex<Shelf<String, Bytes>>,
}

impl Catalogue {
    /// A store that knows no server.
    pub fn new(limits: CatalogueLimits) -> Self {
        Self { limits, offers: Mutex::default() }
    }

    fn keep(&self, fingerprint: String, offer: &Bytes, now: SystemTime) {
        let n_bytes = total_len([fingerprint.len(), offer.len()]);
        // A slice would keep alive the whole that it was cut from.
        let value = Bytes::copy_from_slice(offer);
        let mut offers = lock(&self.offers);
        // Nobody asks when it expires: it is true until the server says otherwise.
        offers.put(fingerprint, Thing { value, since: now, expires: now, n_bytes });
        while self.limits.are_exceeded_by(offers.usage()) && offers.take_oldest().is_some() {}
    }
}

impl CatalogueStore for Catalogue {
    fn load(&self, fingerprint: String) -> Stored<'_, Option<Bytes>> {
        async move { Ok(lock(&self.offers).any(&fingerprint).map(|thing| thing.value.clone())) }.boxed()
    }

    fn save(&self, fingerprint: String, offer: Bytes, now: SystemTime) -> Stored<'_, ()> {
        async move {
            self.keep(fingerprint, &offer, now);
            Ok(())
        }
        .boxed()
    }
}
