//! Secrets of the user: in the keyring of the system, or in an encrypted file where there is none.
//!
//! The index in the state folder lists names, so that they are found without the keyring; a value that is not in the
//! keyring is encrypted in it. The key for that, which also encrypts stored logins, is in the keyring, or else in a
//! file beside the index.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pegboard_core::secret::{MIN_SECRET_CHARACTERS, Secret};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub use files::FileError;
pub use keyring::{Keyring, KeyringError, SystemKeyring};

use crate::vault::{KEY_BYTES, SealingKey};
use files::{StorageLock, create_private_dir, read_private, replace_private};

mod files;
mod keyring;

/// Index of the secrets, and the lock of its writers.
const INDEX_FILE: &str = "secrets.json";
const LOCK_FILE: &str = "secrets.lock";
/// Key that encrypts, where there is no keyring.
const KEY_FILE: &str = "sealing.key";
/// Name of the key in the keyring. Not a valid [`SecretName`].
const KEY_ENTRY: &str = ".sealing-key";

/// Maximum size of the index.
const MAX_INDEX_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum size of a value. Some keyrings hold no more.
const MAX_SECRET_BYTES: usize = 2048;
/// Maximum number of secrets.
const MAX_SECRETS: usize = 1000;
/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 100;

/// Name of a secret: letters, digits, `_`, `-`, `.` and `/`, beginning with a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

impl SecretName {
    /// Checks a name.
    ///
    /// ```
    /// use pegboard_auth::secret_storage::SecretName;
    ///
    /// assert!(SecretName::new("github").is_ok() && SecretName::new("work/api-key.2").is_ok());
    /// assert!(SecretName::new("").is_err() && SecretName::new("a b").is_err() && SecretName::new(".a").is_err());
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidSecretName> {
        let name = name.into();
        let is_valid = name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.len() <= MAX_NAME_BYTES
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
        if is_valid { Ok(Self(name)) } else { Err(InvalidSecretName) }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SecretName {
    type Error = InvalidSecretName;

    fn try_from(name: String) -> Result<Self, InvalidSecretName> {
        Self::new(name)
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

/// The name of a secret is invalid. It is not quoted: it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid name of a secret: use up to {MAX_NAME_BYTES} letters, digits, '_', '-', '.' and '/', beginning with a \
     letter or a digit"
)]
pub struct InvalidSecretName;

/// Place of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretPlace {
    /// The keyring of the system.
    Keyring,
    /// The encrypted file in the state folder.
    File,
}

/// Reason why a secret cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum SecretStorageError {
    /// The value is too short to be redacted.
    #[error(
        "the value has {n_characters} characters: secrets of fewer than {MIN_SECRET_CHARACTERS} cannot be kept out of \
         logs, because they occur in innocent text; use a longer one"
    )]
    TooShort {
        /// Length of the value.
        n_characters: usize,
    },
    /// The value is too long for the keyrings of some systems.
    #[error(
        "the value is larger than {MAX_SECRET_BYTES} bytes; put it into a file and refer to it with ${{file:PATH}}"
    )]
    TooLong,
    /// There are too many secrets.
    #[error("there are already {MAX_SECRETS} secrets; remove one with 'pegboard secret rm NAME'")]
    TooMany,
    /// The keyring does not work.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// A file does not work.
    #[error(transparent)]
    File(#[from] FileError),
    /// A stored value cannot be decrypted.
    #[error(
        "{} cannot be decrypted: its key was replaced, or it was changed; set the secret again", path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
}

/// A secret as the index describes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexEntry {
    /// The encrypted value; absent if it is in the keyring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretIndex {
    secrets: BTreeMap<SecretName, IndexEntry>,
}

/// Secrets of the user by name.
pub struct SecretStorage {
    folder: PathBuf,
    /// The keyring, once it has been looked for: doing so connects to a service of the system.
    keyring: OnceLock<Option<Arc<dyn Keyring>>>,
}

impl SecretStorage {
    /// Opens the secrets of a state folder with the keyring of the system. Nothing is created or asked for yet.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), keyring: OnceLock::new() }
    }

    /// Opens the secrets of a state folder with a keyring, or with files alone.
    pub fn with_keyring(folder: &Path, keyring: Option<Arc<dyn Keyring>>) -> Self {
        Self { folder: folder.to_owned(), keyring: OnceLock::from(keyring) }
    }

    fn keyring(&self) -> Option<&dyn Keyring> {
        let find = || SystemKeyring::find().map(|found| Arc::new(found) as Arc<dyn Keyring>);
        self.keyring.get_or_init(find).as_deref()
    }

    /// Returns the file that holds the values that are not in the keyring.
    pub fn index_path(&self) -> PathBuf {
        self.folder.join(INDEX_FILE)
    }

    /// Returns a secret. One that the index does not list may be in the keyring under this name.
    pub fn get(&self, name: &SecretName) -> Result<Option<Secret>, SecretStorageError> {
        let index = self.read_index()?;
        let entry = index.secrets.get(name);
        if let Some(IndexEntry { sealed: Some(sealed) }) = entry {
            return self.unseal(name, sealed).map(Some);
        }
        match self.keyring() {
            Some(keyring) => Ok(keyring.get(name.as_str())?),
            None if entry.is_some() => Err(KeyringError::Missing.into()),
            None => Ok(None),
        }
    }

    /// Stores a secret, replacing the one of this name.
    pub fn set(&self, name: &SecretName, value: &Secret) -> Result<SecretPlace, SecretStorageError> {
        let n_characters = value.reveal().chars().count();
        if n_characters < MIN_SECRET_CHARACTERS {
            return Err(SecretStorageError::TooShort { n_characters });
        }
        if value.reveal().len() > MAX_SECRET_BYTES {
            return Err(SecretStorageError::TooLong);
        }
        let _lock = self.lock()?;
        let mut index = self.read_index()?;
        if index.secrets.len() >= MAX_SECRETS && !index.secrets.contains_key(name) {
            return Err(SecretStorageError::TooMany);
        }
        let sealed = match self.keyring() {
            Some(keyring) => {
                keyring.set(name.as_str(), value)?;
                None
            }
            None => Some(self.seal(name, value)?),
        };
        let place = if sealed.is_some() { SecretPlace::File } else { SecretPlace::Keyring };
        index.secrets.insert(name.clone(), IndexEntry { sealed });
        self.write_index(&index)?;
        Ok(place)
    }

    /// Removes a secret; returns `false` if there was none.
    pub fn remove(&self, name: &SecretName) -> Result<bool, SecretStorageError> {
        let _lock = self.lock()?;
        let mut index = self.read_index()?;
        let removed = index.secrets.remove(name);
        let is_sealed = removed.as_ref().is_some_and(|entry| entry.sealed.is_some());
        let was_in_keyring = match (self.keyring(), is_sealed) {
            (Some(keyring), false) => keyring.remove(name.as_str())?,
            (None, false) if removed.is_some() => return Err(KeyringError::Missing.into()),
            (_, true) | (None, false) => false,
        };
        if removed.is_some() {
            self.write_index(&index)?;
        }
        Ok(removed.is_some() || was_in_keyring)
    }

    /// Returns the names of all secrets, with their places.
    pub fn list(&self) -> Result<Vec<(SecretName, SecretPlace)>, SecretStorageError> {
        let place = |entry: &IndexEntry| {
            if entry.sealed.is_some() { SecretPlace::File } else { SecretPlace::Keyring }
        };
        let secrets = self.read_index()?.secrets;
        Ok(secrets.iter().map(|(name, entry)| (name.clone(), place(entry))).collect())
    }

    /// Returns the key that encrypts what is stored in the state folder. It is created on first use: in the keyring,
    /// or in a file that only this user can read.
    pub fn sealing_key(&self) -> Result<SealingKey, SecretStorageError> {
        if let Some(key) = self.existing_key()? {
            return Ok(key);
        }
        let _lock = self.lock()?;
        self.key_under_lock()
    }

    /// Returns the key if it exists. A key in the file precedes: it was in use before there was a keyring.
    fn existing_key(&self) -> Result<Option<SealingKey>, SecretStorageError> {
        let path = self.folder.join(KEY_FILE);
        let text = match read_private(&path, MAX_INDEX_BYTES)? {
            Some(text) => Some(Secret::new(text.as_str())),
            None => self.keyring().map(|keyring| keyring.get(KEY_ENTRY)).transpose()?.flatten(),
        };
        let Some(text) = text else { return Ok(None) };
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let decoded = STANDARD.decode(text.reveal().trim()).map(Zeroizing::new);
        match decoded {
            Ok(decoded) if decoded.len() == KEY_BYTES => bytes.copy_from_slice(&decoded),
            Ok(_) | Err(_) => return Err(SecretStorageError::Unreadable { path }),
        }
        Ok(Some(SealingKey::new(&bytes)))
    }

    fn seal(&self, name: &SecretName, value: &Secret) -> Result<String, SecretStorageError> {
        let unusable = || SecretStorageError::Unreadable { path: self.index_path() };
        let sealed = self.key_under_lock()?.seal(value.reveal().as_bytes(), name.as_str().as_bytes());
        Ok(STANDARD.encode(sealed.ok_or_else(unusable)?))
    }

    /// Returns the key, and creates it if no other process has done so before the lock was taken.
    fn key_under_lock(&self) -> Result<SealingKey, SecretStorageError> {
        if let Some(key) = self.existing_key()? {
            return Ok(key);
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(bytes.as_mut_slice()).map_err(|_| FileError::random(&self.folder))?;
        let text = Secret::new(STANDARD.encode(bytes.as_slice()));
        match self.keyring() {
            Some(keyring) => keyring.set(KEY_ENTRY, &text)?,
            None => replace_private(&self.folder, KEY_FILE, text.reveal().as_bytes())?,
        }
        Ok(SealingKey::new(&bytes))
    }

    fn unseal(&self, name: &SecretName, sealed: &str) -> Result<Secret, SecretStorageError> {
        let unreadable = || SecretStorageError::Unreadable { path: self.index_path() };
        let key = self.existing_key()?.ok_or_else(unreadable)?;
        let sealed = STANDARD.decode(sealed).map_err(|_| unreadable())?;
        let plain = key.open(&sealed, name.as_str().as_bytes()).ok_or_else(unreadable)?;
        std::str::from_utf8(&plain).map(Secret::new).map_err(|_| unreadable())
    }

    fn read_index(&self) -> Result<SecretIndex, SecretStorageError> {
        let path = self.index_path();
        let Some(text) = read_private(&path, MAX_INDEX_BYTES)? else { return Ok(SecretIndex::default()) };
        serde_json::from_str(&text).map_err(|_| SecretStorageError::Unreadable { path })
    }

    fn write_index(&self, index: &SecretIndex) -> Result<(), SecretStorageError> {
        let text = serde_json::to_vec_pretty(index).expect("an index has text keys only");
        Ok(replace_private(&self.folder, INDEX_FILE, &text)?)
    }

    fn lock(&self) -> Result<StorageLock, SecretStorageError> {
        create_private_dir(&self.folder)?;
        Ok(StorageLock::acquire(&self.folder.join(LOCK_FILE))?)
    }
}
