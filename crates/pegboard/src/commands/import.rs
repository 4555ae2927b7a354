//! `pegboard import`: copies the servers of clients to Pegboard's configuration file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::SpecContext;
use pegboard::config::clients::Platform;
use pegboard::config::inventory::{Inventory, take_inventory};

use super::config_file::{ConfigFile, EditTarget, editable_path, working_dir};
use super::init;
use crate::cli::{CliError, Globals};
use crate::paths;
use plan::ImportPlan;
use report::ImportReport;
use sources::{ImportSource, ImportSources};
use take_over::{Takeover, take_over};

mod plan;
mod report;
mod sources;
mod take_over;

/// Arguments of `pegboard import`.
#[derive(Args)]
pub(crate) struct ImportArgs {
    /// Sources to import from: clients such as cursor or cursor:weather, files, directories or URLs; all
    /// clients on this machine by default
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// File to import into; the project's configuration file by default
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    into: Option<PathBuf>,
    /// Toolbox for entries without one [default: default]
    #[arg(long, short = 'b', value_name = "TOOLBOX")]
    toolbox: Option<String>,
    /// Replace the imported servers in the clients' files by Pegboard; undo with pegboard restore
    #[arg(long)]
    take_over: bool,
    /// With --take-over: connect clients to this URL instead of starting a program
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = super::export::DEFAULT_URL, requires = "take_over")]
    http: Option<String>,
    #[command(flatten)]
    target: EditTarget,
}

impl ImportArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let file = match &self.into {
            Some(path) => ConfigFile::open_at(&editable_path(path)?)?,
            None => ConfigFile::open(globals, self.target)?,
        };
        let file = if file.is_new() {
            let schema = init::schema_path();
            ConfigFile::create(&file.path, init::heading(&file.path, schema.as_deref()))?
        } else {
            file
        };
        let toolbox = file.toolbox(self.toolbox.as_deref())?;
        let job = ImportJob::into(file, find_sources(&self.sources, toolbox.as_deref())?)?;
        let taken = if self.take_over { job.take_over(globals, self.http.as_deref())? } else { Vec::new() };
        // Pegboard's file is written first: a client must not refer to a missing file.
        let mut report = job.finish(self.target)?;
        let mut failures = Vec::new();
        for one in taken {
            match one.write(globals, self.target) {
                Ok(result) => report.taken.push(result),
                Err(failure) => failures.push(failure),
            }
        }
        report.print(globals);
        CliError::report_all(failures, globals)
    }
}

/// Reads the given sources, or those of all clients.
fn find_sources(named: &[PathBuf], toolbox: Option<&str>) -> Result<ImportSources, CliError> {
    let folder = working_dir()?;
    let context =
        SpecContext { folder: &folder, environment: &paths::env_var, platform: Platform::current(), toolbox };
    if named.is_empty() { Ok(ImportSources::all(&context)) } else { ImportSources::named(named, &context) }
}

/// An import into a configuration file.
pub(crate) struct ImportJob {
    file: ConfigFile,
    sources: ImportSources,
    plan: ImportPlan,
}

impl ImportJob {
    /// Imports sources into a new file. It is an error if there is nothing to import.
    pub(crate) fn into_new(file: ConfigFile, sources: &[PathBuf]) -> Result<Self, CliError> {
        let sources = find_sources(sources, None)?;
        let is_itself = |source: &ImportSource| same_file(&source.inventory.path, &file.path);
        if sources.sources.iter().any(is_itself) {
            return Err(CliError::usage("cannot import a file into itself").hint("use another source"));
        }
        let job = Self::add_missing(None, file, sources)?;
        if !job.plan.has_new_items() {
            let failure = CliError::not_found("unknown_server", "no servers to import");
            return Err(failure.hint("remove --from, or use another source"));
        }
        Ok(job)
    }

    fn into(file: ConfigFile, sources: ImportSources) -> Result<Self, CliError> {
        let present = if file.is_new() { None } else { Some(take_inventory(&file.path, &paths::env_var)?) };
        Self::add_missing(present.as_ref(), file, sources)
    }

    /// Adds the entries that the file does not have yet.
    fn add_missing(
        present: Option<&Inventory>,
        mut file: ConfigFile,
        sources: ImportSources,
    ) -> Result<Self, CliError> {
        let mut plan = ImportPlan::new(present, &sources);
        plan.apply(&mut file, &sources)?;
        Ok(Self { file, sources, plan })
    }

    /// Prepares the clients' files with Pegboard in place of the imported servers. Writes nothing.
    fn take_over(&self, globals: &Globals, url: Option<&str>) -> Result<Vec<Takeover>, CliError> {
        take_over(globals, &self.sources, &self.plan, (&self.file.path, url))
    }

    /// Writes the file, or shows the diff.
    pub(crate) fn finish(self, target: EditTarget) -> Result<ImportReport, CliError> {
        let Self { file, sources, plan } = self;
        let is_new = file.is_new();
        let (path, plaintext_keys) = (file.path.clone(), plan.plaintext_keys());
        if !plan.has_new_items() {
            return Ok(ImportReport {
                sources,
                plan,
                path,
                changed: None,
                plaintext_keys,
                taken: Vec::new(),
            });
        }
        if is_new {
            init::write_schema(target)?;
        }
        let changed = file.finish(target.write_mode())?;
        if is_new && !plaintext_keys.is_empty() && !target.dry_run {
            restrict_permissions(&changed.path);
        }
        Ok(ImportReport { sources, plan, path, changed: Some(changed), plaintext_keys, taken: Vec::new() })
    }
}

/// Returns `true` if two paths lead to the same file.
fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Makes a file with keys readable only by this user.
fn restrict_permissions(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Best effort: on failure the file has the default permissions.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}
