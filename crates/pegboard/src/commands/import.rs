//! `pegboard import`: what clients have, once, as a file of ours.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::Around;
use pegboard::config::clients::System;
use pegboard::config::survey::{Survey, survey};

use super::init;
use super::own_file::{OwnFile, Target, file_named, here};
use crate::cli::{Failure, Globals};
use crate::place;
use plan::Plan;
use report::Report;
use sources::{Source, Sources};
use take_over::{Taken, take_over};

mod plan;
mod report;
mod sources;
mod take_over;

/// From where, and where to.
#[derive(Args)]
pub(crate) struct Import {
    /// Where to bring it from: clients such as cursor or cursor:weather, files, folders, addresses; without any, from all
    /// clients of this machine
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The file that it is brought to; without it, that of this folder
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    into: Option<PathBuf>,
    /// The toolbox for what is in none; without it, default
    #[arg(long, short = 'b', value_name = "TOOLBOX")]
    toolbox: Option<String>,
    /// Have the clients use us instead of what was brought; pegboard restore puts their files back
    #[arg(long)]
    take_over: bool,
    /// With --take-over: have the clients come to this address, instead of starting a program
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = super::export::USUAL_URL, requires = "take_over")]
    http: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Import {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let file = match &self.into {
            Some(path) => OwnFile::at(&file_named(path)?)?,
            None => OwnFile::open(globals, self.target)?,
        };
        let file = if file.is_new() {
            let schema = init::schema_place();
            OwnFile::begin(&file.path, init::heading(&file.path, schema.as_deref()))?
        } else {
            file
        };
        let toolbox = file.toolbox(self.toolbox.as_deref())?;
        let brought = Brought::into(file, look(&self.sources, toolbox.as_deref())?)?;
        let taken =
            if self.take_over { brought.take_over(globals, self.http.as_deref())? } else { Vec::new() };
        // Ours is written first: a client must not be sent to what is not there.
        let mut report = brought.finish(self.target)?;
        let mut failures = Vec::new();
        for one in taken {
            match one.write(globals, self.target) {
                Ok(told) => report.taken.push(told),
                Err(failure) => failures.push(failure),
            }
        }
        report.tell(globals);
        Failure::told_but_last(failures, globals)
    }
}

/// Looks at what somebody names, or else at what all clients have.
fn look(named: &[PathBuf], toolbox: Option<&str>) -> Result<Sources, Failure> {
    let folder = here()?;
    let around =
        Around { folder: &folder, environment: &place::environment, system: System::here(), toolbox };
    if named.is_empty() { Ok(Sources::all(&around)) } else { Sources::named(named, &around) }
}

/// What is brought into a file of ours.
pub(crate) struct Brought {
    file: OwnFile,
    sources: Sources,
    plan: Plan,
}

impl Brought {
    /// Brings what some sources name into a file that begins anew. There must be something.
    pub(crate) fn into_new(file: OwnFile, sources: &[PathBuf]) -> Result<Self, Failure> {
        let sources = look(sources, None)?;
        let is_itself = |source: &Source| same_file(&source.survey.path, &file.path);
        if sources.sources.iter().any(is_itself) {
            return Err(
                Failure::usage("a file cannot begin with what it says itself").hint("name another source")
            );
        }
        let brought = Self::beside(None, file, sources)?;
        if !brought.plan.has_news() {
            let failure = Failure::not_found("unknown_server", "there are no servers to begin with");
            return Err(failure.hint("leave out --from, or name another source"));
        }
        Ok(brought)
    }

    fn into(file: OwnFile, sources: Sources) -> Result<Self, Failure> {
        let present = if file.is_new() { None } else { Some(survey(&file.path, &place::environment)?) };
        Self::beside(present.as_ref(), file, sources)
    }

    /// Brings what is not there yet.
    fn beside(present: Option<&Survey>, mut file: OwnFile, sources: Sources) -> Result<Self, Failure> {
        let mut plan = Plan::new(present, &sources);
        plan.apply(&mut file, &sources)?;
        Ok(Self { file, sources, plan })
    }

    /// The files of clients, with us in the place of what was brought. Nothing is written yet.
    fn take_over(&self, globals: &Globals, url: Option<&str>) -> Result<Vec<Taken>, Failure> {
        take_over(globals, &self.sources, &self.plan, (&self.file.path, url))
    }

    /// Writes the file, or shows what would be written.
    pub(crate) fn finish(self, target: Target) -> Result<Report, Failure> {
        let Self { file, sources, plan } = self;
        let is_new = file.is_new();
        let (path, bare_keys) = (file.path.clone(), plan.bare_keys());
        if !plan.has_news() {
            return Ok(Report { sources, plan, path, changed: None, bare_keys, taken: Vec::new() });
        }
        if is_new {
            init::write_schema(target)?;
        }
        let changed = file.finish(target.writing())?;
        if is_new && !bare_keys.is_empty() && !target.dry_run {
            keep_private(&changed.path);
        }
        Ok(Report { sources, plan, path, changed: Some(changed), bare_keys, taken: Vec::new() })
    }
}

/// Whether two paths lead to one file.
fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Lets nobody but this user read a file with keys in it.
fn keep_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Where that cannot be, the file is as any other that somebody writes keys into.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}
