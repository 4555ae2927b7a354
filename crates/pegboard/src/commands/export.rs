//! `pegboard export` and `pegboard connect`: register Pegboard with clients.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::clients::KnownClient;
use pegboard::config::export::{ClientConfigFile, ClientEntry, ExpandedServers, SERVER_NAME};
use pegboard::telemetry::write_stderr;
use serde_json::{Value, json};

use super::client_file::{ClientScope, open_backups, require_client, serve_target};
use super::config_file::{display_path, warn_about_keys};
use crate::cli::{CliError, Globals, OutputFormat, format, notice, print};
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
        let entries =
            if self.expand { expand_servers(globals, client)? } else { self.entry.entry(globals, client)? };
        if self.write || self.entry.dry_run {
            return self.entry.write(globals, client, &entries);
        }
        let document = ClientConfigFile::preview(client, &entries)?;
        print::document(globals.format_or(OutputFormat::Text), document.value(), || document.text());
        if entries.iter().any(|entry| entry.redacted != entry.value) {
            notice(globals, "Secrets are redacted here; --write writes them");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Converts the configured servers to the client's format. Prints a note for each that cannot be converted.
fn expand_servers(globals: &Globals, client: &KnownClient) -> Result<Vec<ClientEntry>, CliError> {
    let inventory = ConfigSelection::from_globals(globals)?.inventory()?;
    let ExpandedServers { entries, skipped } = ExpandedServers::new(&inventory, client);
    for (name, reason) in &skipped {
        write_stderr(&format!("{name} was skipped: {reason}"));
    }
    if entries.is_empty() {
        let message = if skipped.is_empty() {
            "the configuration has no servers"
        } else {
            "no configured server can be exported to this client"
        };
        return Err(CliError::not_found("unknown_server", message));
    }
    Ok(entries)
}

impl ConnectArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let client = require_client(&self.client)?;
        self.entry.write(globals, client, &self.entry.entry(globals, client)?)
    }
}

impl ConnectOptions {
    /// Builds the entry for Pegboard.
    fn entry(&self, globals: &Globals, client: &KnownClient) -> Result<Vec<ClientEntry>, CliError> {
        let mut target = serve_target(globals, None, self.http.clone())?;
        if self.scope.is_shared(client)? {
            target = target.without_token();
        }
        Ok(vec![ClientEntry::pegboard(client, &target)?])
    }

    fn write(
        &self,
        globals: &Globals,
        client: &'static KnownClient,
        entries: &[ClientEntry],
    ) -> Result<ExitCode, CliError> {
        let path = self.scope.path(client)?;
        let place = display_path(&path);
        let mut file = ClientConfigFile::open(client, &path)?;
        for name in file.register(entries)? {
            notice(globals, &format!("Replaced {name} in {place}"));
        }
        let change = file.change();
        let diff = change.diff(&place);
        let is_written = change.has_effect() && !self.dry_run;
        if is_written {
            if self.http.is_none() {
                // The client starts what the configuration names, and does not ask.
                ConfigSelection::without_probing(globals)?.require_trust()?;
            }
            if open_backups(globals)?.write(client, &change)? {
                warn_about_keys(&change);
            }
        }
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let names = if names == [SERVER_NAME] { String::new() } else { format!(" ({})", names.join(", ")) };
        let mut document = json!({"client": client.name(), "file": path, "changed": is_written});
        match entries {
            [only] => document["entry"] = only.redacted.clone(),
            several => {
                let shown = several.iter().map(|entry| (entry.name.clone(), entry.redacted.clone()));
                document["entries"] = Value::Object(shown.collect());
            }
        }
        if self.dry_run {
            document["diff"] = json!(diff);
        }
        print::document(globals.format_or(OutputFormat::Text), &document, || {
            match (change.has_effect(), self.dry_run) {
                (false, _) => format!("{} is already connected: {place}", client.title()),
                (true, true) => format::diff(&diff),
                (true, false) => format!("Connected {}: {place}{names}", client.title()),
            }
        });
        if is_written && globals.format_or(OutputFormat::Text) == OutputFormat::Text {
            notice(globals, &format!("Undo with: pegboard restore {}", client.name()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
