//! Client descriptions that sessions share.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::ClientDescription;

/// Maximum number of descriptions that are kept.
const MAX_DESCRIPTIONS: usize = 16;
/// Maximum size of a description that is kept, in bytes.
const MAX_BYTES: usize = 4 << 10;

/// The latest distinct descriptions of clients. Sessions of one program send equal descriptions, and there may be
/// thousands of such sessions.
#[derive(Debug, Default)]
pub(super) struct SharedDescriptions(Mutex<VecDeque<ClientDescription>>);

impl SharedDescriptions {
    /// Returns an equal description that shares its memory with earlier ones.
    pub(super) fn share(&self, description: ClientDescription) -> ClientDescription {
        if description.n_bytes() > MAX_BYTES {
            return description;
        }
        let mut known = self.0.lock();
        if let Some(equal) = known.iter().rev().find(|known| **known == description) {
            return equal.clone();
        }
        if known.len() == MAX_DESCRIPTIONS {
            known.pop_front();
        }
        known.push_back(description.clone());
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

    fn address(description: &ClientDescription) -> *const u8 {
        description.info.as_ref().unwrap().as_bytes().as_ptr()
    }

    #[test]
    fn equal_descriptions_share_memory() {
        let shared = SharedDescriptions::default();
        let first = shared.share(description("a"));
        assert_eq!(first, description("a"));
        shared.share(description("b"));
        assert_eq!(address(&shared.share(description("a"))), address(&first));
    }

    #[test]
    fn only_the_latest_and_small_ones_are_kept() {
        let shared = SharedDescriptions::default();
        let large = "x".repeat(MAX_BYTES);
        assert_ne!(address(&shared.share(description(&large))), address(&shared.share(description(&large))));
        let first = shared.share(description("0"));
        for number in 1..=MAX_DESCRIPTIONS {
            shared.share(description(&number.to_string()));
        }
        assert_ne!(address(&shared.share(description("0"))), address(&first));
        assert_eq!(shared.0.lock().len(), MAX_DESCRIPTIONS);
    }
}
