//! `pegboard import`: what clients have, once, as a file of ours.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::Around;
use pegboard::config::clients::System;
use pegboard::config::survey::{Survey, survey};
use pegboard::telemetry::tell;

use super::init;
use super::own_file::{OwnFile, Target, here, shown};
use crate::cli::{Failure, Format, Globals};
use crate::place;
use plan::Plan;
use report::Report;
use sources::Sources;
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
            Some(path) => OwnFile::at(path)?,
            None => OwnFile::open(globals, self.target)?,
        };
        let file = if file.is_new() {
            let schema = init::schema_place();
            OwnFile::begin(&file.path, init::heading(&file.path, schema.as_deref()))?
        } else {
            file
        };
        let toolbox = file.toolbox(self.toolbox.as_deref())?;
        let sources = self.look(toolbox.as_deref())?;
        let mut brought = Brought::into(file, sources)?;
        let taken = if self.take_over { self.take_over(globals, &brought)? } else { Vec::new() };
        // Ours is written first: a client must not be sent to what is not there.
        brought.finish(self.target)?;
        let taken = taken.into_iter().map(|one| one.write(globals, self.target)).collect::<Result<_, _>>()?;
        brought.tell(globals, taken);
        Ok(ExitCode::SUCCESS)
    }

    fn look(&self, toolbox: Option<&str>) -> Result<Sources, Failure> {
        let folder = here()?;
        let around =
            Around { folder: &folder, environment: &place::environment, system: System::here(), toolbox };
        if self.sources.is_empty() {
            Ok(Sources::all(&around))
        } else {
            Sources::named(&self.sources, &around)
        }
    }

    fn take_over(&self, globals: &Globals, brought: &Brought) -> Result<Vec<Taken>, Failure> {
        take_over(globals, &brought.sources, &brought.plan, (&brought.path, self.http.as_deref()))
    }
}

/// What was brought into a file of ours.
pub(crate) struct Brought {
    path: PathBuf,
    file: Option<OwnFile>,
    sources: Sources,
    plan: Plan,
    report: Report,
}

impl Brought {
    /// Brings what some sources name into a file that was not there.
    pub(crate) fn into_new(file: OwnFile, sources: &[PathBuf]) -> Result<Self, Failure> {
        let folder = here()?;
        let around = Around {
            folder: &folder,
            environment: &place::environment,
            system: System::here(),
            toolbox: None,
        };
        Self::into(file, Sources::named(sources, &around)?)
    }

    fn into(mut file: OwnFile, sources: Sources) -> Result<Self, Failure> {
        let present = if file.is_new() { None } else { Some(present(&file)?) };
        let mut plan = Plan::new(present.as_ref(), &sources);
        plan.apply(&mut file, &sources)?;
        Ok(Self { path: file.path.clone(), file: Some(file), sources, plan, report: Report::default() })
    }

    /// Writes the file, or shows what would be written.
    pub(crate) fn finish(&mut self, target: Target) -> Result<(), Failure> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let is_new = file.is_new();
        if is_new && !self.plan.has_news() {
            return Ok(());
        }
        if is_new {
            init::write_schema(target)?;
        }
        let bare_keys = self.plan.bare_keys();
        let changed = file.finish(target.writing())?;
        if is_new && !bare_keys.is_empty() && !target.dry_run {
            keep_private(&changed.path);
        }
        self.report = Report { changed: Some(changed), bare_keys, taken: Vec::new() };
        Ok(())
    }

    /// Tells what came of it.
    pub(crate) fn tell(mut self, globals: &Globals, taken: Vec<take_over::Told>) {
        self.report.taken = taken;
        for unread in &self.sources.unread {
            tell(&format!("{} is left out: {}", shown(&unread.path), unread.why));
        }
        if !globals.quiet {
            for problem in self.plan.remarks(&self.sources) {
                tell(&problem.to_string());
            }
        }
        self.report.tell(globals, &self.sources, &self.plan);
        if globals.format_or(Format::Text) == Format::Text && !globals.quiet {
            for remark in self.report.remarks(&self.sources, &self.plan) {
                tell(&remark);
            }
        }
    }
}

/// What the file names already.
fn present(file: &OwnFile) -> Result<Survey, Failure> {
    Ok(survey(&file.path, &place::environment)?)
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
