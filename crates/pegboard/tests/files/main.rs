//! Commands that change files: our own, and those of clients.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod clients;
mod imports;
mod own;
mod stage;
