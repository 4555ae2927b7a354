//! Providers of tools, and the models of agents.
//!
//! - [`agent`]: agents, each a model with its own tools; `builtin` and `router` are the tools of agent
//!   sessions;
//! - [`mcp`]: MCP servers over stdio, HTTP, WebSocket and byte streams;
//! - [`model`]: models behind the APIs of several vendors;
//! - [`openapi`]: web services described by an OpenAPI document;
//! - [`process`]: child processes, ended together with all their descendants;
//! - [`rest`]: tools that send HTTP requests to web services.

pub mod agent;
mod builtin;
pub mod mcp;
pub mod model;
pub mod openapi;
pub mod process;
pub mod rest;
mod router;
