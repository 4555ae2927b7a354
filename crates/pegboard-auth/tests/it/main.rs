//! Integration tests of logins, against an authorization server in this process.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod client_state;
mod login;
mod refresh;
mod secret_storage;
