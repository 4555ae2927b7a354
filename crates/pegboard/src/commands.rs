//! What the command line can do, a file for each command.

pub(crate) mod add;
pub(crate) mod agent_help;
pub(crate) mod asking;
mod backups;
mod batch;
mod call;
mod chain;
mod client_file;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod init;
mod logs;
mod ls;
pub(crate) mod man;
pub(crate) mod openapi;
mod output;
pub(crate) mod own_file;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod run;
mod schema;
pub(crate) mod serve;
mod sessions;
mod status;
mod talk;
mod tools;
mod trace;
pub(crate) mod validate;
pub(crate) mod version;

/// The session that the calls of this command belong to, so that what they leave behind can be read back.
fn session() -> String {
    format!("command-{}", std::process::id())
}
