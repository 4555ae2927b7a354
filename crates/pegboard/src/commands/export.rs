//! `pegboard export` and `pegboard connect`: register Pegboard with clients.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::ConfigFormat as Notation;
use pegboard::config::clients::KnownClient;
use pegboard::config::edit::{self, ConfigDocument};
use pegboard::telemetry::write_stderr;
use serde_json::{Value, json};

use super::backups::Backups;
use super::client_file::{
    ClientConfigFile, ClientScope, SERVER_NAME, program_command, require_client, serve_arguments,
    server_key_path,
};
use super::config_file::{display_path, edit_error, unused_name};
use crate::cli::{CliError, Globals, OutputFormat, notice, print};
use crate::paths::ConfigSelection;

/// Default URL of `pegboard serve`.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:7332/mcp";

/// Arguments of `pegboard export`.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// Client: claude-code, cursor, vscode, codex, …
    #[arg(long, value_name = "CLIENT")]
    to: String,
    /// Write the entry to the client's file instead of printing it
    #[arg(long)]
    write: bool,
    /// Export the configured servers themselves instead of Pegboard
    #[arg(long, conflicts_with = "http")]
    expand: bool,
    #[command(flatten)]
    entry: ConnectOptions,
}

/// Arguments of `pegboard connect`.
#[derive(Args)]
pub(crate) struct ConnectArgs {
    /// Client: claude-code, cursor, vscode, codex, …
    client: String,
    #[command(flatten)]
    entry: ConnectOptions,
}

#[derive(Args)]
struct ConnectOptions {
    /// Connect the client to this URL instead of starting a program
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = DEFAULT_URL)]
    http: Option<String>,
    /// Show the changes to the client's file without writing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    scope: ClientScope,
}

impl ExportArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let client = require_client(&self.to)?;
        let entries = if self.expand {
            expand_servers(globals, client)?
        } else {
            vec![ClientEntry::plain(SERVER_NAME, self.entry.value(globals, client)?)]
        };
        if self.write || self.entry.dry_run {
            return self.entry.write(globals, client, &entries);
        }
        let path = match client.format() {
            Notation::Json => "it.json",
            Notation::Yaml => "it.yaml",
            Notation::Toml => "it.toml",
        };
        let mut document = ConfigDocument::new(Path::new(path), String::new())?;
        for entry in &entries {
            document
                .set(&server_key_path(client, &document, &entry.name), &entry.shown)
                .map_err(edit_error)?;
        }
        let whole = document.value().clone();
        print::document(globals.format_or(OutputFormat::Text), &whole, || document.text());
        if entries.iter().any(|entry| entry.shown != entry.value) {
            notice(globals, "Secrets are redacted here; --write writes them");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Entry of a client's file.
struct ClientEntry {
    name: String,
    value: Value,
    /// The same, with secrets redacted.
    shown: Value,
}

impl ClientEntry {
    /// Creates an entry without secrets.
    fn plain(name: &str, value: Value) -> Self {
        Self { name: name.to_owned(), shown: value.clone(), value }
    }
}

/// Converts the configured servers to the client's format. Prints a note for each that cannot be converted.
fn expand_servers(globals: &Globals, client: &KnownClient) -> Result<Vec<ClientEntry>, CliError> {
    let inventory = ConfigSelection::from_globals(globals)?.inventory()?;
    let mut entries: Vec<ClientEntry> = Vec::new();
    let mut left_out = 0;
    for part in inventory.items.iter().filter(|part| !part.is_disabled) {
        let of_toolbox = part.toolbox.as_ref().map(|toolbox| format!("{toolbox}-{}", part.name));
        let is_free = |name: &str| entries.iter().all(|entry| entry.name != name);
        let name = unused_name(&part.name, of_toolbox, is_free);
        let exported = match part.section {
            "mcpServers" => client.export_entry(&name, &part.value).and_then(|value| {
                Ok(ClientEntry { shown: client.export_entry(&name, &part.redacted)?, name, value })
            }),
            _ => Err("it is not an MCP server".to_owned()),
        };
        match exported {
            Ok(entry) => entries.push(entry),
            Err(why) => {
                left_out += 1;
                write_stderr(&format!("{} was skipped: {why}", part.name));
            }
        }
    }
    if entries.is_empty() {
        let message = match left_out {
            0 => "the configuration has no servers",
            _ => "no configured server can be exported to this client",
        };
        return Err(CliError::not_found("unknown_server", message));
    }
    Ok(entries)
}

impl ConnectArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let client = require_client(&self.client)?;
        let entry = ClientEntry::plain(SERVER_NAME, self.entry.value(globals, client)?);
        self.entry.write(globals, client, &[entry])
    }
}

impl ConnectOptions {
    /// Builds the entry for Pegboard.
    fn value(&self, globals: &Globals, client: &KnownClient) -> Result<Value, CliError> {
        pegboard_entry(globals, client, None, self.http.as_deref())
    }

    fn write(
        &self,
        globals: &Globals,
        client: &KnownClient,
        entries: &[ClientEntry],
    ) -> Result<ExitCode, CliError> {
        let path = self.scope.path(client)?;
        let mut file = ClientConfigFile::open(client, &path)?;
        for entry in entries {
            let key_path = server_key_path(client, &file.document, &entry.name);
            if entry.name != SERVER_NAME
                && file.document.get(&key_path).is_some_and(|there| *there != entry.value)
            {
                notice(globals, &format!("Replaced {} in {}", entry.name, display_path(&path)));
            }
            file.document.set(&key_path, &entry.value).map_err(edit_error)?;
        }
        if entries.iter().all(|entry| entry.name != SERVER_NAME) {
            // With both, the client would list every server twice.
            file.document
                .remove(&server_key_path(client, &file.document, SERVER_NAME))
                .map_err(edit_error)?;
        }
        let (old, new) = (file.old.as_deref(), file.document.text());
        let is_there = old == Some(new.as_str());
        let diff = edit::diff(Path::new(&display_path(&path)), old.unwrap_or_default(), &new);
        let is_written = !is_there && !self.dry_run;
        if is_written {
            Backups::open_locked(globals)?.write(client.name(), &path, old, &new)?;
        }
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let names = if names == [SERVER_NAME] { String::new() } else { format!(" ({})", names.join(", ")) };
        let mut document = json!({"client": client.name(), "file": path, "changed": is_written});
        match entries {
            [only] => document["entry"] = only.shown.clone(),
            several => {
                let shown = several.iter().map(|entry| (entry.name.clone(), entry.shown.clone()));
                document["entries"] = Value::Object(shown.collect());
            }
        }
        if self.dry_run {
            document["diff"] = json!(diff);
        }
        print::document(globals.format_or(OutputFormat::Text), &document, || {
            match (is_there, self.dry_run) {
                (true, _) => format!("{} is already connected: {}", client.title(), display_path(&path)),
                (false, true) => diff,
                (false, false) => format!("Connected {}: {}{names}", client.title(), display_path(&path)),
            }
        });
        if is_written && globals.format_or(OutputFormat::Text) == OutputFormat::Text {
            notice(globals, &format!("Undo with: pegboard restore {}", client.name()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Entry with which a client uses Pegboard: a URL, or the program with the configuration file `file` or that
/// of this command.
pub(super) fn pegboard_entry(
    globals: &Globals,
    client: &KnownClient,
    file: Option<&Path>,
    url: Option<&str>,
) -> Result<Value, CliError> {
    match url {
        None => {
            Ok(client.entry_for_program(SERVER_NAME, &program_command()?, &serve_arguments(globals, file)?))
        }
        Some(url) => client.entry_for_url(SERVER_NAME, url).ok_or_else(|| {
            CliError::usage(format!("{} does not support servers with a URL", client.title()))
                .hint("remove --http to have it start a program")
        }),
    }
}
