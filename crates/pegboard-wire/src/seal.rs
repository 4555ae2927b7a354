//! State that travels through a client and cannot be forged or read as another's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key that seals state.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
    lifetime: Duration,
}

/// The state was not sealed here, for this purpose, or not recently enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request state is not one that was given out for this request; or it has expired, or the server was started \
     anew since. Make the request again without it"
)]
pub struct BrokenSeal;

const MAC_BYTES: usize = 32;
const TIME_BYTES: usize = 8;

impl Seal {
    /// A seal with a key of its own, so that what it seals dies with the process.
    pub fn random(lifetime: Duration) -> Self {
        Self { key: rand::random(), lifetime }
    }

    /// A seal with a key that several processes share.
    pub fn with_key(key: [u8; 32], lifetime: Duration) -> Self {
        Self { key, lifetime }
    }

    /// Seals `state` for one purpose; only the same purpose opens it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use pegboard_wire::Seal;
    ///
    /// let seal = Seal::random(Duration::from_secs(60));
    /// let sealed = seal.close("tools/call", b"round 2");
    /// assert_eq!(&seal.open("tools/call", &sealed).unwrap()[..], b"round 2");
    /// assert!(seal.open("prompts/get", &sealed).is_err());
    /// ```
    pub fn close(&self, purpose: &str, state: &[u8]) -> String {
        let expires = now().saturating_add(self.lifetime.as_secs()).to_be_bytes();
        let mac = self.mac(purpose, &expires, state).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([&mac[..], &expires, state].concat())
    }

    /// The state behind the seal.
    pub fn open(&self, purpose: &str, sealed: &str) -> Result<Bytes, BrokenSeal> {
        let bytes = Bytes::from(URL_SAFE_NO_PAD.decode(sealed).map_err(|_| BrokenSeal)?);
        let (mac, rest) = bytes.split_at_checked(MAC_BYTES).ok_or(BrokenSeal)?;
        let (expires, state) = rest.split_at_checked(TIME_BYTES).ok_or(BrokenSeal)?;
        self.mac(purpose, expires, state).verify_slice(mac).map_err(|_| BrokenSeal)?;
        let expires = u64::from_be_bytes(expires.try_into().map_err(|_| BrokenSeal)?);
        if expires < now() { Err(BrokenSeal) } else { Ok(bytes.slice_ref(state)) }
    }

    fn mac(&self, purpose: &str, expires: &[u8], state: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length will do");
        // The length keeps purpose and state apart.
        mac.update(&(purpose.len() as u64).to_be_bytes());
        mac.update(purpose.as_bytes());
        mac.update(expires);
        mac.update(state);
        mac
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// Seconds of wall-clock time, since sealed state outlives the process that made it.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
