//! Integration tests of the library.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]
#![expect(clippy::needless_pass_by_value, reason = "cases read better without borrows")]

mod chain;
mod chain_extras;
mod chain_file;
mod chain_paths;
mod costly_schemas;
mod durations;
mod projections;
mod registry;
mod validation;
mod validation_properties;
