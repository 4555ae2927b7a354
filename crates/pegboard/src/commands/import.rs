//! `pegboard import`: copies the servers of clients to Pegboard's configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::clients::Platform;
use pegboard::config::import::{Import, ImportSource, ImportSources, TakeoverScope, ToolboxGrouping};
use pegboard::config::trust::{ActionTarget, FileAction};
use pegboard::config::{ConfigFile, SecretSource, SpecContext};
use pegboard::secret::Secret;

use super::client_connection::{ConnectionOptions, FileUsers};
use super::client_file::open_backups;
use super::config_file::{EditTarget, editable_path, is_users_file, same_file};
use super::init;
use super::stored_keys::StoredKeys;
use crate::cli::{CliError, Globals};
use crate::paths::{self, working_dir};
use crate::secrets::UserSecrets;
use crate::trust::TrustGate;
use report::{ClientOnlyServers, ImportReport};

mod report;

/// Arguments of `pegboard import`.
#[derive(Args)]
pub(crate) struct ImportArgs {
    /// Sources to import from: clients such as cursor or cursor:weather, files, directories or URLs; all
    /// clients on this machine by default
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// File to import into; by default the user's configuration file for files of the user, or else the project's
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    into: Option<PathBuf>,
    /// Toolbox for entries without one; a toolbox for each server by default
    #[arg(long, short = 'b', value_name = "TOOLBOX")]
    toolbox: Option<String>,
    /// Replace the imported servers in the clients' files by Pegboard; undo with pegboard restore
    #[arg(long)]
    take_over: bool,
    /// With --take-over: replace servers, too, that Pegboard cannot use yet: those that may need a login, and those
    /// with variables that are not set
    #[arg(long, requires = "take_over")]
    force: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    stored_keys: StoredKeys,
    #[command(flatten)]
    target: EditTarget,
}

impl ImportArgs {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        if !self.take_over && !self.connection.is_program() {
            return Err(CliError::usage("--http applies only with --take-over"));
        }
        let (mut import, left_out) = self.plan(globals)?;
        let secrets = self.stored_keys.apply(globals, &mut import.file, self.target.dry_run)?;
        let taken = if self.take_over {
            let file = Some(import.file.path.as_path());
            let target = self.connection.target(globals, file, None, FileUsers::One).await?;
            let scope = if self.force { TakeoverScope::All } else { TakeoverScope::Usable };
            import.take_over(&working_dir()?, &target, scope)?
        } else {
            Vec::new()
        };
        let import_use = if self.take_over { ImportUse::Clients } else { ImportUse::Pegboard };
        // Pegboard's file is written first: a client must not refer to a missing file.
        let mut report = finish(globals, import, self.target, import_use)?;
        secrets.keep(globals);
        report.left_out = left_out;
        report.stays = match (self.take_over, self.force) {
            (true, false) => ClientOnlyServers::Stay,
            (true, true) | (false, _) => ClientOnlyServers::Imported,
        };
        let mut failures = Vec::new();
        for takeover in taken {
            let write = || Ok(open_backups(globals)?.write(takeover.client, &takeover.change)?);
            match if self.target.dry_run { Ok(false) } else { write() } {
                Ok(_) => report.taken.push(takeover),
                Err(failure) => failures.push(failure),
            }
        }
        report.print(globals);
        CliError::report_all(failures, globals)
    }
}

impl ImportArgs {
    /// Reads the sources and chooses the file: files of the user go into the user's configuration, wherever the command
    /// runs. Returns the files of the project that are left out therefore.
    fn plan(&self, globals: &Globals) -> Result<(Import<'static>, Vec<PathBuf>), CliError> {
        let is_chosen = self.into.is_some() || self.target.user || !globals.config.is_empty();
        let mut target = self.target;
        let mut left_out = Vec::new();
        if !is_chosen {
            let mut sources = find_sources(&self.sources, None)?;
            left_out = sources.split_off_projects();
            target.user = sources.sources.iter().any(|source| source.is_user_file);
        }
        let file = match &self.into {
            Some(path) => ConfigFile::open(&editable_path(path)?, &paths::env_var)?,
            None => target.open(globals)?,
        };
        let file = if file.is_new() { init::new_file(&file.path)? } else { file };
        let toolbox = file.toolbox(self.toolbox.as_deref())?;
        let grouping = match (&self.toolbox, &toolbox) {
            (None, None) => ToolboxGrouping::PerServer,
            _ => ToolboxGrouping::Root,
        };
        let mut sources = find_sources(&self.sources, toolbox.as_deref())?;
        if !is_chosen {
            sources.split_off_projects();
        }
        let secret = stored_secret(globals);
        Ok((Import::new(file, sources, grouping, &secret)?, left_out))
    }
}

/// Returns the user's secrets by name, to compare entries. One that cannot be read differs from all.
fn stored_secret(globals: &Globals) -> impl Fn(&str) -> Option<Secret> {
    let secrets = UserSecrets::new(globals.state.as_deref());
    move |name| secrets.keyring(name).ok().flatten()
}

/// Reads the given sources, or those of all clients.
fn find_sources(named: &[PathBuf], toolbox: Option<&str>) -> Result<ImportSources, CliError> {
    let folder = working_dir()?;
    let context =
        SpecContext { folder: &folder, environment: &paths::env_var, platform: Platform::current(), toolbox };
    if named.is_empty() {
        return Ok(ImportSources::all(&context));
    }
    let specs: Result<Vec<_>, _> = named.iter().map(|name| paths::source_spec(name, &folder)).collect();
    Ok(ImportSources::of(&specs?, &context)?)
}

/// Imports sources into a new file. It is an error if there is nothing to import.
pub(super) fn import_into_new(
    globals: &Globals,
    file: ConfigFile<'static>,
    sources: &[PathBuf],
    target: EditTarget,
) -> Result<ImportReport, CliError> {
    let sources = find_sources(sources, None)?;
    let is_itself = |source: &ImportSource| same_file(&source.inventory.path, &file.path);
    if sources.sources.iter().any(is_itself) {
        return Err(CliError::usage("cannot import a file into itself").hint("use another source"));
    }
    let import = Import::new(file, sources, ToolboxGrouping::PerServer, &stored_secret(globals))?;
    if !import.has_new_items() {
        let failure = CliError::not_found("unknown_server", "no servers to import");
        return Err(failure.hint("remove --from, or use another source"));
    }
    finish(globals, import, target, ImportUse::Pegboard)
}

/// Programs that use the imported entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ImportUse {
    /// Commands of Pegboard, which ask for trust.
    Pegboard,
    /// Clients that Pegboard takes over: they start it without asking.
    Clients,
}

/// Writes the file, or shows the diff. Entries of project files that are not trusted are imported, but not trusted
/// either.
fn finish(
    globals: &Globals,
    import: Import<'static>,
    target: EditTarget,
    import_use: ImportUse,
) -> Result<ImportReport, CliError> {
    let (mut edited, mut untrusted) = (None, Vec::new());
    if import.has_new_items() {
        if import.file.is_new() {
            init::write_schema(target)?;
        }
        let checked = target.check(&import.file)?;
        untrusted = untrusted_targets(globals, &import)?;
        if !target.dry_run && (import_use == ImportUse::Clients || is_users_file(&import.file.path)) {
            require_trust(globals, &import, &mut untrusted)?;
        }
        if !target.dry_run {
            checked.write(globals, |action| untrusted.contains(&action.target))?;
        }
        edited = Some(checked);
    }
    Ok(ImportReport {
        import,
        edited,
        taken: Vec::new(),
        left_out: Vec::new(),
        stays: ClientOnlyServers::Imported,
        untrusted,
        is_dry_run: target.dry_run,
    })
}

/// Returns the new entries that stem from project files which are not trusted.
fn untrusted_targets(globals: &Globals, import: &Import<'_>) -> Result<Vec<ActionTarget>, CliError> {
    let actions = source_actions(import);
    let untrusted = TrustGate::from_globals(globals).untrusted(&actions)?;
    Ok(import.targets_of(|action| untrusted.contains(&action)))
}

/// Asks for consent to entries that no later command asks about: those in the user's file, and those that a client
/// starts.
fn require_trust(
    globals: &Globals,
    import: &Import<'_>,
    untrusted: &mut Vec<ActionTarget>,
) -> Result<(), CliError> {
    if untrusted.is_empty() {
        return Ok(());
    }
    let (gate, actions) = (TrustGate::from_globals(globals), source_actions(import));
    gate.require(&gate.untrusted(&actions)?, &actions)?;
    untrusted.clear();
    Ok(())
}

fn source_actions(import: &Import<'_>) -> Vec<FileAction> {
    import.sources.sources.iter().flat_map(|source| source.inventory.actions.clone()).collect()
}
