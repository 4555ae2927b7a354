//! What a person is asked for: `${input:ID}`.

use schemars::JsonSchema;
use serde::Deserialize;

/// How somebody is asked for what a configuration does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct InputSettings {
    /// What is asked for, in words for a person.
    pub(crate) description: Option<String>,
    /// Whether nobody may look on while it is typed.
    pub(crate) password: bool,
    /// What may be answered; without it, anything.
    pub(crate) options: Vec<String>,
}

/// Something that a configuration needs and that only a person can tell. Whoever loads the configuration again answers
/// with it when the environment is asked for `variable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedInput {
    /// What it is called: `token` in `${input:token}`.
    pub id: String,
    /// The variable that the answer is looked for in: `PEGBOARD_INPUT_TOKEN`.
    pub variable: String,
    /// What is asked for, in words for a person.
    pub description: Option<String>,
    /// Whether nobody may look on while it is typed.
    pub is_secret: bool,
    /// What may be answered; if there is nothing, anything.
    pub options: Vec<String>,
}

impl WantedInput {
    pub(crate) fn new(id: &str, variable: &str, asked: Option<&InputSettings>) -> Self {
        // Who is not told that it is harmless had better hide it.
        let asked =
            asked.cloned().unwrap_or_else(|| InputSettings { password: true, ..InputSettings::default() });
        Self {
            id: id.to_owned(),
            variable: variable.to_owned(),
            description: asked.description,
            is_secret: asked.password,
            options: asked.options,
        }
    }
}
