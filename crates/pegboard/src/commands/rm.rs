//! `pegboard rm`: removes entries from the configuration.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::ConfigFile;
use pegboard::config::edit::EditPath;
use serde_json::{Map, Value, json};

use super::config_file::EditTarget;
use crate::cli::{CliError, Globals};

/// Arguments of `pegboard rm`.
#[derive(Args)]
pub(crate) struct RmArgs {
    /// Entry to remove: NAME, or TOOLBOX/NAME if the name is ambiguous
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    target: EditTarget,
}

impl RmArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let target = self.target.of_entries(globals, &self.names);
        let mut file = target.open(globals)?;
        let mut removed = Vec::new();
        for name in &self.names {
            let (part, rest) = target.find_entry(globals, &file, name)?;
            if let Some(tool) = rest {
                let hint = format!("disable it: pegboard disable {name}");
                return Err(CliError::usage(format!(
                    "'{tool}' is a tool of a server, not an entry of the file"
                ))
                .hint(hint));
            }
            file.document.remove(&part.path)?;
            if let Some(toolbox) = &part.toolbox {
                remove_empty_toolbox(&mut file, toolbox)?;
            }
            removed.push(part);
        }
        let edited = target.finish(globals, &file)?;
        let names: Vec<String> =
            removed.iter().map(|part| format!("{} {}", part.section.noun(), part.name)).collect();
        let text = format!("Removed {}: {}", names.join(", "), edited.place());
        let parts = removed
            .iter()
            .map(|part| json!({"name": part.name, "section": part.section.key(), "toolbox": part.toolbox.as_deref().unwrap_or("default")}));
        let document = Map::from_iter([("removed".to_owned(), parts.collect())]);
        edited.report(globals, &[], document, &text);
        Ok(ExitCode::SUCCESS)
    }
}

/// Removes a toolbox that has nothing left: an import writes one for each server, and a model would be offered it. One with
/// a setting of its own or with a profile stays.
fn remove_empty_toolbox(file: &mut ConfigFile<'_>, toolbox: &str) -> Result<(), CliError> {
    let root = file.document.value();
    let is_empty = |section: &Value| match section {
        Value::Object(entries) => entries.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let sections = root["toolboxes"][toolbox].as_object();
    let profiles = root["profiles"].as_object().into_iter().flat_map(Map::values);
    let mut named = profiles.filter_map(|profile| profile["toolboxes"].as_array()).flatten();
    if sections.is_some_and(|sections| sections.values().all(is_empty)) && !named.any(|name| name == toolbox)
    {
        file.document.remove(&EditPath::from_keys(["toolboxes", toolbox]))?;
    }
    Ok(())
}
