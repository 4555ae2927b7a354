//! Secrets of the user in a keyring, and in an encrypted file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pegboard_auth::secret_storage::{
    Keyring, KeyringError, SecretName, SecretPlace, SecretStorage, SecretStorageError,
};
use pegboard_core::secret::Secret;

/// A keyring in memory.
#[derive(Default)]
struct MemoryKeyring(Mutex<BTreeMap<String, Secret>>);

impl Keyring for MemoryKeyring {
    fn get(&self, name: &str) -> Result<Option<Secret>, KeyringError> {
        Ok(self.0.lock().get(name).cloned())
    }

    fn set(&self, name: &str, value: &Secret) -> Result<(), KeyringError> {
        self.0.lock().insert(name.to_owned(), value.clone());
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool, KeyringError> {
        Ok(self.0.lock().remove(name).is_some())
    }
}

fn name(name: &str) -> SecretName {
    SecretName::new(name).unwrap()
}

fn get(storage: &SecretStorage, wanted: &str) -> Option<String> {
    storage.get(&name(wanted)).unwrap().map(|secret| secret.reveal().to_owned())
}

/// Returns the text of all files in a folder, and checks that only this user can access them.
fn all_files(folder: &Path) -> String {
    let mut text = String::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{}", path.display());
        }
        text += &std::fs::read_to_string(&path).unwrap();
    }
    text
}

#[test]
fn a_secret_is_kept_in_either_place_and_no_file_contains_it() {
    for (keyring, place) in [
        (None, SecretPlace::File),
        (Some(Arc::new(MemoryKeyring::default()) as Arc<dyn Keyring>), SecretPlace::Keyring),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let storage = || SecretStorage::with_keyring(&state, keyring.clone());
        assert_eq!(get(&storage(), "github"), None);
        assert!(!state.exists(), "reading creates nothing");
        for value in ["first-canary", "second-canary"] {
            assert_eq!(storage().set(&name("github"), &Secret::new(value)).unwrap(), place);
            assert_eq!(get(&storage(), "github").as_deref(), Some(value));
        }
        storage().set(&name("work/api"), &Secret::new("third-canary")).unwrap();
        assert_eq!(storage().list().unwrap(), [(name("github"), place), (name("work/api"), place)]);
        assert!(!all_files(&state).contains("canary"), "{place:?}");
        assert!(storage().remove(&name("github")).unwrap());
        assert!(!storage().remove(&name("github")).unwrap());
        assert_eq!(get(&storage(), "github"), None);
        assert_eq!(get(&storage(), "work/api").as_deref(), Some("third-canary"));
    }
}

#[test]
fn values_that_cannot_be_redacted_or_stored_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let storage = SecretStorage::with_keyring(folder.path(), None);
    let refusal = |value: &str| storage.set(&name("a"), &Secret::new(value)).unwrap_err().to_string();
    insta::assert_snapshot!(refusal("abc"), @"the value has 3 characters: secrets of fewer than 4 cannot be kept out of logs, because they occur in innocent text; use a longer one");
    insta::assert_snapshot!(refusal(&"x".repeat(2049)), @"the value is larger than 2048 bytes; put it into a file and refer to it with ${file:PATH}");
    assert_eq!(storage.list().unwrap(), []);
}

#[test]
fn a_sealed_value_does_not_open_under_another_name_or_key() {
    let folder = tempfile::tempdir().unwrap();
    let storage = SecretStorage::with_keyring(folder.path(), None);
    storage.set(&name("one"), &Secret::new("first-canary")).unwrap();
    let index = std::fs::read_to_string(storage.index_path()).unwrap();
    std::fs::write(storage.index_path(), index.replace("one", "two")).unwrap();
    assert!(matches!(storage.get(&name("two")), Err(SecretStorageError::Unreadable { .. })));
    std::fs::write(storage.index_path(), index).unwrap();
    assert_eq!(get(&storage, "one").as_deref(), Some("first-canary"));
    std::fs::remove_file(folder.path().join("sealing.key")).unwrap();
    assert!(matches!(storage.get(&name("one")), Err(SecretStorageError::Unreadable { .. })));
}

#[test]
fn a_secret_in_a_keyring_that_is_gone_is_reported_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let keyring: Arc<dyn Keyring> = Arc::new(MemoryKeyring::default());
    let with = SecretStorage::with_keyring(folder.path(), Some(Arc::clone(&keyring)));
    with.set(&name("github"), &Secret::new("a-canary")).unwrap();
    let without = SecretStorage::with_keyring(folder.path(), None);
    let missing = |error| matches!(error, SecretStorageError::Keyring(KeyringError::Missing));
    assert!(without.get(&name("github")).is_err_and(missing));
    assert!(without.remove(&name("github")).is_err_and(missing));
    // Set again, it moves into the file.
    without.set(&name("github"), &Secret::new("b-canary")).unwrap();
    assert_eq!(get(&without, "github").as_deref(), Some("b-canary"));
    // An entry of other tools under the same service is found without the index.
    keyring.set("by-hand", &Secret::new("c-canary")).unwrap();
    assert_eq!(get(&with, "by-hand").as_deref(), Some("c-canary"));
}

#[test]
fn an_older_value_in_the_keyring_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let keyring: Arc<dyn Keyring> = Arc::new(MemoryKeyring::default());
    let desktop = || SecretStorage::with_keyring(folder.path(), Some(Arc::clone(&keyring)));
    let ssh = || SecretStorage::with_keyring(folder.path(), None);
    let set = |storage: SecretStorage, value| storage.set(&name("github"), &Secret::new(value)).unwrap();
    for (removing, is_left) in [(desktop(), false), (ssh(), true)] {
        assert_eq!(set(desktop(), "first-canary"), SecretPlace::Keyring);
        assert_eq!(set(ssh(), "second-canary"), SecretPlace::File);
        assert_eq!(get(&desktop(), "github").as_deref(), Some("second-canary"));
        assert!(removing.remove(&name("github")).unwrap());
        assert_eq!(keyring.get("github").unwrap().is_some(), is_left);
        for storage in [desktop(), ssh()] {
            assert_eq!(get(&storage, "github"), None);
            assert_eq!(storage.list().unwrap(), []);
        }
        assert!(!ssh().remove(&name("github")).unwrap());
    }
    assert!(desktop().remove(&name("github")).unwrap(), "the older value is removed when there is a keyring");
    assert!(keyring.get("github").unwrap().is_none());
    assert_eq!(set(ssh(), "third-canary"), SecretPlace::File);
    assert_eq!(set(desktop(), "fourth-canary"), SecretPlace::Keyring);
    assert_eq!(get(&desktop(), "github").as_deref(), Some("fourth-canary"));
}

#[test]
fn a_session_without_a_keyring_does_not_replace_the_key_of_logins() {
    let folder = tempfile::tempdir().unwrap();
    let keyring: Arc<dyn Keyring> = Arc::new(MemoryKeyring::default());
    let desktop = || SecretStorage::with_keyring(folder.path(), Some(Arc::clone(&keyring)));
    let ssh = || SecretStorage::with_keyring(folder.path(), None);
    let sealed = desktop().sealing_key().unwrap().seal(b"a login", b"name").unwrap();
    let opened = |storage: SecretStorage| storage.sealing_key().unwrap().open(&sealed, b"name");

    ssh().set(&name("other"), &Secret::new("a-canary")).unwrap();
    let missing = |error| matches!(error, SecretStorageError::Keyring(KeyringError::Missing));
    assert!(ssh().sealing_key().is_err_and(missing));
    assert_eq!(opened(desktop()).unwrap().as_slice(), b"a login");
    assert_eq!(get(&desktop(), "other").as_deref(), Some("a-canary"));

    // A key that began in the file stays there.
    let folder = tempfile::tempdir().unwrap();
    let sealed = SecretStorage::with_keyring(folder.path(), None);
    let sealed = sealed.sealing_key().unwrap().seal(b"a login", b"name").unwrap();
    let desktop = SecretStorage::with_keyring(folder.path(), Some(keyring));
    assert_eq!(desktop.sealing_key().unwrap().open(&sealed, b"name").unwrap().as_slice(), b"a login");
}

/// A keyring that asks its user, who does not answer.
struct LockedKeyring;

impl Keyring for LockedKeyring {
    fn get(&self, _: &str) -> Result<Option<Secret>, KeyringError> {
        Err(KeyringError::TimedOut)
    }

    fn set(&self, _: &str, _: &Secret) -> Result<(), KeyringError> {
        Err(KeyringError::TimedOut)
    }

    fn remove(&self, _: &str) -> Result<bool, KeyringError> {
        Err(KeyringError::TimedOut)
    }
}

#[test]
fn a_locked_keyring_is_not_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let storage = SecretStorage::with_keyring(folder.path(), Some(Arc::new(LockedKeyring)));
    let timed_out =
        |error: &SecretStorageError| matches!(error, SecretStorageError::Keyring(KeyringError::TimedOut));
    assert!(storage.set(&name("one"), &Secret::new("a-canary")).is_err_and(|error| timed_out(&error)));
    assert!(storage.get(&name("one")).is_err_and(|error| timed_out(&error)));
    assert!(storage.remove(&name("one")).is_err_and(|error| timed_out(&error)));
    assert!(storage.sealing_key().is_err_and(|error| timed_out(&error)));
    assert!(!all_files(folder.path()).contains("sealed"), "nothing is stored in another place");
    assert!(!folder.path().join("sealing.key").exists());
}

#[test]
fn a_damaged_file_is_set_aside_when_a_secret_is_set() {
    for damaged in ["secrets.json", "sealing.key"] {
        let folder = tempfile::tempdir().unwrap();
        let storage = || SecretStorage::with_keyring(folder.path(), None);
        storage().set(&name("one"), &Secret::new("first-canary")).unwrap();
        // Written in place: the permissions stay.
        std::fs::write(folder.path().join(damaged), "garbage").unwrap();
        let error = storage().get(&name("one")).err().unwrap();
        assert!(matches!(error, SecretStorageError::Damaged { .. }), "{error}");
        storage().set(&name("two"), &Secret::new("second-canary")).unwrap();
        let aside = folder.path().join(format!("{damaged}.damaged-1"));
        assert_eq!(std::fs::read_to_string(aside).unwrap(), "garbage");
        assert_eq!(get(&storage(), "two").as_deref(), Some("second-canary"));
    }
}

#[cfg(unix)]
#[test]
fn files_that_others_can_read_or_replace_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let storage = SecretStorage::with_keyring(folder.path(), None);
    storage.set(&name("one"), &Secret::new("first-canary")).unwrap();
    for file in ["sealing.key", "secrets.json"] {
        let path = folder.path().join(file);
        let refused = || storage.get(&name("one")).err().map(|error| error.to_string());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(refused().unwrap().contains("other users can access it"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let moved = folder.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        symlink(&moved, &path).unwrap();
        assert!(refused().is_some(), "a link is followed");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!(refused(), None);
    }
}

#[test]
fn processes_that_start_at_once_share_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("secret-{number}")).collect();
    std::thread::scope(|scope| {
        for each in &names {
            let folder = folder.path();
            scope.spawn(move || {
                let storage = SecretStorage::with_keyring(folder, None);
                storage.sealing_key().unwrap();
                storage.set(&name(each), &Secret::new(format!("value of {each}"))).unwrap();
            });
        }
    });
    let storage = SecretStorage::with_keyring(folder.path(), None);
    for each in &names {
        assert_eq!(get(&storage, each), Some(format!("value of {each}")));
    }
}
