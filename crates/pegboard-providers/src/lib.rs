//! Where tools come from.
//!
//! - [`agent`]: agents, each a model with tools of its own; `builtin` and `router` are what they have besides;
//! - [`mcp`]: MCP servers, wherever they are;
//! - [`model`]: models of several providers, for those who hold conversations with them;
//! - [`openapi`]: web services that have an OpenAPI document;
//! - [`process`]: programs that are started, watched and ended with everything they started themselves;
//! - [`rest`]: tools that are requests to web services;
//! - [`web`]: the one way out to web services.

pub mod agent;
mod builtin;
pub mod mcp;
pub mod model;
pub mod openapi;
pub mod process;
pub mod rest;
mod router;
pub mod web;
