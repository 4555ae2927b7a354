//! Services with an OpenAPI document as providers, against a service of this process.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod stage;

mod cases;
mod documents;
mod hostile;
mod requests;
mod security;
