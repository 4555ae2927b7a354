//! What a file of ours names: servers, services, tools, chains and agents.

use pegboard::config::edit::Way;
use pegboard::config::near;
use serde_json::Value;

use crate::cli::{Exit, Failure};

/// One thing that a file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) section: Section,
    /// The toolbox; without one it is in `default`.
    pub(crate) toolbox: Option<String>,
    pub(crate) name: String,
    pub(crate) way: Way,
}

/// Where things of a kind stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Servers,
    Services,
    RestTools,
    Chains,
    Agents,
}

impl Section {
    const ALL: [Self; 5] = [Self::Servers, Self::Services, Self::RestTools, Self::Chains, Self::Agents];

    /// What it is called in a file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Servers => "mcpServers",
            Self::Services => "openapiSpecs",
            Self::RestTools => "restTools",
            Self::Chains => "chains",
            Self::Agents => "agents",
        }
    }

    /// What one of them is, in a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Servers => "server",
            Self::Services => "service",
            Self::RestTools => "tool",
            Self::Chains => "chain",
            Self::Agents => "agent",
        }
    }

    /// The way to where they stand.
    pub(crate) fn way(self, toolbox: Option<&str>) -> Way {
        match toolbox {
            Some(toolbox) => Way::to(["toolboxes", toolbox, self.key()]),
            None => Way::to([self.key()]),
        }
    }
}

impl Part {
    /// How people name it where there are several: `dev/github`.
    pub(crate) fn address(&self) -> String {
        format!("{}/{}", self.toolbox.as_deref().unwrap_or("default"), self.name)
    }
}

/// All that a file names, in its order.
pub(crate) fn parts(root: &Value) -> Vec<Part> {
    let mut parts = of_toolbox(root, None);
    for (toolbox, value) in root.get("toolboxes").and_then(Value::as_object).into_iter().flatten() {
        parts.extend(of_toolbox(value, Some(toolbox)));
    }
    parts
}

fn of_toolbox(value: &Value, toolbox: Option<&str>) -> Vec<Part> {
    let mut parts = Vec::new();
    for section in Section::ALL {
        let way = section.way(toolbox);
        let part = |name: &str, way: Way| Part {
            section,
            toolbox: toolbox.map(str::to_owned),
            name: name.to_owned(),
            way,
        };
        match value.get(section.key()) {
            Some(Value::Object(entries)) => {
                parts.extend(entries.keys().map(|name| part(name, way.clone().key(name))));
            }
            Some(Value::Array(items)) => {
                let texts = items.iter().enumerate().filter_map(|(at, item)| Some((at, item.as_str()?)));
                parts.extend(texts.map(|(at, name)| part(name, way.clone().index(at))));
            }
            _ => {}
        }
    }
    parts
}

/// A name that nobody has: the one that is wanted, another that people would know it by, or the first with a number.
pub(crate) fn free_name(wanted: &str, other: Option<String>, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{wanted}-{number}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(other).chain(numbered);
    names.find(|name| is_free(name)).expect("numbers do not end, and names that are taken do")
}

/// The part that somebody names, and what is left of the name: `github`, `dev/github`, `github/create_issue`.
pub(crate) fn find_part<'a>(parts: &[Part], name: &'a str) -> Result<(Part, Option<&'a str>), Failure> {
    let is_in = |part: &Part, toolbox: &str| part.toolbox.as_deref().unwrap_or("default") == toolbox;
    let has_name = |part: &Part, name: &str| {
        // An agent is a file, whose name without its end is what people type.
        let stem = std::path::Path::new(&part.name).file_stem().and_then(|stem| stem.to_str());
        part.name == name || (part.section == Section::Agents && stem == Some(name))
    };
    let mut readings: Vec<(Option<&str>, &str, Option<&str>)> = vec![(None, name, None)];
    if let Some((first, rest)) = name.split_once('/') {
        readings.push((Some(first), rest, None));
        readings.push((None, first, Some(rest)));
        if let Some((second, rest)) = rest.split_once('/') {
            readings.push((Some(first), second, Some(rest)));
        }
    }
    for (toolbox, name, rest) in readings {
        let is_meant =
            |part: &&Part| toolbox.is_none_or(|toolbox| is_in(part, toolbox)) && has_name(part, name);
        let found: Vec<&Part> = parts.iter().filter(is_meant).collect();
        match found.as_slice() {
            [] => {}
            [only] => return Ok(((*only).clone(), rest)),
            several => {
                let addresses: Vec<String> = several.iter().map(|part| part.address()).collect();
                let failure = Failure::new(Exit::Usage, "ambiguous", format!("there are several '{name}'"));
                return Err(failure.hint(format!("say which: {}", addresses.join(", "))));
            }
        }
    }
    let failure = Failure::not_found("unknown_server", format!("there is no '{name}' in the configuration"));
    let last = name.rsplit('/').next().unwrap_or(name);
    Err(match near(last, parts.iter().map(|part| part.name.as_str())) {
        Some(meant) => failure.hint(format!("did you mean {meant}?")),
        None if parts.is_empty() => failure.hint("nothing is in it yet: pegboard add NAME URL"),
        None => {
            let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            failure.hint(format!("there are {}", names.join(", ")))
        }
    })
}
