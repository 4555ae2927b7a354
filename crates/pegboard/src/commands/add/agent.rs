//! `pegboard add agent`: adds an agent file.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::EntrySection;
use serde_json::{Value, json};

use super::{EntryDestination, object};
use crate::cli::{CliError, ExitReason, Globals};
use crate::commands::config_file::{display_path, relative_to_file};

/// Arguments of `pegboard add agent`.
#[derive(Args)]
pub(super) struct AddAgentArgs {
    /// Agent file, or a glob for several
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    destination: EntryDestination,
}

impl AddAgentArgs {
    pub(super) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let mut file = self.destination.target.open(globals)?;
        let path = relative_to_file(&file.path, &self.file)?;
        let toolbox = file.toolbox(self.destination.toolbox.as_deref())?;
        let list_path = EntrySection::Agents.path(toolbox.as_deref());
        let present = file.document.get(&list_path).and_then(Value::as_array).cloned().unwrap_or_default();
        if present.contains(&json!(path)) {
            if self.destination.force {
                return Ok(ExitCode::SUCCESS);
            }
            let place = display_path(&file.path);
            return Err(CliError::new(
                ExitReason::Usage,
                "name_taken",
                format!("agent {path} is already in {place}"),
            ));
        }
        file.document.append(&list_path, &json!(path))?;
        let edited = self.destination.target.finish(globals, &file)?;
        let text = format!("Added agent {path}: {}", edited.place());
        let document =
            json!({"name": path, "section": "agents", "toolbox": toolbox.as_deref().unwrap_or("default")});
        edited.report(globals, &[], object(document), &text);
        Ok(ExitCode::SUCCESS)
    }
}
