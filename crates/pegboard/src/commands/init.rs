//! `pegboard init`: creates a configuration file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::edit::ConfigDocument;
use pegboard::config::{self, ConfigFile, ConfigFormat as Notation, ConfigurationError};
use pegboard::telemetry::write_stderr;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, json};

use super::config_file::{EditTarget, display_path, editable_path, is_users_file, purpose, user_config_path};
use super::import::import_into_new;
use crate::cli::{CliError, ExitReason, Globals};
use crate::paths::{self, working_dir};

/// Name of the JSON Schema file for editors.
const SCHEMA: &str = "pegboard.schema.json";

/// Characters that need an escape in the path of a URL.
const NOT_IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b':').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Comment at the top of the user's file.
const USER_COMMENT: &str = "# Your tools in every folder, for every client:  pegboard serve\n";
/// Comment at the top of a project's file.
const PROJECT_COMMENT: &str = "# The tools of this folder, for every client:  pegboard serve\n";
/// Example entries of a new file.
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

/// Arguments of `pegboard init`.
#[derive(Args)]
pub(crate) struct InitArgs {
    /// Start with the servers of a client, file, directory or URL: cursor, cursor:weather
    #[arg(long, value_name = "SOURCE")]
    from: Vec<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: EditTarget,
}

impl InitArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let path = self.path(globals)?;
        let old = present(&path)?;
        if old.is_some() && !self.force {
            let failure = CliError::new(
                ExitReason::Usage,
                "file_exists",
                format!("{} already exists", display_path(&path)),
            );
            return Err(failure.hint("add entries with pegboard add, or replace it with --force"));
        }
        let schema = schema_path();
        write_schema(self.target)?;
        if !self.from.is_empty() {
            let file = new_file(&path)?.replacing(old);
            import_into_new(globals, file, &self.from, self.target)?.print(globals);
            return Ok(ExitCode::SUCCESS);
        }
        let text = beginning(&path);
        let file = ConfigFile::create(&path, text, &paths::env_var)?.replacing(old);
        let edited = self.target.finish(globals, &file)?;
        let text = format!("Wrote {}, {}", edited.place(), purpose(&path));
        edited.report(globals, &[], Map::from_iter([("schema".to_owned(), json!(schema))]), &text);
        if !globals.quiet && !self.target.dry_run {
            write_stderr("Next: pegboard add NAME URL   or   pegboard import");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Path of the new file: the one given, the user's, or one in the working directory.
    fn path(&self, globals: &Globals) -> Result<PathBuf, CliError> {
        match globals.config.as_slice() {
            [] => {}
            [only] => return editable_path(only),
            _ => {
                return Err(
                    CliError::usage("cannot write several files").hint("pass --config FILE only once")
                );
            }
        }
        if self.target.user {
            return user_config_path();
        }
        let folder = working_dir()?;
        Ok(config::find_native(&folder).unwrap_or_else(|| folder.join("pegboard.yaml")))
    }
}

/// Content of a file. `None` if it does not exist.
fn present(path: &Path) -> Result<Option<String>, CliError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConfigurationError::Unreadable { path: path.to_owned(), error }.into()),
    }
}

/// Path of the JSON Schema file: in the user's configuration directory.
fn schema_path() -> Option<PathBuf> {
    Some(config::user_folder(&paths::env_var)?.join(SCHEMA))
}

/// Writes the JSON Schema file, if it changed.
pub(super) fn write_schema(target: EditTarget) -> Result<(), CliError> {
    let Some(path) = schema_path().filter(|_| !target.dry_run) else { return Ok(()) };
    let schema = format!("{:#}\n", config::native_schema());
    let old = present(&path)?;
    if old.as_deref() != Some(schema.as_str()) {
        config::edit::write(&path, old.as_deref(), &schema)?;
    }
    Ok(())
}

/// Starts a new file without entries.
pub(super) fn new_file(path: &Path) -> Result<ConfigFile<'static>, ConfigurationError> {
    ConfigFile::create(path, heading(path), &paths::env_var)
}

/// Reference to the JSON Schema file as editors understand it: relative from the same directory, or else a URL.
fn schema_reference(path: &Path) -> Option<String> {
    let schema = schema_path()?;
    let path = paths::absolute(path).ok()?;
    if path.parent() == schema.parent() {
        return Some(format!("./{SCHEMA}"));
    }
    let schema = schema.to_str()?.replace('\\', "/");
    Some(format!("file:///{}", utf8_percent_encode(schema.trim_start_matches('/'), NOT_IN_PATH)))
}

/// Lines at the top of a configuration file: the schema reference for editors, and a comment.
fn heading(path: &Path) -> String {
    let schema = schema_reference(path);
    let what = if is_users_file(path) { USER_COMMENT } else { PROJECT_COMMENT };
    let line = |mark: &str| schema.as_ref().map(|schema| format!("{mark}{schema}\n")).unwrap_or_default();
    match notation(path) {
        Notation::Json => {
            let root: Map<_, _> =
                schema.map(|schema| ("$schema".to_owned(), json!(schema))).into_iter().collect();
            format!("{:#}\n", json!(root))
        }
        Notation::Toml => format!("{}{what}pegboard = 1\n", line("#:schema ")),
        Notation::Yaml => format!("{}{what}", line("# yaml-language-server: $schema=")),
    }
}

/// Content of a new file.
fn beginning(path: &Path) -> String {
    let heading = heading(path);
    match notation(path) {
        Notation::Json => heading,
        Notation::Toml => format!("{heading}\n{TOML_EXAMPLE}"),
        Notation::Yaml => format!("{heading}{YAML_EXAMPLE}mcpServers: {{}}\n"),
    }
}

fn notation(path: &Path) -> Notation {
    ConfigDocument::new(path, String::new()).map_or(Notation::Yaml, |document| document.format())
}
