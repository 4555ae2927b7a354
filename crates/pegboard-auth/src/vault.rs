//! Credentials of principals, encrypted at rest.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use bytes::Bytes;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CredentialKey, CredentialStore, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use crate::secret_storage::SecretStorage;

/// Length of an encryption key in bytes.
pub const KEY_BYTES: usize = 32;

/// Maximum number of credentials listed at once.
const MAX_LISTED: usize = 10_000;

/// Key that encrypts credentials.
pub struct SealingKey(RandomizedNonceKey);

impl SealingKey {
    /// Creates a key from random bytes.
    #[expect(clippy::missing_panics_doc, reason = "the key has the right length")]
    pub fn new(bytes: &Zeroizing<[u8; KEY_BYTES]>) -> Self {
        Self(RandomizedNonceKey::new(&AES_256_GCM, bytes.as_slice()).expect("the key has the right length"))
    }

    /// Creates a random key; `None` if the system provides no random bytes.
    pub fn random() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(bytes.as_mut_slice()).ok()?;
        Some(Self::new(&bytes))
    }

    /// Encrypts a text. `context` is needed to decrypt it.
    pub fn seal(&self, plain: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(context), &mut sealed).ok()?;
        let mut whole = nonce.as_ref().to_vec();
        whole.append(&mut sealed);
        Some(whole)
    }

    /// Decrypts a text; `None` if it was encrypted with another key or context, or changed.
    pub fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = Zeroizing::new(text.to_vec());
        let n_bytes = self.0.open_in_place(nonce, Aad::from(context), &mut plain).ok()?.len();
        plain.truncate(n_bytes);
        Some(plain)
    }
}

/// Reason why a credential cannot be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The credential is not readable with this key.
    #[error("the stored login cannot be decrypted: its key was replaced, or the state file was changed")]
    Unreadable,
    /// The key cannot be read.
    #[error("the key of stored logins cannot be read: {0}")]
    Key(String),
}

/// Credentials of principals. Each is encrypted together with its owner and key, so that a copy under another
/// name is useless.
pub struct CredentialVault {
    store: Arc<dyn CredentialStore>,
    /// The key, once it was needed: a keyring may ask its user for it.
    key: OnceCell<SealingKey>,
    storage: Option<Arc<SecretStorage>>,
}

impl CredentialVault {
    /// Creates a vault in a store.
    pub fn new(store: Arc<dyn CredentialStore>, key: SealingKey) -> Self {
        Self { store, key: OnceCell::new_with(Some(key)), storage: None }
    }

    /// Creates a vault in a store, with the key of the user's secrets. It is asked for when the first credential is
    /// stored or found.
    pub fn with_storage(store: Arc<dyn CredentialStore>, storage: Arc<SecretStorage>) -> Self {
        Self { store, key: OnceCell::new(), storage: Some(storage) }
    }

    async fn key(&self) -> Result<&SealingKey, VaultError> {
        let read = || async {
            let storage = self.storage.clone().ok_or_else(|| VaultError::Key("there is none".to_owned()))?;
            let key =
                tokio::task::spawn_blocking(move || storage.sealing_key().map_err(|error| error.to_string()));
            key.await.unwrap_or_else(|error| Err(error.to_string())).map_err(VaultError::Key)
        };
        self.key.get_or_try_init(read).await
    }

    /// Returns the credential under a key.
    pub async fn load<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        key: &CredentialKey,
    ) -> Result<Option<T>, VaultError> {
        let Some(sealed) = self.store.load(owner.clone(), key.clone()).await? else { return Ok(None) };
        let plain = self.key().await?.open(&sealed, &context(owner, key)).ok_or(VaultError::Unreadable)?;
        serde_json::from_slice(&plain).map(Some).map_err(|_| VaultError::Unreadable)
    }

    /// Stores a credential, replacing the one under the same key.
    #[expect(clippy::missing_panics_doc, reason = "credentials are written as JSON, and have no other keys")]
    pub async fn save<T: Serialize>(
        &self,
        owner: &Owner,
        key: &CredentialKey,
        credential: &T,
    ) -> Result<(), VaultError> {
        let plain = Zeroizing::new(
            serde_json::to_vec(credential).expect("a credential has no keys that are not text"),
        );
        let sealed = self.key().await?.seal(&plain, &context(owner, key)).ok_or(VaultError::Unreadable)?;
        Ok(self.store.save(owner.clone(), key.clone(), Bytes::from(sealed), SystemTime::now()).await?)
    }

    /// Removes a credential; returns `false` if there was none.
    pub async fn remove(&self, owner: &Owner, key: &CredentialKey) -> Result<bool, VaultError> {
        Ok(self.store.remove(owner.clone(), key.clone()).await?)
    }

    /// Returns the keys of the credentials that a scope may see.
    pub async fn list(&self, scope: OwnerScope) -> Result<Vec<(Owner, CredentialKey)>, VaultError> {
        Ok(self.store.list(scope, MAX_LISTED).await?)
    }
}

/// Binds a credential to its owner and key. The length of the owner separates the two unambiguously.
fn context(owner: &Owner, key: &CredentialKey) -> Vec<u8> {
    format!("{}:{}{}", owner.as_str().len(), owner.as_str(), key.0).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SealingKey {
        SealingKey::new(&Zeroizing::new([byte; KEY_BYTES]))
    }

    #[test]
    fn a_sealed_text_opens_only_with_its_key_and_context() {
        let sealed = key(1).seal(b"token", b"ann").unwrap();
        assert!(!sealed.windows(5).any(|bytes| bytes == b"token"));
        assert_eq!(key(1).open(&sealed, b"ann").as_deref().map(Vec::as_slice), Some(&b"token"[..]));
        assert!(key(2).open(&sealed, b"ann").is_none());
        assert!(key(1).open(&sealed, b"bob").is_none());
        for changed in 0..sealed.len() {
            let mut copy = sealed.clone();
            copy[changed] ^= 1;
            assert!(key(1).open(&copy, b"ann").is_none(), "byte {changed}");
        }
        for n_bytes in 0..sealed.len() {
            assert!(key(1).open(&sealed[..n_bytes], b"ann").is_none(), "{n_bytes} bytes");
        }
    }

    #[test]
    fn the_same_text_is_never_sealed_to_the_same_bytes() {
        assert_ne!(key(1).seal(b"token", b"ann"), key(1).seal(b"token", b"ann"));
    }

    #[test]
    fn owner_and_key_cannot_be_shifted_against_each_other() {
        let owner = |name| Owner::in_tenant("", name);
        let contexts = [
            context(&owner("ann"), &CredentialKey("x".to_owned())),
            context(&owner("an"), &CredentialKey("nx".to_owned())),
            context(&owner("annx"), &CredentialKey(String::new())),
        ];
        assert!(contexts[0] != contexts[1] && contexts[1] != contexts[2] && contexts[0] != contexts[2]);
    }
}
