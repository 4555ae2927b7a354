//! The MCP gateway: serves one catalogue of tools to clients through several profiles.
//!
//! From the outside in:
//!
//! - [`api`]: the HTTP API under `/api/`, as plain JSON, for people and programs;
//! - [`serve`]: serves a gateway over stdio and HTTP; [`access`]: the clients that may use it;
//! - [`Gateway`]: a runtime and the profiles that clients may choose from;
//! - `profile_service`: one profile as an MCP service, for clients of both eras;
//! - `surface`: the tools that a profile lists and the meaning of a call, one file per surface;
//! - `meta`: the meta-tools that find and call all other tools, one file per tool;
//! - `agents`: servers as agents, and their tools as modes;
//! - `list_cache`: encoded results of list requests;
//! - `resource_index` and `resources`: prompts, resources, completions and subscriptions;
//! - `client_request`: one client request, forwarded to the runtime and answered.

#[cfg(feature = "http")]
pub mod access;
mod agents;
#[cfg(feature = "http")]
pub mod api;
mod catalogue_memo;
mod client_request;
mod custom_methods;
mod gateway;
mod header_parameters;
mod instructions;
mod list_cache;
mod meta;
mod opened_views;
mod profile;
mod profile_service;
mod resource_index;
mod resources;
mod result;
pub mod serve;
mod server_subscribers;
mod sessions;
mod surface;
mod tasks;
mod warmup;

pub use gateway::{Gateway, ProfileError, ProfileViews};
pub use meta::meta_tools;
