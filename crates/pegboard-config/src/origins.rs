//! Where each value of a configuration is from.

use std::fmt;
use std::path::PathBuf;

use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::telemetry::TelemetrySettings;
use serde_json::{Map, Value as Json, json};

use crate::configuration::Configuration;
use crate::dialect::root_names;
use crate::mask::masked;
use crate::path::Path;
use crate::schema::Place;
use crate::source::{Medium, Text};
use crate::tree::{Node, Value};

/// One value of a configuration, as somebody wrote it, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The way to it: `mcpServers.github.url`.
    pub way: String,
    /// What was written, without secrets. Variables are not filled in. A list is one value.
    pub value: Json,
    /// Where it was written.
    pub origin: Origin,
}

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From nobody: this is what holds if nobody says otherwise.
    BuiltIn,
    /// From a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, in characters, from 1.
        column: usize,
    },
    /// From the environment, the command line, or what else is no file.
    Given {
        /// What it is called there: `PEGBOARD__TOOL_TIMEOUT`, `--set toolTimeout`.
        name: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Given { name } => f.write_str(name),
        }
    }
}

impl Configuration {
    /// Every value that counts, with its origin: what somebody wrote, and for all that holds for the whole also what is
    /// built in.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pegboard.yaml");
    /// std::fs::write(&path, "toolTimeout: 30s")?;
    /// let configuration = pegboard_config::load(&path, &|_| None)?;
    /// let origins = configuration.origins();
    /// let of = |way: &str| origins.iter().find(|setting| setting.way == way).unwrap().origin.to_string();
    /// assert!(of("toolTimeout").ends_with("pegboard.yaml:1:14"));
    /// assert_eq!(of("questionTimeout"), "built-in");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn origins(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        let Some(root) = &self.effective.root else { return Vec::new() };
        let mut walk = Walk { texts: &self.effective.texts, settings: &mut settings };
        walk.written(root, Some(Place::root()), &mut Vec::new());
        let names = root_names();
        for (name, value) in built_in() {
            built_in_under(&value, root.get(&name), vec![name], &mut settings);
        }
        settings.sort_by_key(|(keys, _)| names.iter().position(|name| *name == keys[0]));
        settings.into_iter().map(|(_, setting)| setting).collect()
    }
}

/// What holds if nobody says otherwise.
fn built_in() -> Map<String, Json> {
    let telemetry = TelemetrySettings::default();
    let (traces, logging) = (json!(telemetry.traces), json!(telemetry.logging));
    let parts = [
        json!(RuntimeSettings::default()),
        json!(GatewaySettings::default()),
        json!({"cache": CacheSettings::default()}),
        json!({"telemetry": {"enabled": telemetry.enabled, "traces": traces, "logging": logging}}),
    ];
    let entries = parts.into_iter().filter_map(|part| match part {
        Json::Object(entries) => Some(entries),
        _ => None,
    });
    entries.flatten().collect()
}

/// Adds what is built in under a name, as far as nobody wrote something else.
fn built_in_under(
    value: &Json,
    written: Option<&Node>,
    keys: Vec<String>,
    settings: &mut Vec<(Vec<String>, Setting)>,
) {
    match (value, written) {
        (Json::Object(entries), None | Some(Node { value: Value::Map(_), .. })) => {
            for (key, value) in entries {
                let deeper = keys.iter().chain([key]).cloned().collect();
                built_in_under(value, written.and_then(|written| written.get(key)), deeper, settings);
            }
        }
        (_, Some(_)) | (Json::Null, None) => {}
        (Json::Array(items), None) if items.is_empty() => {}
        (value, None) => {
            let setting = Setting { way: way(&keys), value: value.clone(), origin: Origin::BuiltIn };
            settings.push((keys, setting));
        }
    }
}

struct Walk<'w> {
    texts: &'w [Text],
    settings: &'w mut Vec<(Vec<String>, Setting)>,
}

impl Walk<'_> {
    /// Adds all values that somebody wrote, as far as anybody reads them.
    fn written(&mut self, node: &Node, place: Option<Place>, keys: &mut Vec<String>) {
        match node.entries().filter(|entries| !entries.is_empty()) {
            Some(entries) => {
                for entry in entries {
                    // What of `defaults` counts has been moved to the root.
                    let is_remark = entry.key == "$schema"
                        || entry.key.starts_with('_')
                        || (keys.is_empty() && entry.key == "defaults");
                    let is_read = place
                        .is_none_or(|place| place.is_open() || place.names().contains(&entry.key.as_str()));
                    if is_remark || !is_read {
                        continue;
                    }
                    keys.push(entry.key.clone());
                    self.written(&entry.value, place.and_then(|place| place.child(&entry.key)), keys);
                    keys.pop();
                }
            }
            None if keys.is_empty() => {}
            None => {
                let shown: Vec<&str> = keys.iter().map(String::as_str).collect();
                let value = masked(&json_of(node), &shown);
                let setting = Setting { way: way(keys), value, origin: self.origin(node) };
                self.settings.push((keys.clone(), setting));
            }
        }
    }

    fn origin(&self, node: &Node) -> Origin {
        let text = &self.texts[node.span.text];
        match text.medium {
            Medium::File => {
                let snippet = text.snippet(node.span);
                Origin::File { path: text.path.clone(), line: snippet.line, column: snippet.column }
            }
            Medium::Setting => Origin::Given { name: text.path.display().to_string() },
        }
    }
}

fn way(keys: &[String]) -> String {
    keys.iter().fold(Path::default(), |way, key| way.key(key)).to_string()
}

fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Number(number) => Json::Number(number.clone()),
        Value::Text(text) => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.value))).collect())
        }
    }
}
