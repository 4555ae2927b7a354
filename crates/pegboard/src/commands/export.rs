//! `pegboard export`: prints the entries of a client, or writes them.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::clients::KnownClient;
use pegboard::config::edit::FileChange;
use pegboard::config::export::{ClientConfigFile, ClientEntry, ExpandedServers, SERVER_NAME};
use pegboard::telemetry::write_stderr;
use serde_json::{Value, json};

use super::client_connection::ConnectionOptions;
use super::client_file::{ClientScope, open_backups, require_client};
use super::config_file::{display_path, warn_about_keys};
use super::connect::trial::ClientOffer;
use crate::cli::{CliError, Globals, OutputFormat, format, notice, print};
use crate::paths::ConfigSelection;

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
    #[arg(long, conflicts_with_all = ["http", "profile"])]
    expand: bool,
    /// Profile of the client: meta, flat, agent, hybrid, auto, or one from the configuration
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Show the changes to the client's file without writing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    scope: ClientScope,
}

impl ExportArgs {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let client = require_client(&self.to)?;
        let entries = if self.expand {
            expand_servers(globals, client)?
        } else {
            let users = self.scope.users(client)?;
            let target = self.connection.target(globals, None, self.profile.as_deref(), users).await?;
            vec![ClientEntry::pegboard(client, &target)?]
        };
        if self.write || self.dry_run {
            let mut file = EntryFile::open(client, self.scope, &entries)?;
            if self.dry_run {
                file.preview(globals, &entries);
                return Ok(ExitCode::SUCCESS);
            }
            if self.connection.is_program() {
                // The client starts what the configuration names, and does not ask.
                ConfigSelection::without_probing(globals)?.require_trust()?;
            }
            return file.write(globals, &entries, None);
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

/// A client's file with new entries.
pub(super) struct EntryFile {
    client: &'static KnownClient,
    change: FileChange,
    place: String,
    /// Names of the entries that had other values.
    replaced: Vec<String>,
}

impl EntryFile {
    /// Opens the file of a client and sets the entries.
    pub(super) fn open(
        client: &'static KnownClient,
        scope: ClientScope,
        entries: &[ClientEntry],
    ) -> Result<Self, CliError> {
        let path = scope.path(client)?;
        let mut file = ClientConfigFile::open(client, &path)?;
        let replaced = file.register(entries)?;
        Ok(Self { client, change: file.change(), place: display_path(&path), replaced })
    }

    /// Prints the changes.
    pub(super) fn preview(&self, globals: &Globals, entries: &[ClientEntry]) {
        self.report_replaced(globals);
        let diff = self.change.diff(&self.place);
        let mut document = self.document(entries, false);
        document["diff"] = json!(diff);
        print::document(globals.format_or(OutputFormat::Text), &document, || {
            if self.change.has_effect() { format::diff(&diff) } else { self.already() }
        });
    }

    /// Writes the changes, and prints what the client is offered, if that is known.
    pub(super) fn write(
        &mut self,
        globals: &Globals,
        entries: &[ClientEntry],
        offer: Option<&ClientOffer>,
    ) -> Result<ExitCode, CliError> {
        self.report_replaced(globals);
        let is_written = self.change.has_effect();
        if is_written && open_backups(globals)?.write(self.client, &self.change)? {
            warn_about_keys(&self.change);
        }
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let names = if names == [SERVER_NAME] { String::new() } else { format!(" ({})", names.join(", ")) };
        let mut document = self.document(entries, is_written);
        if let Some(offer) = offer {
            document["offer"] = offer.document();
        }
        let output = globals.format_or(OutputFormat::Text);
        print::document(output, &document, || {
            let mut text = if is_written {
                format!("Connected {}: {}{names}", self.client.title(), self.place)
            } else {
                self.already()
            };
            if let Some(offer) = offer {
                text = format!("{text}\n{}", offer.text());
            }
            text
        });
        if is_written && output == OutputFormat::Text {
            notice(globals, &format!("Undo with: pegboard restore {}", self.client.name()));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn report_replaced(&self, globals: &Globals) {
        for name in &self.replaced {
            notice(globals, &format!("Replaced {name} in {}", self.place));
        }
    }

    fn already(&self) -> String {
        format!("{} is already connected: {}", self.client.title(), self.place)
    }

    fn document(&self, entries: &[ClientEntry], is_written: bool) -> Value {
        let mut document =
            json!({"client": self.client.name(), "file": self.change.path, "changed": is_written});
        match entries {
            [only] => document["entry"] = only.redacted.clone(),
            several => {
                let shown = several.iter().map(|entry| (entry.name.clone(), entry.redacted.clone()));
                document["entries"] = Value::Object(shown.collect());
            }
        }
        document
    }
}
