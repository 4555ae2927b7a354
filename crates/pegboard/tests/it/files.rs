//! Commands that edit Pegboard's configuration file and the files of clients.

mod clients;
mod imports;
mod own;
mod secrets;
pub(crate) mod stage;
