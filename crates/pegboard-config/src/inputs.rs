//! Inputs that a person provides: `${input:ID}`.

use schemars::JsonSchema;
use serde::Deserialize;

/// Definition of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct InputDefinition {
    /// Prompt to show.
    pub(crate) description: Option<String>,
    /// Hide the input while it is typed.
    pub(crate) password: bool,
    /// Allowed values; any value if omitted.
    pub(crate) options: Vec<String>,
}

/// An input that a configuration needs and that is not set. To provide it, load the configuration again with
/// `variable` set in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingInput {
    /// ID: `token` in `${input:token}`.
    pub id: String,
    /// Variable that holds the value: `PEGBOARD_INPUT_TOKEN`.
    pub variable: String,
    /// Prompt to show.
    pub description: Option<String>,
    /// `true` if the input is hidden while it is typed.
    pub is_secret: bool,
    /// Allowed values; any value if empty.
    pub options: Vec<String>,
}

impl MissingInput {
    pub(crate) fn new(id: &str, variable: &str, asked: Option<&InputDefinition>) -> Self {
        // Without a definition the input is assumed to be a secret.
        let asked = asked
            .cloned()
            .unwrap_or_else(|| InputDefinition { password: true, ..InputDefinition::default() });
        Self {
            id: id.to_owned(),
            variable: variable.to_owned(),
            description: asked.description,
            is_secret: asked.password,
            options: asked.options,
        }
    }
}
