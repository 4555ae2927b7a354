//! Settings of the gateway: presentation of tools to clients.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::ToolboxName;
use crate::settings::messages::MessageLimits;

/// Presentation of tools to clients that do not select a profile.
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
    /// Content of the tool list.
    pub expose: Expose,
    /// Tools that `hybrid` lists besides its own: names and globs.
    pub pinned: Vec<String>,
    /// Keeps the names that servers gave their tools, where they are unique.
    pub transparent: bool,
    /// Runs a misspelled tool name that names its server: case, `-`, `_` and stray characters are ignored. By
    /// default it is refused with suggestions.
    pub corrections: bool,
    /// Profiles by name.
    pub profiles: IndexMap<String, Profile>,
    /// Names under which HTTP clients reach the gateway, besides those of this machine: `tools.example.com`. They take
    /// effect when the gateway starts.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the gateway: `https://app.example.com`, `http://localhost:3000`. They take
    /// effect when the gateway starts.
    pub allowed_origins: Vec<String>,
    /// Limits of messages from clients. They take effect when the gateway starts.
    pub message_limits: MessageLimits,
    /// Toolboxes that request to be listed in full where others are behind the meta tools.
    #[serde(skip)]
    pub listed: BTreeSet<ToolboxName>,
}

/// A named presentation of tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Profile {
    /// Content of the tool list.
    pub expose: Expose,
    /// Visible toolboxes; all by default.
    pub toolboxes: Option<Vec<ToolboxName>>,
    /// Tools that `hybrid` lists besides its own: names and globs.
    pub pinned: Vec<String>,
    /// Keeps the names that servers gave their tools, where they are unique.
    pub transparent: bool,
    /// Runs a misspelled tool name that names its server: case, `-`, `_` and stray characters are ignored. By
    /// default it is refused with suggestions.
    pub corrections: bool,
}

/// Content of the tool list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Expose {
    /// Meta tools that find and call all others.
    #[default]
    Meta,
    /// Every tool.
    Flat,
    /// One tool per server, with a mode for each of its tools.
    Agent,
    /// The pinned tools, and the meta tools for the rest.
    Hybrid,
    /// Chosen by client.
    Auto,
}

impl Expose {
    /// Returns the value as text.
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
