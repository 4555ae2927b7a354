//! Signed state that travels through a client: it cannot be forged or used for another request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hmac_sha256::HMAC;

use crate::random;

/// A key that signs state.
#[derive(Clone)]
pub struct StateSigner {
    key: [u8; 32],
    lifetime: Duration,
}

/// The error for state that is forged, expired, or signed for another purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid request state: it belongs to another request, has expired, or the server has restarted; retry the \
     request without it"
)]
pub struct InvalidState;

const MAC_BYTES: usize = 32;
const TIME_BYTES: usize = 8;

impl StateSigner {
    /// Creates a signer with a random key: signatures do not outlive the process.
    pub fn random(lifetime: Duration) -> Self {
        Self { key: random::bytes(), lifetime }
    }

    /// Creates a signer with a key shared by several processes.
    pub fn with_key(key: [u8; 32], lifetime: Duration) -> Self {
        Self { key, lifetime }
    }

    /// Signs `state` for a purpose; verification needs the same purpose.
    ///
    /// ```
    /// use std::time::Duration;
    /// use pegboard_wire::StateSigner;
    ///
    /// let signer = StateSigner::random(Duration::from_secs(60));
    /// let signed = signer.sign("tools/call", b"round 2");
    /// assert_eq!(&signer.verify("tools/call", &signed).unwrap()[..], b"round 2");
    /// assert!(signer.verify("prompts/get", &signed).is_err());
    /// ```
    pub fn sign(&self, purpose: &str, state: &[u8]) -> String {
        let expires = now().saturating_add(self.lifetime.as_secs()).to_be_bytes();
        let mac = self.mac(purpose, &expires, state).finalize();
        URL_SAFE_NO_PAD.encode([&mac[..], &expires, state].concat())
    }

    /// Verifies signed state and returns it.
    pub fn verify(&self, purpose: &str, signed: &str) -> Result<Bytes, InvalidState> {
        let bytes = Bytes::from(URL_SAFE_NO_PAD.decode(signed).map_err(|_| InvalidState)?);
        let (mac, rest) = bytes.split_first_chunk::<MAC_BYTES>().ok_or(InvalidState)?;
        let (expires, state) = rest.split_at_checked(TIME_BYTES).ok_or(InvalidState)?;
        if !self.mac(purpose, expires, state).finalize_verify(mac) {
            return Err(InvalidState);
        }
        let expires = u64::from_be_bytes(expires.try_into().map_err(|_| InvalidState)?);
        if expires < now() { Err(InvalidState) } else { Ok(bytes.slice_ref(state)) }
    }

    fn mac(&self, purpose: &str, expires: &[u8], state: &[u8]) -> HMAC {
        let mut mac = HMAC::new(self.key);
        // The length separates purpose and state.
        mac.update((purpose.len() as u64).to_be_bytes());
        mac.update(purpose.as_bytes());
        mac.update(expires);
        mac.update(state);
        mac
    }
}

impl std::fmt::Debug for StateSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSigner").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// Seconds of wall-clock time, since signed state may outlive the process.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
