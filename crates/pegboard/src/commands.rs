//! What the command line can do, a file for each command.

pub(crate) mod add;
pub(crate) mod agent_help;
pub(crate) mod asking;
mod backups;
mod call;
mod client_file;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod export;
pub(crate) mod init;
mod ls;
pub(crate) mod man;
pub(crate) mod openapi;
pub(crate) mod own_file;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
mod status;
mod talk;
mod tools;
pub(crate) mod version;
