//! What the operator may set about how clients see the tools.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::ToolboxName;

/// How clients see the tools, if they do not ask for a profile.
///
/// ```
/// use pegboard_core::settings::gateway::{Expose, GatewaySettings};
///
/// let settings: GatewaySettings =
///     serde_json::from_str(r#"{"profiles": {"editor": {"expose": "flat", "toolboxes": ["dev"]}}}"#).unwrap();
/// assert_eq!(settings.expose, Expose::Meta);
/// assert_eq!(settings.profiles["editor"].expose, Expose::Flat);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewaySettings {
    /// What a list of tools holds.
    pub expose: Expose,
    /// Which tools `hybrid` lists beside its own: names and globs.
    pub pinned: Vec<String>,
    /// Whether listed tools keep the names that their servers gave them, where these are unique.
    pub transparent: bool,
    /// Other ways to see the tools, by name.
    pub profiles: IndexMap<String, Profile>,
    /// The toolboxes that say of themselves that their tools are listed, where others are behind the few.
    #[serde(skip)]
    pub listed: BTreeSet<ToolboxName>,
}

/// One way to see the tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Profile {
    /// What a list of tools holds.
    pub expose: Expose,
    /// Which toolboxes there are; without it, all.
    pub toolboxes: Option<Vec<ToolboxName>>,
    /// Which tools `hybrid` lists beside its own: names and globs.
    pub pinned: Vec<String>,
    /// Whether listed tools keep the names that their servers gave them, where these are unique.
    pub transparent: bool,
}

/// What a list of tools holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Expose {
    /// The few tools by which all others are found and used.
    #[default]
    Meta,
    /// Every tool.
    Flat,
    /// One tool for each server, with a mode for each of its tools.
    Agent,
    /// The pinned tools, and those of `meta` for the rest.
    Hybrid,
    /// What suits the client.
    Auto,
}

impl Expose {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Flat => "flat",
            Self::Agent => "agent",
            Self::Hybrid => "hybrid",
            Self::Auto => "auto",
        }
    }
}
