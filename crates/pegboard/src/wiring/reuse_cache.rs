//! Reuse of providers across reloads.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pegboard_core::provider::{LocalProvider, Provider, ServerState};

/// Providers by the inputs they were built from. One that was dropped or has stopped is built anew.
pub(super) struct ReuseCache<K, P = LocalProvider>(Mutex<Vec<(K, Weak<P>)>>);

impl<K, P> Default for ReuseCache<K, P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, P: Provider> ReuseCache<K, P> {
    /// Returns the live provider for these inputs, or builds one.
    pub(super) fn get(&self, description: K, make: impl FnOnce(&K) -> P) -> Arc<P> {
        let mut kept = self.0.lock();
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
