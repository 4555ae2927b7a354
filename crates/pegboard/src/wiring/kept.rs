//! Providers that stay the same for as long as they are described the same.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pegboard_core::provider::{Local, Provider, ServerState};

/// Providers by what they were made from. One that nobody holds any more, or that has ended, is made anew.
pub(super) struct Kept<K, P = Local>(Mutex<Vec<(K, Weak<P>)>>);

impl<K, P> Default for Kept<K, P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, P: Provider> Kept<K, P> {
    /// The provider that is described like this, or one that is made of it.
    pub(super) fn get(&self, description: K, make: impl FnOnce(&K) -> P) -> Arc<P> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, provider)| provider.strong_count() > 0);
        let is_here = |provider: &Arc<P>| *provider.state().borrow() != ServerState::Stopped;
        let found = kept.iter().find(|(other, _)| *other == description);
        if let Some(provider) = found.and_then(|(_, provider)| provider.upgrade()).filter(is_here) {
            return provider;
        }
        let provider = Arc::new(make(&description));
        kept.retain(|(other, _)| *other != description);
        kept.push((description, Arc::downgrade(&provider)));
        provider
    }
}
