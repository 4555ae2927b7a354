//! What a gateway tells, as far as people see it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::{Exit, Failure};

/// Servers under one name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ToolboxView {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) servers: Vec<String>,
    pub(crate) chains: Vec<String>,
}

/// Where tools come from, and how it is there.
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
    pub(crate) error: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) warnings: Vec<String>,
}

impl ServerView {
    /// `toolbox/server`.
    pub(crate) fn address(&self) -> String {
        format!("{}/{}", self.toolbox, self.server)
    }
}

/// A tool, and what a call of it looks like.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ToolView {
    pub(crate) address: String,
    pub(crate) toolbox: String,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) signature: String,
    pub(crate) annotations: Annotations,
    pub(crate) tags: Vec<String>,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
}

/// What a tool says of what it does.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Annotations {
    pub(crate) read_only: Option<bool>,
    pub(crate) destructive: Option<bool>,
}

impl Annotations {
    /// In one word: `reads`, `writes` or `destroys`; empty if the tool does not say.
    pub(crate) fn word(self) -> &'static str {
        match (self.read_only, self.destructive) {
            (Some(true), _) => "reads",
            (_, Some(true)) => "destroys",
            (_, Some(false)) | (Some(false), None) => "writes",
            (None, None) => "",
        }
    }
}

/// A member of what a gateway told.
pub(crate) fn view<T: DeserializeOwned>(told: &Value, name: &str) -> Result<T, Failure> {
    T::deserialize(&told[name]).map_err(|error| {
        let message = format!("the gateway tells {name} in a way that is not understood: {error}");
        Failure::new(Exit::Bug, "internal_error", message).hint("it may be another version: pegboard status")
    })
}
