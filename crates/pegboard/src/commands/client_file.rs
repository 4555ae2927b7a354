//! Selection of clients' files, and how clients start Pegboard.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use pegboard::config::backups::Backups;
use pegboard::config::clients::{KnownClient, Platform, clients, find_client, suggest_client};
use pegboard::config::export::{SERVER_NAME, ServeTarget};
use pegboard::config::{ConfigurationError, SourceSpec};
use pegboard::secret::Secret;

use crate::cli::{CliError, Globals};
use crate::environment;
use crate::paths::{self, absolute, working_dir};
use crate::token_file::TokenFile;

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

    /// Returns `true` if the selected file is that of a project, which users share.
    pub(crate) fn is_shared(self, client: &KnownClient) -> Result<bool, CliError> {
        Ok(client.project_paths(&working_dir()?).contains(&self.path(client)?))
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

/// Returns the way in which clients connect to Pegboard: a URL, or this program with the configuration file
/// `file` or that of this command.
pub(crate) fn serve_target(
    globals: &Globals,
    file: Option<&Path>,
    url: Option<String>,
) -> Result<ServeTarget, CliError> {
    match url {
        Some(url) => {
            let token = is_own_gateway(&url).then(|| own_token(globals)).transpose()?.flatten();
            Ok(ServeTarget::Url { url, token })
        }
        None => {
            Ok(ServeTarget::Program { command: program_command()?, args: serve_arguments(globals, file)? })
        }
    }
}

/// Returns `true` if a URL is served on this machine, where gateways accept the token of their user.
fn is_own_gateway(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Token of this user's gateways.
fn own_token(globals: &Globals) -> Result<Option<Secret>, CliError> {
    let Some(state) = paths::state_dir(globals.state.as_deref()) else { return Ok(None) };
    Ok(Some(Secret::new(TokenFile::open(&state)?.token().reveal())))
}

/// Command that starts this program: its name if it is first on `PATH`, or else its full path.
fn program_command() -> Result<String, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::system(format!("cannot determine the path of this program: {error}")))?;
    let file = format!("{SERVER_NAME}{}", std::env::consts::EXE_SUFFIX);
    let real = |path: &Path| path.canonicalize().ok();
    let paths = environment::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&paths).map(|folder| folder.join(&file)).find(|path| path.is_file());
    let is_own = first.is_some_and(|first| real(&first).is_some() && real(&first) == real(&program));
    Ok(if is_own { SERVER_NAME.to_owned() } else { program.display().to_string() })
}

/// Arguments with which a client starts this program, so that it serves the configuration of this command.
fn serve_arguments(globals: &Globals, file: Option<&Path>) -> Result<Vec<String>, CliError> {
    let mut arguments = vec!["serve".to_owned(), "--stdio".to_owned()];
    let mut name = |source: String| arguments.extend(["--config".to_owned(), source]);
    if let Some(file) = file {
        name(absolute(file)?.display().to_string());
    } else if globals.config.is_empty() {
        // A client may start it in any directory.
        if let Ok(path) = pegboard::config::find(&working_dir()?, &paths::env_var) {
            name(absolute(&path)?.display().to_string());
        }
    } else {
        for source in &globals.config {
            name(absolute_source(source)?);
        }
    }
    for setting in &globals.set {
        arguments.extend(["--set".to_owned(), setting.clone()]);
    }
    Ok(arguments)
}

/// Returns a source in a form that is valid in every directory.
fn absolute_source(source: &Path) -> Result<String, CliError> {
    match paths::source_spec(source, &working_dir()?)? {
        SourceSpec::File(path) if !path.exists() => {
            Err(CliError::from(ConfigurationError::NotFound { path }))
        }
        SourceSpec::File(path) | SourceSpec::Folder(path) => Ok(absolute(&path)?.display().to_string()),
        SourceSpec::Client { .. } | SourceSpec::Url(_) | SourceSpec::Document(_) | SourceSpec::Command(_) => {
            Ok(source.display().to_string())
        }
    }
}
