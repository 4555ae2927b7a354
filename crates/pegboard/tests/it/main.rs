//! Integration tests of the facade and of the commands.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

#[cfg(unix)]
mod bench;
#[cfg(unix)]
mod completion;
mod demo;
mod doctor;
mod embedding;
#[cfg(unix)]
mod exit_codes;
mod files;
mod run;
mod sampling;
mod serve;
mod telemetry;
mod tool_macro;
#[cfg(unix)]
mod trust;
