//! Report on one configuration: its contents and problems.

use std::path::Path;

use pegboard::config::{
    self, AgentFile, ConfigDialect, ConfigProblem, ConfigSource, Configuration, ConfigurationError,
    EntrySection, ServerEntry, Severity, UnusableEntry,
};
use pegboard::id::ToolboxName;
use pegboard::providers::rest;
use pegboard::redact::Redactor;
use pegboard::runtime::requests::ServerId;
use pegboard::secret::Secret;
use pegboard::wiring::{self, CheckReport};
use serde_json::{Value, json};

use super::{display_path, is_absent, load_error};
use crate::cli::error::{colored, problem_document};
use crate::cli::format::{DIM, GREEN, PLAIN, RED, one_line, plural};
use crate::cli::{CliError, Globals, notice, print};

/// Maximum number of characters of a reason.
const MAX_CHARACTERS: usize = 200;

/// Report on one configuration.
#[derive(Debug, Default)]
pub(super) struct ValidationReport {
    /// Name of the source.
    name: String,
    sources: Vec<ConfigSource>,
    /// Number of entries, if the source can be parsed.
    contents: Option<EntryCounts>,
    /// Errors with a location.
    problems: Vec<ConfigProblem>,
    /// Errors without a location.
    failures: Vec<CliError>,
    is_absent: bool,
    warnings: Vec<ConfigProblem>,
    /// Warnings without a location.
    remarks: Vec<EntryNote>,
    /// Entries that are valid but cannot be used here.
    obstacles: Vec<EntryNote>,
}

/// Message about one entry.
#[derive(Debug)]
struct EntryNote {
    part: String,
    text: String,
}

/// Number of entries of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EntryCounts {
    toolboxes: usize,
    servers: usize,
    rest_tools: usize,
    specs: usize,
    chains: usize,
    agents: usize,
    providers: usize,
    /// Set if a toolbox other than `default` exists.
    has_toolboxes: bool,
}

/// Severity threshold for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationMode {
    /// Only errors.
    Normal,
    /// Errors, warnings and unusable entries.
    Strict,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationVerdict {
    Valid,
    Invalid,
    /// The source does not exist.
    Absent,
}

impl ValidationReport {
    /// Checks a loaded configuration, or reports why it did not load. `project` is the directory that agents
    /// may include files from.
    pub(super) async fn check(
        name: String,
        read: Result<Configuration, ConfigurationError>,
        project: &Path,
    ) -> Self {
        let report = Self { name, ..Self::default() };
        match read {
            Err(error) => report.load_failed(error),
            Ok(configuration) => match configuration.sources.as_slice() {
                // A single agent file does not know the models of its configuration, so they are not checked.
                [ConfigSource { path, dialect: ConfigDialect::Agent, .. }] => {
                    let loaded = config::load_agent(path, project);
                    Self { sources: configuration.sources, ..report }.with_agent(loaded)
                }
                _ => report.with(configuration).await,
            },
        }
    }

    fn load_failed(mut self, error: ConfigurationError) -> Self {
        self.is_absent = is_absent(&error);
        match error {
            ConfigurationError::Invalid { problems } => self.sort_in(problems),
            other => self.failures.push(load_error(other)),
        }
        self
    }

    fn with_agent(mut self, loaded: Result<AgentFile, ConfigurationError>) -> Self {
        match loaded {
            Err(error) => self.load_failed(error),
            Ok(AgentFile { agents, warnings, .. }) => {
                self.contents = Some(EntryCounts { agents: agents.len(), ..EntryCounts::default() });
                self.sort_in(warnings);
                self
            }
        }
    }

    async fn with(mut self, mut configuration: Configuration) -> Self {
        self.contents = Some(EntryCounts::count(&configuration));
        self.sources = std::mem::take(&mut configuration.sources);
        self.sort_in(std::mem::take(&mut configuration.problems));
        self.obstacles = obstacles(&configuration);
        let secrets = configuration.secrets.clone();
        match wiring::check(configuration).await {
            Err(error) => self.fail(&error.to_string()),
            Ok(CheckReport { unusable, warnings }) => {
                let note = |(ServerId { toolbox, server }, text): (ServerId, String)| {
                    let text = redact(&secrets, &text);
                    EntryNote { part: format!("{toolbox}/{server}"), text }
                };
                self.remarks = warnings.into_iter().map(note).collect();
                // For an OpenAPI document an unusable service is an error in the document itself.
                if self.sources.iter().all(|source| source.dialect == ConfigDialect::OpenApi) {
                    for (_, why) in unusable {
                        self.fail(&redact(&secrets, &why));
                    }
                } else {
                    self.obstacles.extend(unusable.into_iter().map(note));
                }
            }
        }
        self
    }

    /// Adds an error without a location.
    fn fail(&mut self, why: &str) {
        self.failures.push(CliError::configuration(format!("{}: {why}", self.name)));
    }

    /// Sorts problems by severity and kind.
    fn sort_in(&mut self, problems: Vec<ConfigProblem>) {
        for problem in problems {
            match problem.severity {
                Severity::Warning => self.warnings.push(problem),
                Severity::Error => self.problems.push(problem),
            }
        }
    }

    pub(super) fn verdict(&self, mode: ValidationMode) -> ValidationVerdict {
        let is_wrong = !self.problems.is_empty() || !self.failures.is_empty();
        let is_doubtful = !self.warnings.is_empty() || !self.remarks.is_empty() || !self.obstacles.is_empty();
        match mode {
            _ if self.is_absent => ValidationVerdict::Absent,
            ValidationMode::Normal | ValidationMode::Strict if is_wrong => ValidationVerdict::Invalid,
            ValidationMode::Strict if is_doubtful => ValidationVerdict::Invalid,
            ValidationMode::Normal | ValidationMode::Strict => ValidationVerdict::Valid,
        }
    }

    /// Prints errors and warnings to standard error.
    pub(super) fn print(&self, globals: &Globals, mode: ValidationMode) {
        for failure in &self.failures {
            print::error_line(&failure.text());
        }
        for problem in &self.problems {
            print::error_line(&colored(&problem.to_string()));
        }
        let placed = self.warnings.iter().map(|problem| colored(&problem.render()));
        let others = self.remarks.iter().map(|note| format!("warning: {}", note.text()));
        for warning in placed.chain(others) {
            match mode {
                ValidationMode::Normal => notice(globals, &warning),
                ValidationMode::Strict => print::error_line(&warning),
            }
        }
    }

    /// Renders one summary row, and one row per unusable entry.
    pub(super) fn rows(&self, mode: ValidationMode) -> Vec<Vec<String>> {
        let mark = match self.verdict(mode) {
            ValidationVerdict::Valid => format!("{GREEN}✓{PLAIN}"),
            ValidationVerdict::Invalid | ValidationVerdict::Absent => format!("{RED}✗{PLAIN}"),
        };
        let mut row = vec![format!("{mark} {}", self.name)];
        row.extend(self.dialect().map(str::to_owned));
        let contents = self.contents.and_then(EntryCounts::text);
        let words = [contents, self.faults(mode)].into_iter().flatten().collect::<Vec<_>>();
        row.push(if words.is_empty() { "only settings".to_owned() } else { words.join("; ") });
        let obstacles = self.obstacles.iter().map(|obstacle| {
            vec![format!("    {}  {DIM}{}{PLAIN}", obstacle.part, one_line(&obstacle.text, MAX_CHARACTERS))]
        });
        std::iter::once(row).chain(obstacles).collect()
    }

    /// Renders the number of errors; `None` if there are none.
    fn faults(&self, mode: ValidationMode) -> Option<String> {
        if self.is_absent {
            return Some("not found".to_owned());
        }
        let number = |number: usize, thing: &str| {
            (number > 0).then(|| plural(u64::try_from(number).unwrap_or(u64::MAX), thing))
        };
        let errors = number(self.problems.len() + self.failures.len(), "error");
        let doubts = match mode {
            ValidationMode::Normal => None,
            ValidationMode::Strict => number(self.warnings.len() + self.remarks.len(), "warning"),
        };
        let unusable = match mode {
            ValidationMode::Normal => None,
            ValidationMode::Strict => {
                number(self.obstacles.len(), "part").map(|parts| format!("{parts} unusable"))
            }
        };
        let all: Vec<String> = [errors, doubts, unusable].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Dialect of the file with the highest priority.
    fn dialect(&self) -> Option<&'static str> {
        self.sources.last().map(|source| source.dialect.title())
    }

    /// Renders the report as JSON.
    pub(super) fn document(&self, mode: ValidationMode) -> Value {
        let sources = self.sources.iter();
        let sources: Vec<Value> = sources
            .map(|source| json!({"file": display_path(&source.path), "dialect": source.dialect.title()}))
            .collect();
        let unplaced = self.failures.iter().map(|failure| {
            let mut error = failure.document()["error"].take();
            error["file"] = self.name.as_str().into();
            error
        });
        let problems: Vec<Value> = unplaced.chain(self.problems.iter().map(problem_document)).collect();
        let warnings =
            self.warnings.iter().map(problem_document).chain(self.remarks.iter().map(EntryNote::document));
        json!({
            "file": self.name,
            "dialect": self.dialect(),
            "ok": self.verdict(mode) == ValidationVerdict::Valid,
            "sources": sources,
            "contents": self.contents.map(EntryCounts::document),
            "problems": problems,
            "warnings": warnings.collect::<Vec<_>>(),
            "obstacles": self.obstacles.iter().map(EntryNote::document).collect::<Vec<_>>(),
        })
    }
}

impl EntryNote {
    fn text(&self) -> String {
        format!("{}: {}", self.part, self.text)
    }

    fn document(&self) -> Value {
        json!({"part": self.part, "message": self.text})
    }
}

impl EntryCounts {
    fn count(configuration: &Configuration) -> Self {
        let has_name = |toolbox: &ToolboxName| toolbox.as_str() != "default";
        let mut contents = Self {
            toolboxes: configuration.toolboxes.len(),
            has_toolboxes: configuration.toolboxes.keys().any(has_name),
            providers: configuration.providers.len(),
            ..Self::default()
        };
        for toolbox in configuration.toolboxes.values() {
            let is_service = |server: &&ServerEntry| matches!(server, ServerEntry::OpenApi { .. });
            let n_specs = toolbox.servers.values().filter(is_service).count();
            contents.specs += n_specs;
            contents.servers += toolbox.servers.len() - n_specs;
            contents.rest_tools += toolbox.rest_tools.len();
            contents.chains += toolbox.chains.len();
            contents.agents += toolbox.agents.len();
        }
        contents
    }

    /// Renders the contents; `None` if there are none.
    fn text(self) -> Option<String> {
        let Self { toolboxes, servers, rest_tools, specs, chains, agents, providers, has_toolboxes } = self;
        let number = |number: usize, one: &str, many: &str| {
            (number > 0).then(|| format!("{number} {}", if number == 1 { one } else { many }))
        };
        let all = [
            number(toolboxes, "toolbox", "toolboxes").filter(|_| has_toolboxes),
            number(servers, "server", "servers"),
            number(specs, "OpenAPI document", "OpenAPI documents"),
            number(rest_tools, "REST tool", "REST tools"),
            number(chains, "chain", "chains"),
            number(agents, "agent", "agents"),
            number(providers, "model provider", "model providers"),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    fn document(self) -> Value {
        let Self { toolboxes, servers, rest_tools, specs, chains, agents, providers, has_toolboxes: _ } =
            self;
        json!({
            "toolboxes": toolboxes,
            "servers": servers,
            "openapiSpecs": specs,
            "restTools": rest_tools,
            "chains": chains,
            "agents": agents,
            "providers": providers,
        })
    }
}

/// Redacts secrets from a text.
fn redact(secrets: &[Secret], text: &str) -> String {
    Redactor::with_escapes(secrets.iter().map(Secret::reveal)).marked_text(text, "***").into_owned()
}

/// Entries that cannot be used only because variables are not set.
fn obstacles(configuration: &Configuration) -> Vec<EntryNote> {
    let is_described =
        |problem: &ConfigProblem| problem.severity == Severity::Warning || problem.needs.is_some();
    let unusable = configuration.unusable_entries();
    let only_unset = unusable.filter(|(_, _, entry)| entry.problems.iter().all(is_described));
    let note = |(place, name, entry): (Option<(&ToolboxName, EntrySection)>, &str, &UnusableEntry)| {
        let part = match place {
            Some((toolbox, EntrySection::RestTools)) => format!("{toolbox}/{}/{name}", rest::SERVER),
            Some((toolbox, _)) => format!("{toolbox}/{name}"),
            None => format!("providers/{name}"),
        };
        EntryNote { part, text: entry.reason() }
    };
    only_unset.map(note).collect()
}
