//! Credentials for servers: OAuth logins of principals, and their encrypted storage.
//!
//! - [`oauth`]: the OAuth client: discovery, registration, login, refresh;
//! - [`vault`]: credentials of principals, encrypted at rest.

pub mod oauth;
pub mod vault;
