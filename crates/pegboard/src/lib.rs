//! Pegboard as a library: a tool runtime and gateway for AI agents.
//!
//! ```
//! use pegboard::prelude::*;
//!
//! /// Convert a temperature to Fahrenheit.
//! #[tool(tags("units"), read_only)]
//! async fn fahrenheit(
//!     /// Degrees Celsius
//!     celsius: f64,
//! ) -> Result<f64> {
//!     Ok(celsius * 9.0 / 5.0 + 32.0)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let registry = ToolRegistry::new().with(tools![fahrenheit])?;
//! let outcome = registry.invoke("fahrenheit", json!({"celsius": 100})).await;
//! assert_eq!(outcome.data, 212.0);
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features select what is built. None is needed for tools, registries and chains; `runtime` adds the call pipeline,
//! `gateway` serves clients, and `app` builds both from a configuration. `cli` (default) is for the binary.

#[cfg(feature = "yaml")]
mod chain_file;
#[cfg(feature = "gateway")]
mod serve;
#[cfg(feature = "app")]
pub mod telemetry;
#[cfg(feature = "app")]
pub mod wiring;

#[cfg(feature = "yaml")]
pub use chain_file::{ChainFileError, read_chain};
#[cfg(feature = "app")]
pub use pegboard_config as config;
#[doc(inline)]
pub use pegboard_core::tools;
pub use pegboard_core::{
    arguments, call, chain, client, duration, entry, error, error::Result, handler, id, model, outcome,
    output, owner, printable, projection, provider, redact, registry, schema, secret, settings, store, text,
    trace, validation,
};
#[cfg(feature = "gateway")]
pub use pegboard_gateway as gateway;
pub use pegboard_json as json;
pub use pegboard_macros::tool;
#[cfg(any(feature = "agents", feature = "mcp", feature = "openapi", feature = "rest"))]
pub use pegboard_providers as providers;
#[cfg(feature = "runtime")]
pub use pegboard_runtime as runtime;
#[cfg(feature = "sqlite")]
pub use pegboard_stores as stores;
#[cfg(feature = "gateway")]
pub use pegboard_wire as wire;
pub use schemars;
pub use serde;
pub use serde_json;
#[cfg(feature = "gateway")]
pub use serve::serve;

/// Common imports: `use pegboard::prelude::*`.
pub mod prelude {
    pub use crate::chain::{ChainResult, ChainStep, ToolChain};
    pub use crate::entry::{ToolAnnotations, ToolDefinition, ToolEntry};
    pub use crate::error::{Result, ToolError};
    pub use crate::outcome::{Outcome, OutcomeStatus};
    pub use crate::registry::{ToolRegistry, ToolSearch};
    pub use crate::schema::{Schema, SchemaRules};
    pub use crate::validation::{ValidationResult, validate_input, validate_output};
    pub use crate::{tool, tools};
    #[cfg(feature = "gateway")]
    pub use pegboard_gateway::Gateway;
    #[cfg(feature = "runtime")]
    pub use pegboard_runtime::Runtime;
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the examples of `docs/tools.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tools.md")]
struct ToolsPage;

/// Compiles and runs the examples of `docs/chains.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/chains.md")]
struct ChainsPage;

/// Compiles and runs the examples of `docs/runtime.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/runtime.md")]
struct RuntimePage;

/// Compiles and runs the examples of `docs/embedding.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingPage;

/// Compiles and runs the examples of `docs/servers.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/servers.md")]
struct ServersPage;
