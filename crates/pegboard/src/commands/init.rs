//! `pegboard init`: a configuration to begin with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::edit::Document;
use pegboard::config::{self, ConfigurationError, Format as Notation};
use pegboard::telemetry::tell;
use serde_json::{Map, json};

use super::own_file::{OwnFile, Target, here, of_user, shown, unwritable};
use crate::cli::{Exit, Failure, Globals};
use crate::place;

/// What the file is called that tells editors what may be written.
const SCHEMA: &str = "pegboard.schema.json";

/// Where, and with what.
#[derive(Args)]
pub(crate) struct Init {
    /// Replace the file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

impl Init {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let path = self.path(globals)?;
        let old = present(&path)?;
        if old.is_some() && !self.force {
            let failure =
                Failure::new(Exit::Usage, "file_there", format!("{} is there already", shown(&path)));
            return Err(failure.hint("add to it with pegboard add, or replace it with --force"));
        }
        let schema = write_schema(self.target)?;
        let file = OwnFile::begin(&path, beginning(&path, schema.as_deref()))?.replacing(old);
        let changed = file.finish(self.target.writing())?;
        let text = format!("Wrote {}", shown(&changed.path));
        changed.tell(globals, &[], Map::from_iter([("schema".to_owned(), json!(schema))]), &text);
        if !globals.quiet && !self.target.dry_run {
            tell("Next: pegboard add NAME URL   or   pegboard import");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Where the file is put: where somebody says, with the settings of the user, or in this folder.
    fn path(&self, globals: &Globals) -> Result<PathBuf, Failure> {
        match globals.config.as_slice() {
            [] => {}
            [only] => return Ok(only.clone()),
            _ => {
                return Err(Failure::usage("several files are named, and one can be written")
                    .hint("--config FILE, once"));
            }
        }
        if self.target.user {
            return of_user();
        }
        let folder = here()?;
        let names = ["pegboard.yaml", "pegboard.yml", "pegboard.json", "pegboard.jsonc", "pegboard.toml"];
        let there = names.iter().map(|name| folder.join(name)).find(|path| path.exists());
        Ok(there.unwrap_or_else(|| folder.join("pegboard.yaml")))
    }
}

/// What is in a file. `None` if there is none.
fn present(path: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConfigurationError::Unreadable { path: path.to_owned(), error }.into()),
    }
}

/// Writes down what may be in the file, for editors, with the settings of the user.
fn write_schema(target: Target) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = config::user_folder(&place::environment) else { return Ok(None) };
    let path = folder.join(SCHEMA);
    let schema = format!("{:#}\n", config::native_schema());
    let old = present(&path)?;
    if !target.dry_run && old.as_deref() != Some(schema.as_str()) {
        config::edit::write(&path, old.as_deref(), &schema).map_err(|error| unwritable(&error))?;
    }
    Ok(Some(path))
}

/// A file to begin with.
fn beginning(path: &Path, schema: Option<&Path>) -> String {
    let schema = schema.map(|path| path.display().to_string());
    let notation = Document::new(path, String::new()).map_or(Notation::Yaml, |document| document.format());
    match notation {
        Notation::Json => {
            let mut root = Map::new();
            if let Some(schema) = schema {
                root.insert("$schema".to_owned(), json!(schema));
            }
            root.insert("mcpServers".to_owned(), json!({}));
            format!("{:#}\n", json!(root))
        }
        Notation::Toml => {
            let schema = schema.map(|schema| format!("#:schema {schema}\n")).unwrap_or_default();
            format!(
                "{schema}# The tools of this folder, for every client:  pegboard serve\npegboard = 1\n\n\
                 # [mcpServers.files]\n# command = \"npx\"\n# args = [\"-y\", \"@modelcontextprotocol/server-filesystem\", \".\"]\n"
            )
        }
        Notation::Yaml => {
            let schema = schema
                .map(|schema| format!("# yaml-language-server: $schema={schema}\n"))
                .unwrap_or_default();
            format!(
                "{schema}# The tools of this folder, for every client:  pegboard serve\nmcpServers: {{}}\n  \
                 # files:\n  #   command: npx\n  #   args: [-y, \"@modelcontextprotocol/server-filesystem\", .]\n  \
                 # github:\n  #   url: https://api.githubcopilot.com/mcp/\n  #   headers: {{Authorization: \"Bearer ${{GITHUB_TOKEN}}\"}}\n"
            )
        }
    }
}
