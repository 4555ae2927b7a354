//! What the library does, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]
#![expect(clippy::needless_pass_by_value, reason = "cases read better without borrows")]

mod chain;
mod chain_extras;
mod chain_file;
mod chain_paths;
mod durations;
mod mcp_settings;
mod projections;
mod registry;
mod validation;
mod validation_properties;
