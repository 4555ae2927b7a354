//! `pegboard init`: a configuration to begin with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::edit::Document;
use pegboard::config::{self, ConfigurationError, Format as Notation};
use pegboard::telemetry::tell;
use serde_json::{Map, json};

use super::import::Brought;
use super::own_file::{OwnFile, Target, file_named, here, of_user, shown, unwritable};
use crate::cli::{Exit, Failure, Globals};
use crate::place;

/// What the file is called that tells editors what may be written.
const SCHEMA: &str = "pegboard.schema.json";

/// What the file is, for whoever opens it.
const WHAT: &str = "# The tools of this folder, for every client:  pegboard serve\n";
/// What may stand in it.
const YAML_EXAMPLE: &str = r#"#
# mcpServers:
#   files:
#     command: npx
#     args: [-y, "@modelcontextprotocol/server-filesystem", .]
#   github:
#     url: https://api.githubcopilot.com/mcp/
#     headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}
"#;
const TOML_EXAMPLE: &str = r#"# [mcpServers.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
"#;

/// Where, and with what.
#[derive(Args)]
pub(crate) struct Init {
    /// Begin with what a client or a file has: cursor, cursor:weather, a file, a folder, an address
    #[arg(long, value_name = "SOURCE")]
    from: Vec<PathBuf>,
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
        let schema = schema_place();
        write_schema(self.target)?;
        if !self.from.is_empty() {
            let file = OwnFile::begin(&path, heading(&path, schema.as_deref()))?.replacing(old);
            Brought::into_new(file, &self.from)?.finish(self.target)?.tell(globals);
            return Ok(ExitCode::SUCCESS);
        }
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
            [only] => return file_named(only),
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

/// Where it is written down for editors what may be in the file: with the settings of the user.
pub(super) fn schema_place() -> Option<PathBuf> {
    Some(config::user_folder(&place::environment)?.join(SCHEMA))
}

/// Writes it down.
pub(super) fn write_schema(target: Target) -> Result<(), Failure> {
    let Some(path) = schema_place().filter(|_| !target.dry_run) else { return Ok(()) };
    let schema = format!("{:#}\n", config::native_schema());
    let old = present(&path)?;
    if old.as_deref() != Some(schema.as_str()) {
        config::edit::write(&path, old.as_deref(), &schema).map_err(|error| unwritable(&error))?;
    }
    Ok(())
}

/// What stands above everything in a file of ours: what editors look for, and what it is.
pub(super) fn heading(path: &Path, schema: Option<&Path>) -> String {
    let schema = schema.map(|path| path.display().to_string());
    let line = |mark: &str| schema.as_ref().map(|schema| format!("{mark}{schema}\n")).unwrap_or_default();
    match notation(path) {
        Notation::Json => {
            let root: Map<_, _> =
                schema.map(|schema| ("$schema".to_owned(), json!(schema))).into_iter().collect();
            format!("{:#}\n", json!(root))
        }
        Notation::Toml => format!("{}{WHAT}pegboard = 1\n", line("#:schema ")),
        Notation::Yaml => format!("{}{WHAT}", line("# yaml-language-server: $schema=")),
    }
}

/// A file to begin with.
fn beginning(path: &Path, schema: Option<&Path>) -> String {
    let heading = heading(path, schema);
    match notation(path) {
        Notation::Json => heading,
        Notation::Toml => format!("{heading}\n{TOML_EXAMPLE}"),
        Notation::Yaml => format!("{heading}{YAML_EXAMPLE}mcpServers: {{}}\n"),
    }
}

fn notation(path: &Path) -> Notation {
    Document::new(path, String::new()).map_or(Notation::Yaml, |document| document.format())
}
