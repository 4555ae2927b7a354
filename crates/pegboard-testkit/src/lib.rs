//! Servers and clients to test against. For development only.

pub mod explorer;
pub mod fixture;
pub mod serve;
