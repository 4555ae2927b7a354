//! The keyring of the system: the Secret Service, the Keychain, or the Credential Manager.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use keyring_core::{CredentialStore, Entry};
use pegboard_core::secret::Secret;
use zeroize::Zeroizing;

/// Service that all entries are stored under.
const SERVICE: &str = "pegboard";

/// Time limit of a request: a keyring that is locked asks its user for a password.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Reason why the keyring did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// The keyring that holds the value cannot be reached in this session.
    #[error(
        "the secret is in the keyring of the system, which cannot be reached from here; log in to the desktop, or set \
         the secret again"
    )]
    Missing,
    /// The keyring did not answer.
    #[error("the keyring did not answer within {} s; unlock it and try again", TIMEOUT.as_secs())]
    TimedOut,
    /// The keyring is locked, or refused.
    #[error("the keyring refused: {0}; unlock it and try again")]
    Refused(String),
}

/// Secrets by name, outside of the state folder.
pub trait Keyring: Send + Sync {
    /// Returns an entry.
    fn get(&self, name: &str) -> Result<Option<Secret>, KeyringError>;
    /// Stores an entry, replacing the one of this name.
    fn set(&self, name: &str, value: &Secret) -> Result<(), KeyringError>;
    /// Removes an entry; returns `false` if there was none.
    fn remove(&self, name: &str) -> Result<bool, KeyringError>;
}

/// The keyring of the system.
pub struct SystemKeyring(Option<Arc<CredentialStore>>);

impl SystemKeyring {
    /// Returns the keyring; `None` if this system or session has none. One that is slow is not taken for none: what it
    /// holds would be replaced.
    pub fn find() -> Result<Option<Self>, KeyringError> {
        if !platform::may_have_keyring() {
            return Ok(None);
        }
        let found = in_thread(platform::open)?;
        let found = found.inspect_err(|error| tracing::debug!(%error, "There is no keyring.")).ok();
        Ok(found.map(|store| Self(Some(store))))
    }

    /// Does something with an entry.
    fn with<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
    ) -> Result<Option<T>, KeyringError> {
        let (store, name) = (self.0.clone().ok_or(KeyringError::Missing)?, name.to_owned());
        let done = in_thread(move || store.build(SERVICE, &name, None).and_then(|entry| work(&entry)))?;
        match done {
            Ok(done) => Ok(Some(done)),
            Err(keyring_core::Error::NoEntry) => Ok(None),
            // Errors of the decoding contain the value.
            Err(keyring_core::Error::BadEncoding(_)) => {
                Err(KeyringError::Refused("the entry is not text".to_owned()))
            }
            Err(error) => Err(KeyringError::Refused(error.to_string())),
        }
    }
}

/// The client of D-Bus waits when it disconnects, which panics in an asynchronous task, so it does so in a thread.
impl Drop for SystemKeyring {
    fn drop(&mut self) {
        let store = self.0.take();
        let _ = thread::Builder::new().name("keyring".to_owned()).spawn(move || drop(store));
    }
}

impl Keyring for SystemKeyring {
    fn get(&self, name: &str) -> Result<Option<Secret>, KeyringError> {
        self.with(name, |entry| entry.get_password().map(Secret::new))
    }

    fn set(&self, name: &str, value: &Secret) -> Result<(), KeyringError> {
        let value = Zeroizing::new(value.reveal().to_owned());
        self.with(name, move |entry| entry.set_password(&value)).map(|_| ())
    }

    fn remove(&self, name: &str) -> Result<bool, KeyringError> {
        Ok(self.with(name, Entry::delete_credential)?.is_some())
    }
}

/// Runs something in a thread of its own: the clients of keyrings block, some with an event loop of their own. A
/// thread that does not end in time is left behind.
fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, KeyringError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let started = thread::Builder::new().name("keyring".to_owned()).spawn(move || sender.send(work()));
    started.map_err(|error| KeyringError::Refused(error.to_string()))?;
    receiver.recv_timeout(TIMEOUT).map_err(|error| match error {
        RecvTimeoutError::Timeout => KeyringError::TimedOut,
        RecvTimeoutError::Disconnected => KeyringError::Refused("its client ended".to_owned()),
    })
}

#[cfg(target_os = "macos")]
mod platform {
    use super::{Arc, CredentialStore};

    pub(super) fn may_have_keyring() -> bool {
        true
    }

    pub(super) fn open() -> keyring_core::Result<Arc<CredentialStore>> {
        Ok(apple_native_keyring_store::keychain::Store::new()?)
    }
}

#[cfg(windows)]
mod platform {
    use super::{Arc, CredentialStore};

    pub(super) fn may_have_keyring() -> bool {
        true
    }

    pub(super) fn open() -> keyring_core::Result<Arc<CredentialStore>> {
        Ok(windows_native_keyring_store::Store::new()?)
    }
}

#[cfg(not(any(target_os = "macos", windows)))]
mod platform {
    use std::path::Path;

    use super::{Arc, CredentialStore};

    /// The Secret Service is on the session bus; without one there is nothing to wait for. Programs that are started
    /// with few variables find the bus in the folder of the user.
    pub(super) fn may_have_keyring() -> bool {
        let bus = std::env::var_os("DBUS_SESSION_BUS_ADDRESS");
        let user = rustix::process::geteuid().as_raw();
        bus.is_some_and(|address| !address.is_empty()) || Path::new(&format!("/run/user/{user}/bus")).exists()
    }

    pub(super) fn open() -> keyring_core::Result<Arc<CredentialStore>> {
        Ok(zbus_secret_service_keyring_store::Store::new()?)
    }
}
