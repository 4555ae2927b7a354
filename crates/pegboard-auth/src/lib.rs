//! Credentials for servers: OAuth logins of principals, and their encrypted storage.
//!
//! - `oauth`, with the feature of this name: the OAuth client: discovery, registration, login, refresh;
//! - [`secret_storage`]: secrets of the user, in the keyring of the system or an encrypted file;
//! - [`vault`]: credentials of principals, encrypted at rest.

#[cfg(feature = "oauth")]
pub mod oauth;
pub mod secret_storage;
pub mod vault;
