//! Sections of a configuration file that hold entries.

use std::fmt;

use crate::edit::EditPath;

/// Keys of the sections, in the order of [`EntrySection::ALL`].
pub(crate) const SECTIONS: [&str; 5] = ["mcpServers", "openapiSpecs", "restTools", "chains", "agents"];

/// Section of a configuration file that holds servers, tools, chains or agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntrySection {
    /// MCP servers.
    Servers,
    /// Web services with an OpenAPI document.
    OpenApiServices,
    /// Tools that send one HTTP request.
    RestTools,
    /// Chains.
    Chains,
    /// Agent files.
    Agents,
}

impl EntrySection {
    /// All sections.
    pub const ALL: [Self; 5] =
        [Self::Servers, Self::OpenApiServices, Self::RestTools, Self::Chains, Self::Agents];

    /// Key of the section.
    pub fn key(self) -> &'static str {
        SECTIONS[self as usize]
    }

    /// Noun for one entry.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Servers => "server",
            Self::OpenApiServices => "service",
            Self::RestTools => "tool",
            Self::Chains => "chain",
            Self::Agents => "agent",
        }
    }

    /// Returns the path of the section, at the root or in a toolbox.
    pub fn path(self, toolbox: Option<&str>) -> EditPath {
        let toolbox = toolbox.map(|toolbox| ["toolboxes", toolbox]);
        EditPath::from_keys(toolbox.into_iter().flatten().chain([self.key()]))
    }
}

/// Shows the key.
impl fmt::Display for EntrySection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}
