//! What callers want of a server for longer than one request.

use std::collections::BTreeSet;
use std::sync::Arc;

use pegboard_core::error::CallError;
use pegboard_wire::era::LogLevel;
use tokio::sync::watch;

/// How many resources of one server may be watched.
const MAX_RESOURCES: usize = 10_000;
/// How long the address of a resource that is watched may be.
const MAX_URI_BYTES: usize = 8 * 1024;

/// What callers want of a server for longer than one request. Each start of the server is told anew. Clones are the
/// same.
///
/// A resource is watched or not, however many want to know of it: who serves many callers keeps count.
#[derive(Clone, Default)]
pub(super) struct Wishes(Arc<watch::Sender<Wish>>);

/// What is wanted at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    /// The resources whose changes are to be told.
    pub(super) resources: BTreeSet<String>,
    /// The mildest line of the log that is wanted; the server's own choice if nobody said.
    pub(super) log_level: Option<LogLevel>,
    /// How often the resources have changed.
    pub(super) version: u64,
}

impl Wishes {
    /// What is wanted, now and after every change.
    pub(super) fn news(&self) -> watch::Receiver<Wish> {
        self.0.subscribe()
    }

    /// What is wanted now.
    pub(super) fn now(&self) -> Wish {
        self.0.borrow().clone()
    }

    /// Whether one more resource may be watched.
    pub(super) fn admit(&self, uri: &str) -> Result<(), CallError> {
        let refuse = |reason: String| Err(CallError::LimitExceeded { reason });
        if uri.len() > MAX_URI_BYTES {
            return refuse(format!(
                "The address of a resource that is watched has at most {MAX_URI_BYTES} bytes"
            ));
        }
        let wish = self.0.borrow();
        if wish.resources.len() >= MAX_RESOURCES && !wish.resources.contains(uri) {
            return refuse(format!("{MAX_RESOURCES} resources are watched; unsubscribe from one first"));
        }
        Ok(())
    }

    /// Watches a resource from now on; the version of the wish with it.
    pub(super) fn watch(&self, uri: &str) -> u64 {
        self.change(|resources| resources.insert(uri.to_owned()))
    }

    /// Watches a resource no more; the version of the wish without it.
    pub(super) fn unwatch(&self, uri: &str) -> u64 {
        self.change(|resources| resources.remove(uri))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) -> u64 {
        let mut version = 0;
        self.0.send_if_modified(|wish| {
            let has_changed = change(&mut wish.resources);
            wish.version += u64::from(has_changed);
            version = wish.version;
            has_changed
        });
        version
    }

    /// Notes from which level on lines of the log are wanted, if that is milder than before; whether it is.
    ///
    /// Many callers share a server, and each hears what it wants of what the mildest wish brings.
    pub(super) fn lower_log_level(&self, level: LogLevel) -> bool {
        self.0.send_if_modified(|wish| {
            let is_milder = wish.log_level.is_none_or(|before| level < before);
            if is_milder {
                wish.log_level = Some(level);
            }
            is_milder
        })
    }

    /// From which level on lines of the log are wanted, if somebody said.
    pub(super) fn log_level(&self) -> Option<LogLevel> {
        self.0.borrow().log_level
    }
}
