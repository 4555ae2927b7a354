//! `pegboard add agent`: adds an agent file.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::{EntryDestination, object};
use crate::cli::{CliError, ExitReason, Globals};
use crate::commands::config_file::{ConfigFile, EntrySection, display_path, edit_error, relative_to_file};

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
        let mut file = ConfigFile::open(globals, self.destination.target)?;
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
        file.document.append(&list_path, &json!(path)).map_err(edit_error)?;
        let changed = file.finish(self.destination.target.write_mode())?;
        let text = format!("Added agent {path}: {}", display_path(&changed.path));
        let document =
            json!({"name": path, "section": "agents", "toolbox": toolbox.as_deref().unwrap_or("default")});
        changed.report(globals, &[], object(document), &text);
        Ok(ExitCode::SUCCESS)
    }
}
