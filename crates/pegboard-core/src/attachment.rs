//! What providers keep for one session.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What providers keep for one session: a server of its own, say. It goes when the session does.
///
/// ```
/// use pegboard_core::attachment::{Attachments, Slot};
///
/// let (session, counter) = (Attachments::default(), Slot::new());
/// let first = session.get_or_attach(counter, || 7);
/// let again = session.get_or_attach(counter, || 8);
/// assert_eq!((*first, *again), (7, 7));
/// ```
#[derive(Clone, Default)]
pub struct Attachments(Arc<Mutex<HashMap<Slot, Arc<dyn Any + Send + Sync>>>>);

/// What something is kept under. Each is unlike every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u64);

impl Slot {
    /// One that nobody else has.
    #[expect(clippy::new_without_default, reason = "no two are alike, so none is the default")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Attachments {
    /// What is kept in a slot. If nothing of this type is, it is made, which must not take long.
    pub fn get_or_attach<T: Any + Send + Sync>(&self, slot: Slot, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.get(&slot).cloned().and_then(|found| found.downcast().ok()) {
            return found;
        }
        let new = Arc::new(make());
        kept.insert(slot, Arc::clone(&new) as _);
        new
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachments")
    }
}
