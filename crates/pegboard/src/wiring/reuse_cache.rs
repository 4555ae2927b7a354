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
    pub(super) fn get(&self, inputs: K, make: impl FnOnce(&K) -> P) -> Arc<P> {
        let mut entries = self.0.lock();
        entries.retain(|(_, provider)| provider.strong_count() > 0);
        let is_running = |provider: &Arc<P>| *provider.state().borrow() != ServerState::Stopped;
        let found = entries.iter().find(|(other, _)| *other == inputs);
        if let Some(provider) = found.and_then(|(_, provider)| provider.upgrade()).filter(is_running) {
            return provider;
        }
        let provider = Arc::new(make(&inputs));
        entries.retain(|(other, _)| *other != inputs);
        entries.push((inputs, Arc::downgrade(&provider)));
        provider
    }
}
