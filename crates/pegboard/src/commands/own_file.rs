//! Our own configuration file, as commands change it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use pegboard::config::edit::{self, Document, EditError, Way, WriteError};
use pegboard::config::{self, Configuration, ConfigurationError, Layers, Problem, Severity};
use pegboard::telemetry::tell;
use serde_json::{Map, Value, json};

use crate::cli::{Exit, Failure, Format, Globals, print};
use crate::place;

mod parts;

pub(crate) use parts::{Part, Section, find_part, free_name, parts};

/// Which file is changed, and whether it is.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Change the file of this user, which holds in every folder, and not that of this folder
    #[arg(long)]
    pub(crate) user: bool,
    /// Show what would change, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// It is made.
    Real,
    /// It is shown.
    Shown,
}

impl Target {
    pub(crate) fn writing(self) -> Writing {
        if self.dry_run { Writing::Shown } else { Writing::Real }
    }
}

/// Our own file.
pub(crate) struct OwnFile {
    pub(crate) path: PathBuf,
    pub(crate) document: Document,
    /// What the file says on disk. `None` if there is none yet.
    old: Option<String>,
    /// What was wrong with it before anything was changed.
    known: BTreeSet<String>,
    /// Whose words it uses.
    pub(crate) dialect: config::Dialect,
}

/// What came of a change.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) path: PathBuf,
    /// Whether the file said something else before.
    pub(crate) has_effect: bool,
    /// What would change, if it was only to be shown.
    pub(crate) diff: Option<String>,
    /// The servers and tools that cannot be used yet, with the reason.
    pub(crate) obstacles: Vec<(String, String)>,
}

impl Changed {
    /// Tells what came of it: as a document with the file in it, or in a line of text. `names` are what it was about.
    pub(crate) fn tell(
        &self,
        globals: &Globals,
        names: &[&str],
        mut document: Map<String, Value>,
        text: &str,
    ) {
        document.insert("file".to_owned(), json!(self.path));
        document.insert("changed".to_owned(), json!(self.has_effect && self.diff.is_none()));
        if let Some(diff) = &self.diff {
            document.insert("diff".to_owned(), json!(diff));
        }
        let of_these = |(name, _): &&(String, String)| names.contains(&name.as_str());
        let obstacles: Vec<&(String, String)> = self.obstacles.iter().filter(of_these).collect();
        if !obstacles.is_empty() {
            let needs = obstacles.iter().map(|(name, reason)| (name.clone(), json!(reason))).collect();
            document.insert("obstacles".to_owned(), Value::Object(needs));
        }
        let is_text = globals.format_or(Format::Text) == Format::Text;
        print::document(globals.format_or(Format::Text), &document, || match &self.diff {
            Some(diff) if diff.is_empty() => "Nothing would change".to_owned(),
            Some(diff) => diff.clone(),
            None => text.to_owned(),
        });
        if is_text && !globals.quiet {
            for (name, reason) in obstacles {
                tell(&format!("{name} cannot be used yet: {reason}"));
            }
        }
    }
}

impl OwnFile {
    /// The file that commands change, or one that is to be made.
    pub(crate) fn open(globals: &Globals, target: Target) -> Result<Self, Failure> {
        Self::at(&path_of(globals, target)?)
    }

    /// The file at a place, or one that is to be made there.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let document = match Document::read(path) {
            Ok(document) => document,
            Err(ConfigurationError::NotThere { .. }) => return Self::begin(path, String::new()),
            Err(error) => return Err(error.into()),
        };
        let old = document.text();
        let configuration = match check(path, &old) {
            Ok(configuration) => configuration,
            // A file with nothing in it is none that is wrong.
            Err(ConfigurationError::Empty { .. }) => Configuration::default(),
            Err(error) => {
                return Err(Failure::from(error).detail("put this right first: the file was not changed"));
            }
        };
        let known = configuration.problems.iter().map(told).collect();
        let dialect = configuration.sources.first().map_or(config::Dialect::Native, |source| source.dialect);
        Ok(Self { path: path.to_owned(), document, old: Some(old), known, dialect })
    }

    /// A file that is to be made, with a text to begin with.
    pub(crate) fn begin(path: &Path, text: String) -> Result<Self, Failure> {
        let document = Document::new(path, text)?;
        let dialect = config::Dialect::Native;
        Ok(Self { path: path.to_owned(), document, old: None, known: BTreeSet::new(), dialect })
    }

    /// Whether there is no such file yet.
    pub(crate) fn is_new(&self) -> bool {
        self.old.is_none()
    }

    /// The same file, but with all that is in it on disk to be replaced.
    pub(crate) fn replacing(self, old: Option<String>) -> Self {
        Self { old, ..self }
    }

    pub(crate) fn set(&mut self, way: &Way, value: &Value) -> Result<(), Failure> {
        self.document.set(way, value).map_err(refused)
    }

    pub(crate) fn append(&mut self, way: &Way, value: &Value) -> Result<(), Failure> {
        self.document.append(way, value).map_err(refused)
    }

    /// Has it say something else as a whole.
    pub(crate) fn say(&mut self, text: String) -> Result<(), Failure> {
        self.document = Document::new(&self.path, text)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, way: &Way) -> Result<Option<Value>, Failure> {
        self.document.remove(way).map_err(refused)
    }

    /// The toolbox that something is put into, if somebody wants that one. A workbench has nothing outside of toolboxes.
    pub(crate) fn toolbox(&self, wanted: Option<&str>) -> Result<Option<String>, Failure> {
        let is_workbench = self.dialect == config::Dialect::Workbench;
        if wanted.is_some() || !is_workbench {
            return Ok(wanted.filter(|toolbox| *toolbox != "default" || is_workbench).map(str::to_owned));
        }
        let toolboxes = self.document.value().get("toolboxes").and_then(Value::as_object);
        let names: Vec<&str> = toolboxes.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        match names.as_slice() {
            [only] => Ok(Some((*only).to_owned())),
            _ => Err(Failure::usage("this file has toolboxes, and nothing says which is meant")
                .hint(format!("-b TOOLBOX: {}", names.join(", ")))),
        }
    }

    /// What would be wrong with the file that was not before.
    pub(crate) fn new_problems(&self) -> Result<Vec<Problem>, Failure> {
        match check(&self.path, &self.document.text()) {
            Ok(configuration) => Ok(self.problems_of(&configuration)),
            Err(ConfigurationError::Empty { .. }) => Ok(Vec::new()),
            Err(ConfigurationError::Invalid { problems }) => Ok(problems),
            Err(error) => Err(unwritten(error.into(), &self.path)),
        }
    }

    /// What is wrong with single parts, was not before, and cannot be helped by setting a variable.
    fn problems_of(&self, configuration: &Configuration) -> Vec<Problem> {
        let obstacles = obstacles(configuration);
        let needy: BTreeSet<String> =
            obstacles.iter().flat_map(|obstacle| obstacle.problems.iter().map(told)).collect();
        let is_new = |problem: &&Problem| {
            problem.severity == Severity::Error
                && !self.known.contains(&told(problem))
                && !needy.contains(&told(problem))
        };
        configuration.problems.iter().filter(is_new).cloned().collect()
    }

    /// Writes the file, or shows what would be written, if it still is a configuration.
    pub(crate) fn finish(self, writing: Writing) -> Result<Changed, Failure> {
        let text = self.document.text();
        let configuration = match check(&self.path, &text) {
            Ok(configuration) => configuration,
            Err(ConfigurationError::Empty { .. }) => Configuration::default(),
            Err(ConfigurationError::Invalid { problems }) => {
                return Err(unwritten(Failure::of_problems(problems), &self.path));
            }
            Err(error) => return Err(unwritten(error.into(), &self.path)),
        };
        let problems = self.problems_of(&configuration);
        if !problems.is_empty() {
            return Err(unwritten(Failure::of_problems(problems), &self.path));
        }
        let obstacles = obstacles(&configuration);
        let has_effect = self.old.as_deref() != Some(text.as_str());
        let diff = match writing {
            Writing::Shown => {
                let path = shown(&self.path);
                Some(edit::diff(Path::new(&path), self.old.as_deref().unwrap_or_default(), &text))
            }
            Writing::Real if has_effect => {
                edit::write(&self.path, self.old.as_deref(), &text).map_err(|error| unwritable(&error))?;
                None
            }
            Writing::Real => None,
        };
        let obstacles = obstacles.into_iter().map(|obstacle| (obstacle.name, obstacle.reason)).collect();
        Ok(Changed { path: self.path, has_effect, diff, obstacles })
    }
}

/// Where the file is that commands change.
fn path_of(globals: &Globals, target: Target) -> Result<PathBuf, Failure> {
    if target.user {
        return of_user();
    }
    match globals.config.as_slice() {
        [] => {}
        [only] => return file_named(only),
        _ => {
            return Err(
                Failure::usage("several files are named, and one can be changed").hint("--config FILE, once")
            );
        }
    }
    let folder = here()?;
    match config::find(&folder, &place::environment) {
        Ok(path) => Ok(path),
        Err(ConfigurationError::NoneFound { folder }) => Ok(folder.join("pegboard.yaml")),
        Err(error) => Err(error.into()),
    }
}

/// A file that somebody names, there or not. What is no file cannot be changed.
pub(crate) fn file_named(path: &Path) -> Result<PathBuf, Failure> {
    let is_other = !path.exists()
        && (path.to_str().is_some_and(|text| text.contains("://"))
            || matches!(place::spec(path, &here()?), Ok(config::Spec::Client { .. })));
    if is_other {
        let failure = Failure::usage(format!("{} is no file, and only files can be changed", path.display()));
        return Err(failure.hint("name a file, such as pegboard.yaml"));
    }
    Ok(path.to_owned())
}

/// The file of this user, there or not.
pub(crate) fn of_user() -> Result<PathBuf, Failure> {
    let usual = || Some(config::user_folder(&place::environment)?.join("pegboard.yaml"));
    config::find_user(&place::environment).or_else(usual).ok_or_else(|| {
        Failure::system("this user has no folder for settings")
            .hint("set HOME, or name a file: --config FILE")
    })
}

/// The working folder.
pub(crate) fn here() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::system(format!("this folder is not there any more: {error}")).hint("go to another one")
    })
}

/// What a text would come to if it were in this file.
fn check(path: &Path, text: &str) -> Result<Configuration, ConfigurationError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    config::load_layers(&Layers::new(folder).text(path, text), &place::environment)
}

/// A server or tool that needs something of its surroundings before it can be used.
struct Obstacle {
    name: String,
    reason: String,
    problems: Vec<Problem>,
}

fn obstacles(configuration: &Configuration) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    for toolbox in configuration.toolboxes.values() {
        for (name, server) in &toolbox.servers {
            if let config::Server::Unusable { needs, problems } = server
                && !needs.is_empty()
            {
                let reason = server.obstacle().unwrap_or_default();
                obstacles.push(Obstacle { name: name.to_string(), reason, problems: problems.clone() });
            }
        }
        for (name, tool) in &toolbox.rest_tools {
            if let config::RestEntry::Unusable { needs, problems } = tool
                && !needs.is_empty()
            {
                let reason = tool.obstacle().unwrap_or_default();
                obstacles.push(Obstacle { name: name.to_string(), reason, problems: problems.clone() });
            }
        }
    }
    for (name, provider) in &configuration.providers {
        if let config::ModelProvider::Unusable { needs, problems } = provider
            && !needs.is_empty()
        {
            let reason = provider.obstacle().unwrap_or_default();
            obstacles.push(Obstacle { name: name.to_string(), reason, problems: problems.clone() });
        }
    }
    obstacles
}

/// A problem without its line, which changes when something is added above it.
fn told(problem: &Problem) -> String {
    format!("{}: {}", problem.path, problem.message)
}

pub(crate) fn refused(error: EditError) -> Failure {
    match error {
        EditError::Unsafe(problem) => Failure::of_problems(vec![*problem]),
    }
}

pub(crate) fn unwritable(error: &WriteError) -> Failure {
    Failure::new(Exit::Failed, "system", error.to_string())
}

fn unwritten(failure: Failure, path: &Path) -> Failure {
    failure.detail(format!("{} was not changed", path.display()))
}

/// A path as people read it: from the working folder, if it is in it.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// A path that somebody typed in the working folder, as a file elsewhere must name it. Addresses stay as they are.
pub(crate) fn from_file(file: &Path, written: &str) -> Result<String, Failure> {
    if written.contains("://") {
        return Ok(written.to_owned());
    }
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| Failure::system(format!("{}: {error}", path.display())))
    };
    let (file, path) = (absolute(file)?, absolute(Path::new(written))?);
    let folder = file.parent().unwrap_or(Path::new(""));
    let named = path.strip_prefix(folder).unwrap_or(&path);
    // Files are read on every system, and all of them know this sign.
    Ok(if cfg!(windows) {
        named.display().to_string().replace('\\', "/")
    } else {
        named.display().to_string()
    })
}
