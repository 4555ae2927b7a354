//! Fingerprints: hashes that tell settings and contents apart and reveal no secrets.

use std::fmt;

use hmac_sha256::Hash as Sha256;

/// Fingerprint of a list of parts. Different lists have different fingerprints.
///
/// ```
/// use pegboard_core::fingerprint::Fingerprint;
///
/// let of = |parts: &[&str]| {
///     let mut fingerprint = Fingerprint::default();
///     parts.iter().for_each(|part| fingerprint.add(part));
///     fingerprint.finish()
/// };
/// assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
/// assert_ne!(of(&["a", "b"]), of(&["ab"]));
/// ```
#[derive(Clone, Default)]
pub struct Fingerprint(Sha256);

impl Fingerprint {
    /// Adds a part.
    pub fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        // Length-prefixed, so that different lists never hash alike.
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Adds a list of parts, and its length, so that the next list is told apart from it.
    pub fn add_all(&mut self, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let parts: Vec<_> = parts.into_iter().collect();
        self.add(parts.len().to_be_bytes());
        for part in parts {
            self.add(part);
        }
    }

    /// Returns the fingerprint in hexadecimal.
    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint").finish_non_exhaustive()
    }
}

/// Returns the SHA-256 of some content in hexadecimal.
pub fn sha256_hex(content: impl AsRef<[u8]>) -> String {
    hex(&Sha256::hash(content.as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}
