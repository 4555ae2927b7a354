//! MCP servers as providers, against servers in this process.

mod scripted;
mod tasks;

mod calls;
mod elicitation;
mod eras;
mod hostile;
mod lifecycle;
mod listing_cache;
mod lists;
mod other_lists;
mod programs;
mod remote;
mod requests;
mod runtime;
mod sessions;
mod wire_log;
