//! Resource subscriptions and log level of a server, which outlive single requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use pegboard_core::error::CallError;
use pegboard_wire::era::LogLevel;
use tokio::sync::watch;

/// Maximum number of subscribed resources per server.
const MAX_RESOURCES: usize = 10_000;
/// Maximum length of the URI of a subscribed resource.
const MAX_URI_BYTES: usize = 8 * 1024;

/// Resource subscriptions and log level of a server, sent again after each start. Clones share them.
///
/// A resource is subscribed once, however many callers want it: reference counting is up to the gateway.
#[derive(Clone, Default)]
pub(super) struct ServerSubscriptions(Arc<watch::Sender<SubscriptionSet>>);

/// Subscriptions at one point in time.
#[derive(Clone, Debug, Default)]
pub(super) struct SubscriptionSet {
    /// URIs of the subscribed resources.
    pub(super) resources: BTreeSet<String>,
    /// Minimum log level; `None` for the server's default.
    pub(super) log_level: Option<LogLevel>,
    /// Number of changes to the resources.
    pub(super) version: u64,
}

impl ServerSubscriptions {
    /// Returns the initial state of a further instance: the same log level, and no resources.
    pub(super) fn for_instance(&self) -> Self {
        let log_level = self.0.borrow().log_level;
        Self(Arc::new(watch::Sender::new(SubscriptionSet { log_level, ..SubscriptionSet::default() })))
    }

    /// Returns a receiver of the current subscriptions and every change.
    pub(super) fn watch_changes(&self) -> watch::Receiver<SubscriptionSet> {
        self.0.subscribe()
    }

    /// Returns the current subscriptions.
    pub(super) fn current(&self) -> SubscriptionSet {
        self.0.borrow().clone()
    }

    /// Checks that one more resource may be subscribed.
    pub(super) fn check_limits(&self, uri: &str) -> Result<(), CallError> {
        let refuse = |reason: String| Err(CallError::LimitExceeded { reason });
        if uri.len() > MAX_URI_BYTES {
            return refuse(format!("resource URI is longer than {MAX_URI_BYTES} bytes"));
        }
        let set = self.0.borrow();
        if set.resources.len() >= MAX_RESOURCES && !set.resources.contains(uri) {
            return refuse(format!(
                "limit of {MAX_RESOURCES} subscribed resources reached; unsubscribe from one first"
            ));
        }
        Ok(())
    }

    /// Subscribes to a resource; returns the new version.
    pub(super) fn subscribe(&self, uri: &str) -> u64 {
        self.modify(|resources| resources.insert(uri.to_owned()))
    }

    /// Unsubscribes from a resource; returns the new version.
    pub(super) fn unsubscribe(&self, uri: &str) -> u64 {
        self.modify(|resources| resources.remove(uri))
    }

    fn modify(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) -> u64 {
        let mut version = 0;
        self.0.send_if_modified(|set| {
            let has_changed = change(&mut set.resources);
            set.version += u64::from(has_changed);
            version = set.version;
            has_changed
        });
        version
    }

    /// Sets the log level; returns `true` if it was another or unset.
    pub(super) fn set_log_level(&self, level: LogLevel) -> bool {
        self.0.send_if_modified(|set| set.log_level.replace(level) != Some(level))
    }

    /// Lowers the log level for a call; returns `true` if it was higher or unset.
    ///
    /// Callers share a server, and messages are filtered per caller, so the lowest level wins.
    pub(super) fn lower_log_level(&self, level: LogLevel) -> bool {
        self.0.send_if_modified(|set| {
            let is_lower = set.log_level.is_none_or(|before| level < before);
            if is_lower {
                set.log_level = Some(level);
            }
            is_lower
        })
    }
}
