//! Whose words a file uses, and what they mean. Each dialect has a file of its own.

use std::path::Path;

use crate::configuration::Configuration;
use crate::error::ConfigurationError;
use crate::path::Path as Way;
use crate::problem::Problem;
use crate::read::{self, Reader, Strictness};
use crate::source::{Source, Text};
use crate::tree::{Node, Parsed};
use crate::variables::Surroundings;

mod agents;
mod native;
mod openapi;
mod providers;
mod rest;
mod server;
mod workbench;

pub(crate) use native::{root_names, toolbox_names};

/// Whose words a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Our own, which many clients share as far as `mcpServers` goes.
    Native,
    /// That of a workbench: toolboxes, each with a description and servers.
    Workbench,
}

impl Dialect {
    /// The dialect of a file: by what is in it, and by its name only where that leaves it open.
    fn of(path: &Path, root: &Node) -> Self {
        if is_ours(path, root) {
            Self::Native
        } else if is_named(path, "workbench") || workbench::is_one(root) {
            Self::Workbench
        } else {
            Self::Native
        }
    }
}

/// Whether a file says that it is ours, by its name or in its first words.
fn is_ours(path: &Path, root: &Node) -> bool {
    is_named(path, "pegboard") || root.get("pegboard").is_some()
}

fn is_named(path: &Path, beginning: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    name.strip_prefix(beginning).is_some_and(|rest| rest.starts_with(['.', '-']))
}

/// What a tree means.
pub(crate) fn understand(
    text: &Text,
    parsed: &Parsed,
    surroundings: Surroundings<'_>,
    source: impl FnOnce(Dialect) -> Source,
) -> Result<Configuration, ConfigurationError> {
    let root = &parsed.root;
    let dialect = Dialect::of(&text.path, root);
    let strictness = if is_ours(&text.path, root) { Strictness::Strict } else { Strictness::Lenient };
    let mut reader = Reader::new(text, strictness, surroundings, parsed);
    let mut configuration = Configuration::default();
    if root.entries().is_none() {
        let message = format!("a configuration is an object of settings, not {}", root.kind());
        reader.error(root.span, &Way::default(), message, None);
    } else {
        match dialect {
            Dialect::Native => native::read(&mut reader, root, &mut configuration),
            Dialect::Workbench => workbench::read(&mut reader, root, &mut configuration),
        }
    }
    let findings = reader.finish();
    if !findings.of_file.is_empty() {
        let mut problems = findings.of_file;
        // What was said of a place for the file is not said again for a part of it.
        let place =
            |problem: &Problem| (problem.file.clone(), problem.line, problem.column, problem.path.clone());
        let said: Vec<_> = problems.iter().map(place).collect();
        problems.extend(findings.of_parts.into_iter().filter(|problem| !said.contains(&place(problem))));
        problems.sort_by(|one, other| read::place(one, &text.path).cmp(&read::place(other, &text.path)));
        return Err(ConfigurationError::Invalid { problems });
    }
    configuration.sources = vec![source(dialect)];
    configuration.problems = findings.of_parts;
    configuration.secrets = findings.secrets;
    Ok(configuration)
}
