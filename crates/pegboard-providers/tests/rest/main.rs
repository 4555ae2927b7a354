//! Tools that are requests, against web services of this process.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod stage;

mod answers;
mod hostile;
mod requests;
mod streams;
