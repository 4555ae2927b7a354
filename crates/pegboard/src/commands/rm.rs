//! `pegboard rm`: removes entries from the configuration.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, json};

use super::config_file::{EditTarget, config_entries, find_entry};
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
            let (part, rest) = find_entry(&config_entries(file.document.value()), name)?;
            if let Some(tool) = rest {
                let hint = format!("disable it: pegboard disable {name}");
                return Err(CliError::usage(format!(
                    "'{tool}' is a tool of a server, not an entry of the file"
                ))
                .hint(hint));
            }
            file.document.remove(&part.path)?;
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
