//! OpenAPI providers with a local service.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod harness;

mod cases;
mod documents;
mod hostile;
mod requests;
mod security;
