//! `pegboard connect`: registers Pegboard with a client, after the entry was tried.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::export::ClientEntry;

use super::client_connection::ConnectionOptions;
use super::client_file::{ClientScope, require_client};
use super::export::EntryFile;
use crate::cli::{CliError, Globals};
use crate::paths::ConfigSelection;
use trial::try_entry;

pub(super) mod trial;

/// Arguments of `pegboard connect`.
#[derive(Args)]
pub(crate) struct ConnectArgs {
    /// Client: claude-code, cursor, vscode, codex, …
    client: String,
    /// Profile of the client: meta, flat, agent, hybrid, auto, or one from the configuration
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Do not try the entry before it is written
    #[arg(long)]
    no_check: bool,
    /// Show the changes to the client's file without writing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    scope: ClientScope,
}

impl ConnectArgs {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let client = require_client(&self.client)?;
        let users = self.scope.users(client)?;
        let target = self.connection.target(globals, None, self.profile.as_deref(), users).await?;
        let entries = vec![ClientEntry::pegboard(client, &target)?];
        let mut file = EntryFile::open(client, self.scope, &entries)?;
        if self.dry_run {
            file.preview(globals, &entries);
            return Ok(ExitCode::SUCCESS);
        }
        if self.connection.is_program() {
            // The client starts what the configuration names, and does not ask.
            ConfigSelection::without_probing(globals)?.require_trust()?;
        }
        // A client does not tell why an entry does not work.
        let offer = if self.no_check { None } else { Some(try_entry(globals, &target).await?) };
        file.write(globals, &entries, offer.as_ref())
    }
}
