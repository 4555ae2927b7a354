//! Providers of tools, and the models of agents.
//!
//! - [`agent`]: agents, each a model with its own tools; `builtin` and `router` are the tools of agent
//!   sessions;
//! - [`mcp`]: MCP servers over stdio, HTTP, WebSocket and byte streams;
//! - [`model`]: models behind the APIs of several vendors;
//! - [`openapi`]: web services described by an OpenAPI document;
//! - [`process`]: child processes, ended together with all their descendants;
//! - [`rest`]: tools that send HTTP requests to web services.

#[cfg(feature = "agents")]
pub mod agent;
#[cfg(feature = "agents")]
mod builtin;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "agents")]
pub mod model;
#[cfg(feature = "openapi")]
pub mod openapi;
#[cfg(feature = "mcp")]
pub mod process;
#[cfg(feature = "rest")]
pub mod rest;
#[cfg(feature = "agents")]
mod router;
