//! OpenAPI providers with a local service.

mod harness;

mod cases;
mod documents;
mod hostile;
mod requests;
mod security;
