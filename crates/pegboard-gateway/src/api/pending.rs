//! Changes of the configuration that wait for approval.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

/// Changes of the configuration that wait for approval. Clones share the list.
///
/// ```
/// use pegboard_gateway::api::{PendingChange, PendingChanges};
///
/// let pending = PendingChanges::default();
/// let change = PendingChange {
///     entry: "notes".to_owned(),
///     reason: "new".to_owned(),
///     action: "notes-server --quiet".to_owned(),
///     file: Some("/srv/pegboard.yaml".into()),
/// };
/// pending.clone().replace(vec![change]);
/// assert_eq!(pending.list()[0].entry, "notes");
/// ```
#[derive(Clone, Debug, Default)]
pub struct PendingChanges(Arc<Mutex<Vec<PendingChange>>>);

/// A change of the configuration that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingChange {
    /// Name of the changed entry.
    pub entry: String,
    /// Reason why it waits: `new`, or the changed parts.
    pub reason: String,
    /// Command line or URL, without secrets.
    pub action: String,
    /// File with the change, if it is in a configuration file itself.
    pub file: Option<PathBuf>,
}

impl PendingChanges {
    /// Returns the changes.
    pub fn list(&self) -> Vec<PendingChange> {
        self.0.lock().clone()
    }

    /// Replaces the changes.
    pub fn replace(&self, changes: Vec<PendingChange>) {
        *self.0.lock() = changes;
    }
}
