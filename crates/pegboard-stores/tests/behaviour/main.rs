//! What every engine does alike.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod agreement;
mod cache;
mod catalogue;
mod engine;
mod history;
mod outputs;
mod sessions;
mod slots;
mod traces;
