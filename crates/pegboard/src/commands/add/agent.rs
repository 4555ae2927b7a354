//! `pegboard add agent`: an agent, by its file.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::{Spot, object};
use crate::cli::{Exit, Failure, Globals};
use crate::commands::own_file::{OwnFile, Section, from_file, refused, shown};

/// The agent.
#[derive(Args)]
pub(super) struct Agent {
    /// Its file, or a glob for several
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    spot: Spot,
}

impl Agent {
    pub(super) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let mut file = OwnFile::open(globals, self.spot.target)?;
        let path = from_file(&file.path, &self.file)?;
        let toolbox = file.toolbox(self.spot.toolbox.as_deref())?;
        let way = Section::Agents.way(toolbox.as_deref());
        let present = file.document.get(&way).and_then(Value::as_array).cloned().unwrap_or_default();
        if present.contains(&json!(path)) {
            if self.spot.force {
                return Ok(ExitCode::SUCCESS);
            }
            let place = shown(&file.path);
            return Err(Failure::new(
                Exit::Usage,
                "name_taken",
                format!("the agent {path} is in {place} already"),
            ));
        }
        file.document.append(&way, &json!(path)).map_err(refused)?;
        let changed = file.finish(self.spot.target.writing())?;
        let text = format!("Added agent {path}: {}", shown(&changed.path));
        let document =
            json!({"name": path, "section": "agents", "toolbox": toolbox.as_deref().unwrap_or("default")});
        changed.tell(globals, &[], object(document), &text);
        Ok(ExitCode::SUCCESS)
    }
}
