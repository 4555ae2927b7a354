//! Ids under which finished calls are found.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;
use uuid::fmt::Simple;

use crate::optree::OpPath;

/// Id of a call, including everything below it: 32 hexadecimal digits, of which the first few usually
/// suffice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TraceId(String);

impl TraceId {
    /// Derives the id of the outermost call on a path. `instance_id` distinguishes the caller from all
    /// others.
    ///
    /// Every call gets an id, so it must be cheap. It is no secret: a caller sees it beside its session.
    pub(crate) fn of(instance_id: Uuid, path: &OpPath) -> Self {
        let (high, low) = instance_id.as_u64_pair();
        let high = mix(high ^ path.top_bits());
        let low = mix(low ^ high);
        let id = (u128::from(high) << 64) | u128::from(low);
        let mut digits = [0; Simple::LENGTH];
        Self(Uuid::from_u128(id).simple().encode_lower(&mut digits).to_owned())
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hexadecimal digits as text of its own.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// The finalizer of `SplitMix64`. It maps different numbers to different ones, so two calls of one caller never
/// have the same id.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
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
        assert_eq!(id(one, "1-1").as_str().len(), 32);
    }
}
