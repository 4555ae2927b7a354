//! The HTTP API, over a real listener.

mod api_server;

mod access;
mod batches;
mod calls;
mod chains;
mod events;
mod history;
mod isolation;
mod logs;
mod outputs;
mod overview;
mod tools;
