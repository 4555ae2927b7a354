//! Commands that edit Pegboard's configuration file and the files of clients.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod clients;
mod imports;
mod own;
mod stage;
