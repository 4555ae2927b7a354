//! Entries of a configuration file: servers, services, tools, chains and agents.

use pegboard::config::edit::EditPath;
use pegboard::config::{EntrySection, did_you_mean};
use serde_json::Value;

use crate::cli::{CliError, ExitReason};

/// Entry of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigEntry {
    pub(crate) section: EntrySection,
    /// Toolbox; `None` is `default`.
    pub(crate) toolbox: Option<String>,
    pub(crate) name: String,
    pub(crate) path: EditPath,
}

impl ConfigEntry {
    /// Unambiguous address: `dev/github`.
    pub(crate) fn address(&self) -> String {
        format!("{}/{}", self.toolbox.as_deref().unwrap_or("default"), self.name)
    }
}

/// All entries of a file, in order.
pub(crate) fn config_entries(root: &Value) -> Vec<ConfigEntry> {
    let mut parts = toolbox_entries(root, None);
    for (toolbox, value) in root.get("toolboxes").and_then(Value::as_object).into_iter().flatten() {
        parts.extend(toolbox_entries(value, Some(toolbox)));
    }
    parts
}

fn toolbox_entries(value: &Value, toolbox: Option<&str>) -> Vec<ConfigEntry> {
    let mut parts = Vec::new();
    for section in EntrySection::ALL {
        let path = section.path(toolbox);
        let part = |name: &str, path: EditPath| ConfigEntry {
            section,
            toolbox: toolbox.map(str::to_owned),
            name: name.to_owned(),
            path,
        };
        match value.get(section.key()) {
            Some(Value::Object(entries)) => {
                parts.extend(entries.keys().map(|name| part(name, path.clone().key(name))));
            }
            Some(Value::Array(items)) => {
                let texts = items.iter().enumerate().filter_map(|(at, item)| Some((at, item.as_str()?)));
                parts.extend(texts.map(|(at, name)| part(name, path.clone().index(at))));
            }
            _ => {}
        }
    }
    parts
}

/// Finds an entry by name and returns the rest of the name: `github`, `dev/github`, `github/create_issue`.
pub(crate) fn find_entry<'a>(
    parts: &[ConfigEntry],
    name: &'a str,
) -> Result<(ConfigEntry, Option<&'a str>), CliError> {
    let is_in = |part: &ConfigEntry, toolbox: &str| part.toolbox.as_deref().unwrap_or("default") == toolbox;
    let has_name = |part: &ConfigEntry, name: &str| {
        // An agent entry is a file path; its stem is the name that users type.
        let stem = std::path::Path::new(&part.name).file_stem().and_then(|stem| stem.to_str());
        part.name == name || (part.section == EntrySection::Agents && stem == Some(name))
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
        let is_selected =
            |part: &&ConfigEntry| toolbox.is_none_or(|toolbox| is_in(part, toolbox)) && has_name(part, name);
        let found: Vec<&ConfigEntry> = parts.iter().filter(is_selected).collect();
        match found.as_slice() {
            [] => {}
            [only] => return Ok(((*only).clone(), rest)),
            several => {
                let addresses: Vec<String> = several.iter().map(|part| part.address()).collect();
                let failure = CliError::new(ExitReason::Usage, "ambiguous", format!("'{name}' is ambiguous"));
                return Err(failure.hint(format!("use one of {}", addresses.join(", "))));
            }
        }
    }
    let failure = CliError::not_found("unknown_server", format!("no '{name}' in the configuration"));
    let last = name.rsplit('/').next().unwrap_or(name);
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    Err(match did_you_mean(last, names.iter().copied()) {
        Some(meant) => failure.hint(meant),
        None if names.is_empty() => failure.hint("it is empty; add an entry: pegboard add NAME URL"),
        None => failure.hint(format!("expected one of {}", names.join(", "))),
    })
}
