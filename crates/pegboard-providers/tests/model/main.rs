//! Models of every kind, against a model that follows a script.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod stage;

mod conversations;
mod faults;
mod patience;
mod quirks;
mod replies;
mod requests;
mod sampling;
mod secrets;
