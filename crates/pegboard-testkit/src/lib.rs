//! Servers and clients to test against. For development only.

pub mod explorer;
pub mod fixture;
#[cfg(unix)]
pub mod hostile;
pub mod serve;
