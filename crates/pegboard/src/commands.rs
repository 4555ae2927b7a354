//! The commands, one module each.

pub(crate) mod add;
pub(crate) mod agent_help;
pub(crate) mod auth;
mod batch;
pub(crate) mod bench;
mod call;
mod chain;
mod client_connection;
mod client_file;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config_file;
pub(crate) mod connect;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod export;
mod follow_call;
pub(crate) mod gateway_commands;
pub(crate) mod import;
pub(crate) mod init;
mod logs;
mod ls;
pub(crate) mod man;
pub(crate) mod openapi;
mod output;
mod rejecting_receiver;
mod reload;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod run;
mod schema;
pub(crate) mod secret;
pub(crate) mod serve;
mod server_starts;
mod sessions;
mod status;
mod stop;
mod stored_keys;
mod tools;
mod trace;
pub(crate) mod trust_files;
pub(crate) mod validate;
pub(crate) mod version;

/// Id of the session that the calls of this command share, so that later calls can read stored outputs.
fn session() -> String {
    format!("command-{}", std::process::id())
}
