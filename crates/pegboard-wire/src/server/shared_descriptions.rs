//! Client descriptions that sessions share.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ClientDescription;

/// Maximum number of descriptions that are kept.
const MAX_DESCRIPTIONS: usize = 16;
/// Maximum size of a description that is kept, in bytes.
const MAX_BYTES: usize = 4 << 10;

/// The latest distinct descriptions of clients. Sessions of one program send equal descriptions, and there may be
/// thousands of such sessions.
#[derive(Debug, Default)]
pub(super) struct SharedDescriptions(Mutex<VecDeque<Arc<ClientDescription>>>);

impl SharedDescriptions {
    /// Returns the earlier one of two equal descriptions.
    pub(super) fn share(&self, description: ClientDescription) -> Arc<ClientDescription> {
        if description.n_bytes() > MAX_BYTES {
            return Arc::new(description);
        }
        let mut known = self.0.lock();
        if let Some(equal) = known.iter().rev().find(|known| ***known == description) {
            return Arc::clone(equal);
        }
        if known.len() == MAX_DESCRIPTIONS {
            known.pop_front();
        }
        let description = Arc::new(description);
        known.push_back(Arc::clone(&description));
        description
    }
}

#[cfg(test)]
mod tests {
    use pegboard_json::RawJson;

    use super::*;

    fn description(name: &str) -> ClientDescription {
        ClientDescription { info: Some(RawJson::of(name)), capabilities: RawJson::empty_object() }
    }

    #[test]
    fn equal_descriptions_share_memory() {
        let shared = SharedDescriptions::default();
        let first = shared.share(description("a"));
        assert_eq!(*first, description("a"));
        shared.share(description("b"));
        assert!(Arc::ptr_eq(&shared.share(description("a")), &first));
    }

    #[test]
    fn only_the_latest_and_small_ones_are_kept() {
        let shared = SharedDescriptions::default();
        let large = "x".repeat(MAX_BYTES);
        assert!(!Arc::ptr_eq(&shared.share(description(&large)), &shared.share(description(&large))));
        let first = shared.share(description("0"));
        for number in 1..=MAX_DESCRIPTIONS {
            shared.share(description(&number.to_string()));
        }
        assert!(!Arc::ptr_eq(&shared.share(description("0")), &first));
        assert_eq!(shared.0.lock().len(), MAX_DESCRIPTIONS);
    }
}
