//! `pegboard rm`: one server, service, tool, chain or agent less in the configuration.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, json};

use super::own_file::{OwnFile, Target, find_part, parts, shown};
use crate::cli::{Failure, Globals};

/// What is removed.
#[derive(Args)]
pub(crate) struct Rm {
    /// What is removed: NAME, or TOOLBOX/NAME where there are several
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    target: Target,
}

impl Rm {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let mut file = OwnFile::open(globals, self.target)?;
        let mut removed = Vec::new();
        for name in &self.names {
            let (part, rest) = find_part(&parts(file.document.value()), name)?;
            if let Some(tool) = rest {
                let hint = format!("switch it off: pegboard disable {name}");
                return Err(Failure::usage(format!(
                    "'{tool}' is a tool of a server, and is not in the file"
                ))
                .hint(hint));
            }
            file.remove(&part.way)?;
            removed.push(part);
        }
        let changed = file.finish(self.target.writing())?;
        let names: Vec<String> =
            removed.iter().map(|part| format!("{} {}", part.section.word(), part.name)).collect();
        let text = format!("Removed {}: {}", names.join(", "), shown(&changed.path));
        let parts = removed
            .iter()
            .map(|part| json!({"name": part.name, "section": part.section.key(), "toolbox": part.toolbox.as_deref().unwrap_or("default")}));
        let document = Map::from_iter([("removed".to_owned(), parts.collect())]);
        changed.tell(globals, &[], document, &text);
        Ok(ExitCode::SUCCESS)
    }
}
