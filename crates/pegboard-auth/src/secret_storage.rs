//! Secrets of the user: in the keyring of the system, or in an encrypted file where there is none.
//!
//! The index in the state folder lists names, so that they are found without the keyring; a value that is not in the
//! keyring is encrypted in it, with a key in a file beside it. The key that encrypts stored logins is in the keyring, or
//! else the same. Sessions with and without a keyring share a state folder (a desktop, and SSH), so the index says what
//! the keyring holds: one that cannot be reached is not an empty one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
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
/// Maximum number of damaged files kept beside the index.
const MAX_SET_ASIDE: usize = 10;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The index, or the file of the key, is not what was written.
    #[error("{} is damaged; it is set aside when a secret is set", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// There are too many damaged files.
    #[error(
        "{} is damaged, and there are already {MAX_SET_ASIDE} damaged files beside it: move them away", path.display()
    )]
    TooManyDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The key in the keyring is not what was stored.
    #[error(
        "the entry '{KEY_ENTRY}' of Pegboard in the keyring is damaged; remove it there, and log in again"
    )]
    DamagedKey,
}

/// A secret as the index describes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexEntry {
    /// The encrypted value; absent if it is in the keyring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    /// The keyring has an older value: it could not be reached when the secret was replaced or removed.
    #[serde(default, skip_serializing_if = "is_false")]
    is_outdated_in_keyring: bool,
}

impl IndexEntry {
    /// Returns the place of the value; `None` if it was removed.
    fn place(&self) -> Option<SecretPlace> {
        match (&self.sealed, self.is_outdated_in_keyring) {
            (Some(_), _) => Some(SecretPlace::File),
            (None, false) => Some(SecretPlace::Keyring),
            (None, true) => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretIndex {
    /// Place of the key that encrypts logins, once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<SecretPlace>,
    secrets: BTreeMap<SecretName, IndexEntry>,
}

/// Secrets of the user by name.
pub struct SecretStorage {
    folder: PathBuf,
    /// The keyring, once it has been looked for: doing so connects to a service of the system.
    keyring: OnceLock<Result<Option<Arc<dyn Keyring>>, KeyringError>>,
}

impl fmt::Debug for SecretStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretStorage").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl SecretStorage {
    /// Opens the secrets of a state folder with the keyring of the system. Nothing is created or asked for yet.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), keyring: OnceLock::new() }
    }

    /// Opens the secrets of a state folder with a keyring, or with files alone.
    pub fn with_keyring(folder: &Path, keyring: Option<Arc<dyn Keyring>>) -> Self {
        Self { folder: folder.to_owned(), keyring: OnceLock::from(Ok(keyring)) }
    }

    /// Returns the keyring; `None` if there is none. One that does not answer is asked once.
    fn keyring(&self) -> Result<Option<&dyn Keyring>, KeyringError> {
        let find = || Ok(SystemKeyring::find()?.map(|found| Arc::new(found) as Arc<dyn Keyring>));
        self.keyring.get_or_init(find).as_ref().map(Option::as_deref).map_err(Clone::clone)
    }

    /// Returns the file that holds the values that are not in the keyring.
    pub fn index_path(&self) -> PathBuf {
        self.folder.join(INDEX_FILE)
    }

    /// Returns a secret. One that the index does not list may be in the keyring under this name.
    pub fn get(&self, name: &SecretName) -> Result<Option<Secret>, SecretStorageError> {
        let index = self.read_index()?;
        let entry = index.secrets.get(name);
        if let Some(sealed) = entry.and_then(|entry| entry.sealed.as_ref()) {
            return self.unseal(name, sealed).map(Some);
        }
        let place = entry.map(IndexEntry::place);
        if place == Some(None) {
            return Ok(None);
        }
        match self.keyring()? {
            Some(keyring) => Ok(keyring.get(name.as_str())?),
            None if place.is_some() => Err(KeyringError::Missing.into()),
            None => Ok(None),
        }
    }

    /// Checks that a value can be stored: it is neither too short nor too long.
    pub fn check(value: &Secret) -> Result<(), SecretStorageError> {
        let n_characters = value.reveal().chars().count();
        if n_characters < MIN_SECRET_CHARACTERS {
            return Err(SecretStorageError::TooShort { n_characters });
        }
        if value.reveal().len() > MAX_SECRET_BYTES {
            return Err(SecretStorageError::TooLong);
        }
        Ok(())
    }

    /// Stores a secret, replacing the one of this name. An index that is damaged is set aside.
    pub fn set(&self, name: &SecretName, value: &Secret) -> Result<SecretPlace, SecretStorageError> {
        Self::check(value)?;
        let keyring = self.keyring()?;
        let _lock = self.lock()?;
        let mut index = unless_damaged(self.read_index())?.unwrap_or_default();
        let replaced = index.secrets.remove(name);
        if index.secrets.len() >= MAX_SECRETS {
            return Err(SecretStorageError::TooMany);
        }
        let (sealed, is_outdated_in_keyring) = if let Some(keyring) = keyring {
            keyring.set(name.as_str(), value)?;
            (None, false)
        } else {
            let was_in_keyring = |entry: IndexEntry| entry.sealed.is_none() || entry.is_outdated_in_keyring;
            (Some(self.seal(name, value)?), replaced.is_some_and(was_in_keyring))
        };
        let place = if keyring.is_some() { SecretPlace::Keyring } else { SecretPlace::File };
        index.secrets.insert(name.clone(), IndexEntry { sealed, is_outdated_in_keyring });
        self.write_index(&index)?;
        Ok(place)
    }

    /// Removes a secret; returns `false` if there was none.
    pub fn remove(&self, name: &SecretName) -> Result<bool, SecretStorageError> {
        let keyring = self.keyring()?;
        let _lock = self.lock()?;
        let mut index = self.read_index()?;
        let removed = index.secrets.remove(name);
        let place = removed.as_ref().and_then(IndexEntry::place);
        let is_outdated_in_keyring = removed.as_ref().is_some_and(|entry| entry.is_outdated_in_keyring);
        let was_in_keyring = match keyring {
            Some(keyring) => keyring.remove(name.as_str())?,
            None if place == Some(SecretPlace::Keyring) => return Err(KeyringError::Missing.into()),
            None if is_outdated_in_keyring => {
                index.secrets.insert(name.clone(), IndexEntry { sealed: None, is_outdated_in_keyring });
                false
            }
            None => false,
        };
        if removed.is_some() {
            self.write_index(&index)?;
        }
        Ok(place.is_some() || was_in_keyring)
    }

    /// Returns the names of all secrets, with their places.
    pub fn list(&self) -> Result<Vec<(SecretName, SecretPlace)>, SecretStorageError> {
        let secrets = self.read_index()?.secrets;
        let placed = secrets.into_iter().filter_map(|(name, entry)| entry.place().map(|place| (name, place)));
        Ok(placed.collect())
    }

    /// Returns the key that encrypts stored logins. It is created on first use: in the keyring, or in a file that only
    /// this user can read. From then on it is looked for in that place alone, so that no second key is created while
    /// the keyring cannot be reached.
    pub fn sealing_key(&self) -> Result<SealingKey, SecretStorageError> {
        if let Some(place) = self.read_index()?.key
            && let Some(key) = self.key_in(place)?
        {
            return Ok(key);
        }
        let keyring = self.keyring()?;
        let _lock = self.lock()?;
        let mut index = self.read_index()?;
        let place = match (index.key, keyring) {
            (Some(place), _) => place,
            // The index may have been set aside.
            (None, Some(keyring)) if keyring.get(KEY_ENTRY)?.is_some() => SecretPlace::Keyring,
            (None, Some(_)) if self.file_key()?.is_none() => SecretPlace::Keyring,
            (None, _) => SecretPlace::File,
        };
        // Another process may have created it before the lock was taken.
        let key = match (self.key_in(place)?, place, keyring) {
            (Some(key), _, _) => key,
            (None, SecretPlace::Keyring, Some(keyring)) => {
                let (key, text) = self.new_key()?;
                keyring.set(KEY_ENTRY, &text)?;
                key
            }
            (None, SecretPlace::Keyring, None) => return Err(KeyringError::Missing.into()),
            (None, SecretPlace::File, _) => self.create_file_key()?,
        };
        if index.key != Some(place) {
            index.key = Some(place);
            self.write_index(&index)?;
        }
        Ok(key)
    }

    /// Returns the key in a place; `None` if it does not exist.
    fn key_in(&self, place: SecretPlace) -> Result<Option<SealingKey>, SecretStorageError> {
        match place {
            SecretPlace::File => self.file_key(),
            SecretPlace::Keyring => {
                let text = self.keyring()?.ok_or(KeyringError::Missing)?.get(KEY_ENTRY)?;
                let Some(text) = text else { return Ok(None) };
                parse_key(text.reveal()).map(Some).ok_or(SecretStorageError::DamagedKey)
            }
        }
    }

    fn file_key(&self) -> Result<Option<SealingKey>, SecretStorageError> {
        let path = self.folder.join(KEY_FILE);
        let Some(text) = read_private(&path, MAX_INDEX_BYTES)? else { return Ok(None) };
        parse_key(&text).map(Some).ok_or(SecretStorageError::Damaged { path })
    }

    fn create_file_key(&self) -> Result<SealingKey, SecretStorageError> {
        let (key, text) = self.new_key()?;
        replace_private(&self.folder, KEY_FILE, text.reveal().as_bytes())?;
        Ok(key)
    }

    /// Returns a new key, and as text.
    fn new_key(&self) -> Result<(SealingKey, Secret), SecretStorageError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(bytes.as_mut_slice()).map_err(|_| FileError::random(&self.folder))?;
        Ok((SealingKey::new(&bytes), Secret::new(STANDARD.encode(bytes.as_slice()))))
    }

    fn seal(&self, name: &SecretName, value: &Secret) -> Result<String, SecretStorageError> {
        let key = match unless_damaged(self.file_key())?.flatten() {
            Some(key) => key,
            None => self.create_file_key()?,
        };
        let sealed = key.seal(value.reveal().as_bytes(), name.as_str().as_bytes());
        Ok(STANDARD.encode(sealed.ok_or_else(|| FileError::random(&self.folder))?))
    }

    fn unseal(&self, name: &SecretName, sealed: &str) -> Result<Secret, SecretStorageError> {
        let unreadable = || SecretStorageError::Unreadable { path: self.index_path() };
        let key = self.file_key()?.ok_or_else(unreadable)?;
        let sealed = STANDARD.decode(sealed).map_err(|_| unreadable())?;
        let plain = key.open(&sealed, name.as_str().as_bytes()).ok_or_else(unreadable)?;
        std::str::from_utf8(&plain).map(Secret::new).map_err(|_| unreadable())
    }

    fn read_index(&self) -> Result<SecretIndex, SecretStorageError> {
        let path = self.index_path();
        let Some(text) = read_private(&path, MAX_INDEX_BYTES)? else { return Ok(SecretIndex::default()) };
        serde_json::from_str(&text).map_err(|_| SecretStorageError::Damaged { path })
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

/// Reads a key; `None` if it is not one.
fn parse_key(text: &str) -> Option<SealingKey> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    let decoded = Zeroizing::new(STANDARD.decode(text.trim()).ok()?);
    (decoded.len() == KEY_BYTES).then(|| {
        bytes.copy_from_slice(&decoded);
        SealingKey::new(&bytes)
    })
}

/// Renames the file that was read if it is damaged, which is logged. The lock is held.
fn unless_damaged<T>(read: Result<T, SecretStorageError>) -> Result<Option<T>, SecretStorageError> {
    let path = match read {
        Err(SecretStorageError::Damaged { path }) => path,
        read => return read.map(Some),
    };
    let names = (1..=MAX_SET_ASIDE).map(|number| format!("{}.damaged-{number}", path.display()));
    let Some(aside) = names.map(PathBuf::from).find(|name| !name.exists()) else {
        return Err(SecretStorageError::TooManyDamaged { path });
    };
    fs::rename(&path, &aside).map_err(|error| FileError::new(&path, error.to_string()))?;
    tracing::warn!(
        "The file of secrets {} is damaged. It is now {}, and a new one was begun.",
        path.display(),
        aside.display()
    );
    Ok(None)
}
