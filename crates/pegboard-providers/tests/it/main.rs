//! Integration tests of the providers.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod agent;
mod mcp;
mod model;
mod openapi;
mod rest;
