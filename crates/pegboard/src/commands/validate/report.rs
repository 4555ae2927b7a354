//! What one configuration comes to, and all that is wrong with it.

use std::path::Path;

use anstream::eprintln;
use pegboard::config::{
    self, AgentFile, Configuration, ConfigurationError, Dialect, ModelProvider, Problem, RestEntry, Server,
    Severity, Source,
};
use pegboard::id::ToolboxName;
use pegboard::providers::rest;
use pegboard::runtime::requests::ServerId;
use pegboard::settings::mcp::Secret;
use pegboard::wiring::{self, Looked};
use serde_json::{Value, json};

use super::{is_absent, shown, unread};
use crate::cli::failure::problem_document;
use crate::cli::words::{DIM, GREEN, PLAIN, RED, count, harmless, one_line};
use crate::cli::{Failure, Globals, remark};

/// How many characters of why something cannot be used are shown.
const MAX_CHARACTERS: usize = 200;

/// One configuration that was checked.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// What it is called.
    name: String,
    sources: Vec<Source>,
    /// What is in it, if it can be read at all.
    contents: Option<Contents>,
    /// What is wrong with it, each with its place.
    problems: Vec<Problem>,
    /// What is wrong with all of it, or nowhere in particular.
    failures: Vec<Failure>,
    is_absent: bool,
    /// Variables that are not set, each with where it is needed.
    unset: Vec<Problem>,
    warnings: Vec<Problem>,
    /// What is worth a warning and stands nowhere in particular.
    remarks: Vec<Remark>,
    /// What cannot be used, though nothing is wrong with how it is described.
    obstacles: Vec<Remark>,
}

/// Something about one part.
#[derive(Debug)]
struct Remark {
    part: String,
    text: String,
}

/// How much of each there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Contents {
    toolboxes: usize,
    servers: usize,
    rest_tools: usize,
    specs: usize,
    chains: usize,
    agents: usize,
    providers: usize,
    /// Whether somebody gave a toolbox a name.
    has_toolboxes: bool,
}

/// What counts as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// What is wrong with a file.
    Usual,
    /// Warnings too, and what cannot be used here.
    Strict,
}

/// Whether something can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Well,
    Wrong,
    /// There is no such thing.
    Absent,
}

impl Report {
    /// What is to be said of something that was read, or was not. `project` is where agents may take parts from.
    pub(super) async fn of(
        name: String,
        read: Result<Configuration, ConfigurationError>,
        project: &Path,
    ) -> Self {
        let report = Self { name, ..Self::default() };
        match read {
            Err(error) => report.refused(error),
            Ok(configuration) => match configuration.sources.as_slice() {
                // Only where agents are at home it is known which models there are.
                [Source { path, dialect: Dialect::Agent, .. }] => {
                    let loaded = config::load_agent(path, project);
                    Self { sources: configuration.sources, ..report }.with_agent(loaded)
                }
                _ => report.with(configuration).await,
            },
        }
    }

    fn refused(mut self, error: ConfigurationError) -> Self {
        self.is_absent = is_absent(&error);
        match error {
            ConfigurationError::Invalid { problems } => self.sort_in(problems),
            other => self.failures.push(unread(other)),
        }
        self
    }

    fn with_agent(mut self, loaded: Result<AgentFile, ConfigurationError>) -> Self {
        match loaded {
            Err(error) => self.refused(error),
            Ok(AgentFile { agents, warnings, .. }) => {
                self.contents = Some(Contents { agents: agents.len(), ..Contents::default() });
                self.sort_in(warnings);
                self
            }
        }
    }

    async fn with(mut self, mut configuration: Configuration) -> Self {
        self.contents = Some(Contents::of(&configuration));
        self.sources = std::mem::take(&mut configuration.sources);
        self.sort_in(std::mem::take(&mut configuration.problems));
        self.obstacles = obstacles(&configuration);
        let secrets = configuration.secrets.clone();
        match wiring::check(configuration).await {
            Err(error) => self.fail(&error.to_string()),
            Ok(Looked { unusable, warnings }) => {
                let told = |(ServerId { toolbox, server }, text): (ServerId, String)| {
                    let text = without(&secrets, text);
                    Remark { part: format!("{toolbox}/{server}"), text }
                };
                self.remarks = warnings.into_iter().map(told).collect();
                // A document that is no good is no obstacle to itself.
                if self.sources.iter().all(|source| source.dialect == Dialect::OpenApi) {
                    for (_, why) in unusable {
                        self.fail(&without(&secrets, why));
                    }
                } else {
                    self.obstacles.extend(unusable.into_iter().map(told));
                }
            }
        }
        self
    }

    /// Tells what is wrong nowhere in particular.
    fn fail(&mut self, why: &str) {
        self.failures.push(Failure::configuration(format!("{}: {why}", self.name)));
    }

    /// Takes problems in, each among its kind.
    fn sort_in(&mut self, problems: Vec<Problem>) {
        let is_read = self.contents.is_some();
        for problem in problems {
            match problem.severity {
                Severity::Warning => self.warnings.push(problem),
                // What a part needs is an obstacle to that part; what the whole needs is an obstacle to all.
                Severity::Error if is_read && problem.needs.is_some() => self.unset.push(problem),
                Severity::Error => self.problems.push(problem),
            }
        }
    }

    pub(super) fn verdict(&self, measure: Measure) -> Verdict {
        let is_wrong = !self.problems.is_empty() || !self.failures.is_empty();
        let is_doubtful = !self.warnings.is_empty() || !self.remarks.is_empty() || !self.obstacles.is_empty();
        match measure {
            _ if self.is_absent => Verdict::Absent,
            Measure::Usual | Measure::Strict if is_wrong => Verdict::Wrong,
            Measure::Strict if is_doubtful => Verdict::Wrong,
            Measure::Usual | Measure::Strict => Verdict::Well,
        }
    }

    /// Tells on standard error what is wrong.
    pub(super) fn tell(&self, globals: &Globals, measure: Measure) {
        for failure in &self.failures {
            eprintln!("{}", failure.text());
        }
        let unset = match measure {
            Measure::Usual => &[][..],
            Measure::Strict => &self.unset,
        };
        for problem in self.problems.iter().chain(unset) {
            eprintln!("{problem}");
        }
        let placed = self.warnings.iter().map(Problem::render);
        let others = self.remarks.iter().map(|remark| format!("warning: {}", harmless(&remark.told())));
        for warning in placed.chain(others) {
            match measure {
                Measure::Usual => remark(globals, &warning),
                Measure::Strict => eprintln!("{warning}"),
            }
        }
    }

    /// For people: one row that says what it is, and one for each part that cannot be used.
    pub(super) fn rows(&self, measure: Measure) -> Vec<Vec<String>> {
        let mark = match self.verdict(measure) {
            Verdict::Well => format!("{GREEN}✓{PLAIN}"),
            Verdict::Wrong | Verdict::Absent => format!("{RED}✗{PLAIN}"),
        };
        let mut row = vec![format!("{mark} {}", self.name)];
        row.extend(self.dialect().map(str::to_owned));
        let contents = self.contents.and_then(Contents::text);
        let words = [contents, self.faults(measure)].into_iter().flatten().collect::<Vec<_>>();
        row.push(if words.is_empty() { "nothing but settings".to_owned() } else { words.join("; ") });
        let obstacles = self.obstacles.iter().map(|obstacle| {
            vec![format!("    {}  {DIM}{}{PLAIN}", obstacle.part, one_line(&obstacle.text, MAX_CHARACTERS))]
        });
        std::iter::once(row).chain(obstacles).collect()
    }

    /// What is wrong, as numbers; `None` if nothing is.
    fn faults(&self, measure: Measure) -> Option<String> {
        if self.is_absent {
            return Some("not there".to_owned());
        }
        let number = |number: usize, thing: &str| {
            (number > 0).then(|| count(u64::try_from(number).unwrap_or(u64::MAX), thing))
        };
        let errors = number(self.problems.len() + self.failures.len(), "error");
        let doubts = match measure {
            Measure::Usual => None,
            Measure::Strict => number(self.warnings.len() + self.remarks.len(), "warning"),
        };
        let unusable = match measure {
            Measure::Usual => None,
            Measure::Strict => {
                number(self.obstacles.len(), "part").map(|parts| format!("{parts} cannot be used"))
            }
        };
        let all: Vec<String> = [errors, doubts, unusable].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whose words it uses; of several files, those of the one that counts most.
    fn dialect(&self) -> Option<&'static str> {
        self.sources.last().map(|source| source.dialect.title())
    }

    /// For programs.
    pub(super) fn document(&self, measure: Measure) -> Value {
        let sources = self.sources.iter();
        let sources: Vec<Value> = sources
            .map(|source| json!({"file": shown(&source.path), "dialect": source.dialect.title()}))
            .collect();
        let unplaced = self.failures.iter().map(|failure| {
            let mut told = failure.document()["error"].take();
            told["file"] = self.name.as_str().into();
            told
        });
        let problems: Vec<Value> = unplaced.chain(self.problems.iter().map(problem_document)).collect();
        let warnings =
            self.warnings.iter().map(problem_document).chain(self.remarks.iter().map(Remark::document));
        json!({
            "file": self.name,
            "dialect": self.dialect(),
            "ok": self.verdict(measure) == Verdict::Well,
            "sources": sources,
            "contents": self.contents.map(Contents::document),
            "problems": problems,
            "warnings": warnings.collect::<Vec<_>>(),
            "obstacles": self.obstacles.iter().map(Remark::document).collect::<Vec<_>>(),
        })
    }
}

impl Remark {
    fn told(&self) -> String {
        format!("{}: {}", self.part, self.text)
    }

    fn document(&self) -> Value {
        json!({"part": self.part, "message": self.text})
    }
}

impl Contents {
    fn of(configuration: &Configuration) -> Self {
        let has_name = |toolbox: &ToolboxName| toolbox.as_str() != "default";
        let mut contents = Self {
            toolboxes: configuration.toolboxes.len(),
            has_toolboxes: configuration.toolboxes.keys().any(has_name),
            providers: configuration.providers.len(),
            ..Self::default()
        };
        for toolbox in configuration.toolboxes.values() {
            let is_service = |server: &&Server| matches!(server, Server::OpenApi { .. });
            let n_specs = toolbox.servers.values().filter(is_service).count();
            contents.specs += n_specs;
            contents.servers += toolbox.servers.len() - n_specs;
            contents.rest_tools += toolbox.rest_tools.len();
            contents.chains += toolbox.chains.len();
            contents.agents += toolbox.agents.len();
        }
        contents
    }

    /// `None` if there is nothing.
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
            number(providers, "provider of models", "providers of models"),
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

/// A text without what nobody should see.
fn without(secrets: &[Secret], text: String) -> String {
    secrets.iter().fold(text, |text, secret| text.replace(secret.reveal(), "***"))
}

/// What cannot be used for nothing but variables that are not set.
fn obstacles(configuration: &Configuration) -> Vec<Remark> {
    let mut obstacles = Vec::new();
    let mut add = |part: String, obstacle: Option<String>, problems: &[Problem]| {
        let is_described =
            |problem: &Problem| problem.severity == Severity::Warning || problem.needs.is_some();
        if let Some(text) = obstacle.filter(|_| problems.iter().all(is_described)) {
            obstacles.push(Remark { part, text });
        }
    };
    for (toolbox, described) in &configuration.toolboxes {
        for (name, server) in &described.servers {
            if let Server::Unusable { problems, .. } = server {
                add(format!("{toolbox}/{name}"), server.obstacle(), problems);
            }
        }
        for (name, tool) in &described.rest_tools {
            if let RestEntry::Unusable { problems, .. } = tool {
                add(format!("{toolbox}/{}/{name}", rest::SERVER), tool.obstacle(), problems);
            }
        }
    }
    for (name, provider) in &configuration.providers {
        if let ModelProvider::Unusable { problems, .. } = provider {
            add(format!("providers/{name}"), provider.obstacle(), problems);
        }
    }
    obstacles
}
