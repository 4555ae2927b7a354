//! A gateway as clients of both eras see it, through the real MCP client.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod fixture;
mod recording_server;

mod agents;
mod api;
mod bridge;
mod bytes;
mod discovery;
mod hostile;
mod interaction;
mod lifetimes;
mod names;
mod principals;
mod profiles;
mod protocol;
mod reloads;
mod resources;
mod serving;
mod tasks;
mod toolboxes;
mod warmup;
