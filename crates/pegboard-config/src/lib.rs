//! Loads configurations: files in any dialect, environment variables and command line settings.
//!
//! [`load_layers`] reads all sources of a configuration, and [`load`] a single file. The format is detected
//! by the file name and the [`ConfigDialect`] by the contents; variables come from an environment that the caller
//! passes in. A problem of one server leaves out that server, and a problem of the file rejects the file;
//! either way every [`ConfigProblem`] is reported at once, with its location.
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
//! assert!(servers["files"].unusable().is_none());
//! assert_eq!(servers["github"].unusable().unwrap().reason(), "needs: GITHUB_TOKEN");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The pipeline of a file: [`source`] reads its text, `tree` parses it into a tree with spans, `dialect`
//! translates it to the native format, `variables` are expanded, and `read` deserializes the settings.

use std::path::Path;

pub mod agent;
pub mod backups;
pub mod clients;
mod config_file;
pub mod configuration;
pub mod dialect;
pub mod edit;
pub mod error;
pub mod export;
mod find;
pub mod import;
mod inputs;
pub mod inventory;
mod layers;
mod path;
mod plaintext_keys;
mod private_file;
pub mod problem;
pub mod provenance;
mod read;
mod redact;
mod schema;
mod secret_source;
mod section;
pub mod settings;
pub mod source;
pub mod source_spec;
mod to_json;
mod tree;
pub mod trust;
mod variables;

pub use agent::{AgentFile, load_agent};
pub use config_file::{ConfigFile, ConfigFileError};
pub use configuration::{
    AgentEntry, Configuration, ModelProviderEntry, RestEntry, ServerEntry, ToolboxConfig, UnusableEntry,
};
pub use dialect::ConfigDialect;
pub use edit::FileChange;
pub use error::ConfigurationError;
pub use find::{candidates, find, find_native, find_user, user_folder};
pub use inputs::MissingInput;
pub use layers::{Layers, SourceSelection, load_layers};
pub use pegboard_core::similar::{did_you_mean, suggest};
pub use problem::{ConfigProblem, Severity};
pub use provenance::{EffectiveSetting, SettingSource};
pub use schema::native_schema;
pub use secret_source::{SecretSource, assumed_secret};
pub use section::EntrySection;
pub use source::{ConfigFormat, ConfigSource};
pub use source_spec::{SourceSpec, SpecContext, load_spec};

/// Environment variables: returns the value of a name, if it is set.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Loads a configuration from a file.
///
/// Variables come from `environment` alone; the process environment is not used.
pub fn load(path: &Path, environment: Environment<'_>) -> Result<Configuration, ConfigurationError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    load_layers(&Layers::new(folder).file(path), environment)
}

/// Tests the Rust example on the page about the file format.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/configuration.md")]
struct ConfigurationPage;

/// Tests the Rust example on the page about agents.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/agents.md")]
struct AgentsPage;
