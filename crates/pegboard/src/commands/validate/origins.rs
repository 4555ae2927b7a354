//! Every value of a configuration, and where it is from.

use pegboard::config::{Configuration, Origin, Setting, near};
use serde_json::{Value, json};

use super::shown;
use crate::cli::Failure;
use crate::cli::words::{DIM, PLAIN, columns, one_line};

/// How many characters of a value are shown.
const MAX_CHARACTERS: usize = 60;

/// The values at a way and below it; all of them if it is empty.
pub(super) fn under(configurations: &[Configuration], wanted: &str) -> Result<Vec<Setting>, Failure> {
    let all: Vec<Setting> = configurations.iter().flat_map(Configuration::origins).collect();
    let is_under = |setting: &Setting| {
        let below = setting.way.strip_prefix(wanted);
        wanted.is_empty() || below.is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
    };
    if all.iter().any(is_under) {
        return Ok(all.into_iter().filter(is_under).collect());
    }
    let failure = Failure::not_found("not_found", format!("nobody says anything of '{wanted}'"));
    let ways = all.iter().flat_map(|setting| beginnings(&setting.way));
    Err(match near(wanted, ways) {
        Some(meant) => failure.hint(format!("did you mean {meant}?")),
        None => failure.hint("pegboard validate --origins shows all there is"),
    })
}

/// A way, and every way that leads there.
fn beginnings(way: &str) -> impl Iterator<Item = &str> {
    way.match_indices(['.', '[']).map(|(end, _)| &way[..end]).chain([way])
}

/// For people: the way, the value and where it is from.
pub(super) fn table(settings: &[Setting]) -> String {
    let rows = settings.iter().map(|Setting { way, value, origin }| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![one_line(way, usize::MAX), one_line(&value, MAX_CHARACTERS), format!("{DIM}{origin}{PLAIN}")]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// For programs.
pub(super) fn document(settings: &[Setting]) -> Value {
    let told = |Setting { way, value, origin }: &Setting| {
        let mut told = json!({"path": way, "value": value, "origin": origin.to_string()});
        if let Origin::File { path, line, column } = origin {
            told["file"] = shown(path).into();
            told["line"] = (*line).into();
            told["column"] = (*column).into();
        }
        told
    };
    settings.iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_whole_names() {
        let configuration = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pegboard.yaml");
            std::fs::write(&path, text).unwrap();
            pegboard::config::load(&path, &|_| None).unwrap()
        };
        let text = "mcpServers: {git: {command: a, args: [b]}, github: {url: 'https://x.example/mcp'}}";
        let configurations = [configuration(text)];
        let ways = |name: &str| {
            let found = under(&configurations, name).map_err(|failure| failure.text());
            found.map(|found| found.into_iter().map(|setting| setting.way).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(ways("mcpServers.git").unwrap(), "mcpServers.git.command mcpServers.git.args");
        assert_eq!(ways("toolTimeout").unwrap(), "toolTimeout");
        insta::assert_snapshot!(ways("mcpServers.githb").unwrap_err(), @"
        error[not_found]: nobody says anything of 'mcpServers.githb'
          help: did you mean mcpServers.github?
        ");
    }
}
