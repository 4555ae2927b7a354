//! Selection of clients' files.

use std::path::PathBuf;

use clap::Args;
use pegboard::config::backups::Backups;
use pegboard::config::clients::{KnownClient, Platform, clients, find_client, suggest_client};

use super::client_connection::FileUsers;
use crate::cli::{CliError, Globals};
use crate::paths::{self, working_dir};

/// Selects one of a client's files.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ClientScope {
    /// Use the client's user-level file
    #[arg(long)]
    user: bool,
    /// Use the client's project-level file
    #[arg(long, conflicts_with = "user")]
    project: bool,
}

/// Finds a client by name.
pub(crate) fn require_client(name: &str) -> Result<&'static KnownClient, CliError> {
    find_client(name).ok_or_else(|| {
        let failure = CliError::not_found("unknown_client", format!("unknown client '{name}'"));
        if let Some(meant) = suggest_client(name) {
            return failure.hint(format!("did you mean {meant}?"));
        }
        let names: Vec<&str> = clients().iter().map(KnownClient::name).collect();
        failure.hint(format!("expected one of {}", names.join(", ")))
    })
}

impl ClientScope {
    /// Path of the selected file, existing or not. Defaults to the user's file, if the client has one.
    pub(crate) fn path(self, client: &KnownClient) -> Result<PathBuf, CliError> {
        let folder = working_dir()?;
        let of_project = client.project_paths(&folder);
        let of_user = client.user_paths(&paths::env_var, Platform::current());
        let places = match (self.user, self.project) {
            (true, _) => of_user,
            (_, true) => of_project,
            _ if of_user.is_empty() => of_project,
            _ => of_user,
        };
        let there = places.iter().find(|path| path.exists()).or(places.first());
        there.cloned().ok_or_else(|| {
            let (what, other) =
                if self.project { ("project-level", "--user") } else { ("user-level", "--project") };
            CliError::usage(format!("{} has no {what} file here", client.title()))
                .hint(format!("try {other}"))
        })
    }

    /// Users of the selected file: that of a project is for all who have a copy of it.
    pub(crate) fn users(self, client: &KnownClient) -> Result<FileUsers, CliError> {
        let is_project_file = client.project_paths(&working_dir()?).contains(&self.path(client)?);
        Ok(if is_project_file { FileUsers::Several } else { FileUsers::One })
    }

    /// All files of a client that match the selection.
    pub(crate) fn paths(self, client: &KnownClient) -> Result<Vec<PathBuf>, CliError> {
        let folder = working_dir()?;
        let mut paths = Vec::new();
        if !self.user {
            paths.extend(client.project_paths(&folder));
        }
        if !self.project {
            paths.extend(client.user_paths(&paths::env_var, Platform::current()));
        }
        Ok(paths)
    }
}

/// Opens the backups of clients' files for a change.
pub(crate) fn open_backups(globals: &Globals) -> Result<Backups, CliError> {
    Ok(Backups::open_locked(&backup_dir(globals)?)?)
}

/// Directory of the backups.
pub(crate) fn backup_dir(globals: &Globals) -> Result<PathBuf, CliError> {
    let state = paths::state_dir(globals.state.as_deref())
        .ok_or_else(|| CliError::system("no state directory for backups").hint("set one with --state"))?;
    Ok(state.join("backups"))
}
