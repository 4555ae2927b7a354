//! Provenance of the effective settings.

use std::fmt;
use std::path::PathBuf;

use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::telemetry::TelemetrySettings;
use serde_json::{Map, Value as Json, json};

use crate::configuration::Configuration;
use crate::dialect::root_names;
use crate::path::KeyPath;
use crate::redact::redact_value;
use crate::schema::SchemaPosition;
use crate::source::{SourceKind, SourceText};
use crate::tree::{Node, Value};

/// An effective setting and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveSetting {
    /// Path of the setting: `mcpServers.github.url`.
    pub key_path: String,
    /// Value as written, with secrets redacted and variables not expanded. A list is a single value.
    pub value: Json,
    /// Source of the value.
    pub origin: SettingSource,
}

/// The source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The built-in default.
    BuiltIn,
    /// A file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// An environment variable, a command line option, or another source that is not a file.
    Inline {
        /// Name of the source: `PEGBOARD__TOOL_TIMEOUT`, `--set toolTimeout`.
        name: String,
    },
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Inline { name } => f.write_str(name),
        }
    }
}

impl Configuration {
    /// Returns every effective setting with its source: all written values, and the built-in defaults of
    /// global settings.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pegboard.yaml");
    /// std::fs::write(&path, "toolTimeout: 30s")?;
    /// let configuration = pegboard_config::load(&path, &|_| None)?;
    /// let settings = configuration.effective_settings();
    /// let of = |path: &str| settings.iter().find(|setting| setting.key_path == path).unwrap().origin.to_string();
    /// assert!(of("toolTimeout").ends_with("pegboard.yaml:1:14"));
    /// assert_eq!(of("questionTimeout"), "built-in");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn effective_settings(&self) -> Vec<EffectiveSetting> {
        let mut settings = Vec::new();
        let Some(root) = &self.merged.root else { return Vec::new() };
        let mut collector = SettingsCollector { texts: &self.merged.texts, settings: &mut settings };
        collector.collect(root, Some(SchemaPosition::root()), &mut Vec::new());
        let names = root_names();
        for (name, value) in default_settings() {
            add_defaults(&value, root.get(&name), vec![name], &mut settings);
        }
        settings.sort_by_key(|(keys, _)| names.iter().position(|name| *name == keys[0]));
        settings.into_iter().map(|(_, setting)| setting).collect()
    }
}

/// Returns the built-in defaults.
fn default_settings() -> Map<String, Json> {
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

/// Adds the built-in defaults that are not overridden.
fn add_defaults(
    value: &Json,
    written: Option<&Node>,
    keys: Vec<String>,
    settings: &mut Vec<(Vec<String>, EffectiveSetting)>,
) {
    match (value, written) {
        (Json::Object(entries), None | Some(Node { value: Value::Map(_), .. })) => {
            for (key, value) in entries {
                let deeper = keys.iter().chain([key]).cloned().collect();
                add_defaults(value, written.and_then(|written| written.get(key)), deeper, settings);
            }
        }
        (_, Some(_)) | (Json::Null, None) => {}
        (Json::Array(items), None) if items.is_empty() => {}
        (value, None) => {
            let setting = EffectiveSetting {
                key_path: format_path(&keys),
                value: value.clone(),
                origin: SettingSource::BuiltIn,
            };
            settings.push((keys, setting));
        }
    }
}

struct SettingsCollector<'w> {
    texts: &'w [SourceText],
    settings: &'w mut Vec<(Vec<String>, EffectiveSetting)>,
}

impl SettingsCollector<'_> {
    /// Adds all written values that are read.
    fn collect(&mut self, node: &Node, position: Option<SchemaPosition>, keys: &mut Vec<String>) {
        match node.entries().filter(|entries| !entries.is_empty()) {
            Some(entries) => {
                for entry in entries {
                    // The effective settings of `defaults` were moved to the root.
                    let is_remark = entry.key == "$schema"
                        || entry.key.starts_with('_')
                        || (keys.is_empty() && entry.key == "defaults");
                    let is_read = position.is_none_or(|position| {
                        position.allows_any_key() || position.names().contains(&entry.key.as_str())
                    });
                    if is_remark || !is_read {
                        continue;
                    }
                    keys.push(entry.key.clone());
                    self.collect(
                        &entry.value,
                        position.and_then(|position| position.child(&entry.key)),
                        keys,
                    );
                    keys.pop();
                }
            }
            None if keys.is_empty() => {}
            None => {
                let key_refs: Vec<&str> = keys.iter().map(String::as_str).collect();
                let value = redact_value(&json_of(node), &key_refs);
                let setting =
                    EffectiveSetting { key_path: format_path(keys), value, origin: self.origin(node) };
                self.settings.push((keys.clone(), setting));
            }
        }
    }

    fn origin(&self, node: &Node) -> SettingSource {
        let text = &self.texts[node.span.text];
        match text.kind {
            SourceKind::File => {
                let snippet = text.snippet(node.span);
                SettingSource::File { path: text.path.clone(), line: snippet.line, column: snippet.column }
            }
            SourceKind::Setting => SettingSource::Inline { name: text.path.display().to_string() },
        }
    }
}

fn format_path(keys: &[String]) -> String {
    keys.iter().fold(KeyPath::default(), |path, key| path.key(key)).to_string()
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
