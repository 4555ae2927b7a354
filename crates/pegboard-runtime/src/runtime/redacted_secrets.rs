//! Secrets that become known while the runtime runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use pegboard_core::redact::Redactor;

use super::Runtime;

/// Handle that replaces the secrets that a runtime redacts from logs and records.
#[derive(Clone)]
pub struct RedactedSecrets(Arc<ArcSwap<Redactor>>);

impl RedactedSecrets {
    /// Redacts these secrets from now on, and no others. Values too short to be recognized are not redacted.
    pub fn replace(&self, secrets: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.store(Arc::new(Redactor::with_escapes(secrets)));
    }
}

impl Runtime {
    /// Returns a handle that replaces the secrets to redact. It does not keep the runtime alive.
    pub fn redacted_secrets(&self) -> RedactedSecrets {
        RedactedSecrets(Arc::clone(&self.0.redactor))
    }
}
