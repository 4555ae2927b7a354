//! What providers keep for one session.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What providers keep for one session: a server of its own, say. It goes when the session does; and what is kept for
/// a provider that is gone goes as soon as something else is kept.
///
/// ```
/// use pegboard_core::attachment::{Attachments, Slot};
///
/// let (session, counter) = (Attachments::default(), Slot::new());
/// let first = session.get_or_attach(&counter, || 7);
/// let again = session.get_or_attach(&counter, || 8);
/// assert_eq!((*first, *again), (7, 7));
/// ```
#[derive(Clone, Default)]
pub struct Attachments(Arc<Mutex<HashMap<u64, Kept>>>);

/// Something that is kept, for as long as somebody has the slot that leads to it.
struct Kept {
    owner: Weak<()>,
    what: Arc<dyn Any + Send + Sync>,
}

/// What something is kept under. Each is unlike every other.
#[derive(Debug)]
pub struct Slot {
    number: u64,
    owner: Arc<()>,
}

impl Slot {
    /// One that nobody else has.
    #[expect(clippy::new_without_default, reason = "no two are alike, so none is the default")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), owner: Arc::default() }
    }
}

impl Attachments {
    /// Whether both are of the same session.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What is kept in a slot. If nothing of this type is, it is made, which must not take long.
    pub fn get_or_attach<T: Any + Send + Sync>(&self, slot: &Slot, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(&slot.number).map(|kept| Arc::clone(&kept.what));
        if let Some(found) = found.and_then(|found| found.downcast().ok()) {
            return found;
        }
        let gone: Vec<Kept> =
            kept.extract_if(|_, kept| kept.owner.strong_count() == 0).map(|(_, kept)| kept).collect();
        let new = Arc::new(make());
        kept.insert(slot.number, Kept { owner: Arc::downgrade(&slot.owner), what: Arc::clone(&new) as _ });
        drop(kept);
        // Outside the lock: nobody knows what ends with it.
        drop(gone);
        new
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachments")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_somebody_who_is_gone_goes_with_the_next_thing_that_is_kept() {
        let (session, gone, here) = (Attachments::default(), Slot::new(), Slot::new());
        let left = Arc::downgrade(&session.get_or_attach(&gone, || 1));
        drop(gone);
        assert!(left.upgrade().is_some());
        session.get_or_attach(&here, || 2);
        assert!(left.upgrade().is_none());
        assert_eq!(*session.get_or_attach(&here, || 3), 2);
    }
}
