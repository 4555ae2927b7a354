//! REST tools with local web services.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod harness;

mod answers;
mod hostile;
mod requests;
mod streams;
