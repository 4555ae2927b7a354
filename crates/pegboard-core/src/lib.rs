//! Core types: tools, calls and outputs.
//!
//! Modules, in the order a call passes them:
//!
//! - [`registry`]: tools by name, [`search`](registry::ToolSearch) and invocation;
//! - [`id`]: tool identity;
//! - [`entry`]: one tool: name, description, schemas, tags and handler;
//! - [`handler`]: the code behind a tool, custom or a typed function;
//! - [`schema`]: JSON Schema, compiled once, with actionable messages;
//! - [`validation`]: the result of validating one value;
//! - [`call`]: calls from request to result, and the [`Invoker`](call::Invoker) trait that makes them;
//! - [`arguments`] and [`output`]: input and output of a tool, as they were written;
//! - [`client`]: the client that made a call;
//! - [`model`]: language models behind one trait;
//! - [`recorder`]: recording of agent sessions;
//! - [`outcome`]: the outcome of a call, in six fields;
//! - [`error`]: errors of calls;
//! - [`projection`]: results of calls in the formats of different callers;
//! - [`chain`]: tools in sequence or in parallel over a shared context;
//! - [`provider`]: sources of tools;
//! - [`server_log`]: log output of servers;
//! - [`extensions`]: values that others attach to a session or to a catalogue snapshot;
//! - [`settings`]: configuration as plain data;
//! - [`task`]: calls that continue as tasks;
//! - [`trace`]: W3C trace context of a call;
//! - [`store`]: persistent state;
//! - [`redact`]: redaction of secrets;
//! - [`fingerprint`]: hashes that tell settings and contents apart;
//! - [`similar`]: similar names, as suggestions;
//! - [`text`]: truncation and glob matching of text;
//! - [`duration`]: human-readable durations; [`utc`]: dates and times.
//!
//! This crate does no I/O: no sockets, files, processes or environment variables.

pub mod arguments;
pub mod call;
pub mod chain;
pub mod client;
pub mod duration;
pub mod entry;
pub mod error;
pub mod extensions;
pub mod fingerprint;
pub mod handler;
pub mod id;
pub mod memory;
pub mod model;
pub mod outcome;
pub mod output;
pub mod owner;
pub mod printable;
pub mod projection;
pub mod provider;
pub mod recorder;
pub mod redact;
pub mod registry;
pub mod schema;
pub mod secret;
pub mod server_log;
pub mod settings;
pub mod similar;
pub mod store;
pub mod task;
pub mod text;
pub mod trace;
pub mod utc;
pub mod validation;

/// Collects the entries of functions annotated with `#[tool]`, ready to be registered.
///
/// `tools![add, weather::now]` is `[<add>::tool_entry(), <weather::now>::tool_entry()]`.
#[macro_export]
macro_rules! tools {
    ($($function:path),* $(,)?) => {
        [$(<$function>::tool_entry()),*]
    };
}
