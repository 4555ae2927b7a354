//! What one call, with everything under it, is found again by.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::optree::OpPath;

/// How many bytes of a digest an id is.
const N_BYTES: usize = 16;

/// What one call, with everything under it, is found again by: 32 hexadecimal digits, of which the first few are
/// mostly enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TraceId(String);

impl TraceId {
    /// The id of the call at a path, or of the call that it is under. The mark tells its caller from every other.
    pub(crate) fn of(mark: Uuid, path: &OpPath) -> Self {
        let digest =
            Sha256::new().chain_update(mark.as_bytes()).chain_update(path.top().to_string()).finalize();
        Self(digest.iter().take(N_BYTES).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_a_call_is_found_with_the_call_above_it() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let id = |mark, path: &str| TraceId::of(mark, &path.parse().unwrap());
        assert_eq!(id(one, "1-1"), id(one, "1-1.1-3"));
        assert_ne!(id(one, "1-1"), id(one, "1-2"));
        assert_ne!(id(one, "1-1"), id(other, "1-1"));
        assert_eq!(id(one, "1-1").as_str().len(), 2 * N_BYTES);
    }
}
