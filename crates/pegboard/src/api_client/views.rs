//! Typed views of API responses, with the fields that commands show.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::{CliError, ExitReason};

/// A toolbox.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ToolboxView {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) servers: Vec<String>,
    pub(crate) chains: Vec<String>,
}

/// A server and its state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServerView {
    pub(crate) toolbox: String,
    pub(crate) server: String,
    pub(crate) kind: String,
    pub(crate) transport: Option<String>,
    pub(crate) state: String,
    pub(crate) tools: u64,
    pub(crate) pid: Option<u32>,
    pub(crate) restarts: Option<u64>,
    /// Number of running instances besides the shared one.
    pub(crate) further_instances: Option<u64>,
    pub(crate) error: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) warnings: Vec<String>,
}

impl ServerView {
    /// Returns `true` if the configuration disables the server.
    pub(crate) fn is_disabled(&self) -> bool {
        self.state == "disabled"
    }

    /// Variables that must be set before the server can be used, if that is all that is missing.
    pub(crate) fn needs(&self) -> Option<&str> {
        missing_variables(self.error.as_deref()?)
    }

    /// `toolbox/server`.
    pub(crate) fn address(&self) -> String {
        format!("{}/{}", self.toolbox, self.server)
    }
}

/// Returns the variables that a server needs, if its failure has no other reason.
pub(crate) fn missing_variables(reason: &str) -> Option<&str> {
    reason.split_once(" cannot be used: needs: ").map(|(_, needs)| needs)
}

/// A tool and its signature.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ToolView {
    pub(crate) address: String,
    pub(crate) toolbox: String,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) signature: String,
    pub(crate) annotations: AnnotationsView,
    pub(crate) tags: Vec<String>,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
    /// Time for which finding it has waited for its server to start; beside the tool in the response.
    #[serde(skip)]
    pub(crate) start_wait_ms: u64,
}

/// Annotations of a tool.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AnnotationsView {
    pub(crate) read_only: Option<bool>,
    pub(crate) destructive: Option<bool>,
    pub(crate) idempotent: Option<bool>,
}

impl AnnotationsView {
    /// One-word label: `reads`, `writes` or `destroys`; empty if unknown.
    pub(crate) fn label(self) -> &'static str {
        match (self.read_only, self.destructive) {
            (Some(true), _) => "reads",
            (_, Some(true)) => "destroys",
            (_, Some(false)) | (Some(false), None) => "writes",
            (None, None) => "",
        }
    }
}

/// Deserializes a member of an API response.
pub(crate) fn view<T: DeserializeOwned>(response: &Value, name: &str) -> Result<T, CliError> {
    T::deserialize(&response[name]).map_err(|error| {
        let message = format!("invalid {name} in the gateway's response: {error}");
        CliError::new(ExitReason::Bug, "internal_error", message)
            .hint("the gateway may have another version: pegboard status")
    })
}
