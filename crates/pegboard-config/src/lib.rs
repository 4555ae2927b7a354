//! What the user wrote, turned into what we run with.
//!
//! [`load_layers`] reads all sources of a configuration, and [`load`] one file: the notation by its name, the [`Dialect`] by what is in it, the variables from an
//! environment that the caller hands in. What is wrong with one server leaves out that server; what is wrong with the
//! file refuses it; either way every [`Problem`] is told at once, with its place.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("pegboard.yaml");
//! std::fs::write(&path, "
//! toolTimeout: 30s
//! mcpServers:
//!   files: {command: my-server, args: ['${ROOT:-/srv}']}
//!   github: {url: https://example.com/mcp, headers: {Authorization: 'Bearer ${GITHUB_TOKEN}'}}
//! ")?;
//! let configuration = pegboard_config::load(&path, &|_| None)?;
//! let servers = &configuration.toolboxes["default"].servers;
//! assert_eq!(servers["files"].obstacle(), None);
//! assert_eq!(servers["github"].obstacle().unwrap(), "needs: GITHUB_TOKEN");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way of a file: [`source`] reads its text, `tree` makes a tree of it in which every value knows its place,
//! `dialect` says what the tree means, `variables` are filled in part by part, and `read` turns values into settings.

use std::path::Path;

pub mod agent;
pub mod clients;
pub mod configuration;
pub mod dialect;
pub mod edit;
pub mod error;
mod find;
mod inputs;
mod layers;
mod mask;
mod near;
pub mod origins;
mod path;
mod plain;
pub mod problem;
mod read;
mod schema;
pub mod source;
pub mod spec;
pub mod survey;
mod tree;
mod variables;

pub use agent::{AgentFile, load_agent};
pub use configuration::{AgentEntry, Configuration, ModelProvider, RestEntry, Server, Toolbox};
pub use dialect::Dialect;
pub use error::ConfigurationError;
pub use find::{candidates, find, find_user, user_folder};
pub use inputs::WantedInput;
pub use layers::{Layers, View, load_layers};
pub use near::near;
pub use origins::{Origin, Setting};
pub use problem::{Problem, Severity};
pub use schema::native_schema;
pub use source::{Format, Source};
pub use spec::{Around, Spec, load_spec};

/// Reads a configuration from a file.
///
/// Variables come from `environment` alone; the process's own is not looked at.
pub fn load(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigurationError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    load_layers(&Layers::new(folder).file(path), environment)
}

/// The page about the file, whose example in Rust must work.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/configuration.md")]
struct Page;

/// The page about agents, whose example in Rust must work.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/agents.md")]
struct AgentsPage;
