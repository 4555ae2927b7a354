//! Ids under which finished calls are found.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::optree::OpPath;

/// Number of digest bytes in an id.
const N_BYTES: usize = 16;

/// Id of a call, including everything below it: 32 hexadecimal digits, of which the first few usually
/// suffice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TraceId(String);

impl TraceId {
    /// Derives the id of the outermost call on a path. `instance_id` distinguishes the caller from all
    /// others.
    pub(crate) fn of(instance_id: Uuid, path: &OpPath) -> Self {
        let digest = Sha256::new()
            .chain_update(instance_id.as_bytes())
            .chain_update(path.top().to_string())
            .finalize();
        let mut id = String::with_capacity(2 * N_BYTES);
        for byte in &digest[..N_BYTES] {
            id.extend(
                [byte >> 4, byte & 0xf].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
            );
        }
        Self(id)
    }

    /// Returns the hexadecimal digits.
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
    fn a_nested_call_shares_the_id_of_the_outermost_call() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let id = |instance_id, path: &str| TraceId::of(instance_id, &path.parse().unwrap());
        assert_eq!(id(one, "1-1"), id(one, "1-1.1-3"));
        assert_ne!(id(one, "1-1"), id(one, "1-2"));
        assert_ne!(id(one, "1-1"), id(other, "1-1"));
        assert_eq!(id(one, "1-1").as_str().len(), 2 * N_BYTES);
    }
}
