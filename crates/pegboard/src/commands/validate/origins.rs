//! Values of a configuration with their sources.

use pegboard::config::{Configuration, EffectiveSetting, SettingSource, did_you_mean};
use serde_json::{Value, json};

use super::display_path;
use crate::cli::CliError;
use crate::cli::format::{DIM, PLAIN, columns, one_line};

/// Maximum number of characters of a value.
const MAX_CHARACTERS: usize = 60;

/// Values at a key path and below it; all values if it is empty.
pub(super) fn under(
    configurations: &[Configuration],
    wanted: &str,
) -> Result<Vec<EffectiveSetting>, CliError> {
    let all: Vec<EffectiveSetting> =
        configurations.iter().flat_map(Configuration::effective_settings).collect();
    let is_under = |setting: &EffectiveSetting| {
        let below = setting.key_path.strip_prefix(wanted);
        wanted.is_empty() || below.is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
    };
    if all.iter().any(is_under) {
        return Ok(all.into_iter().filter(is_under).collect());
    }
    let failure = CliError::not_found("not_found", format!("no value at '{wanted}'"));
    let paths = all.iter().flat_map(|setting| beginnings(&setting.key_path));
    let meant = did_you_mean(wanted, paths);
    Err(failure.hint(meant.as_deref().unwrap_or("list all with pegboard validate --origins")))
}

/// All prefixes of a key path, and the path itself.
fn beginnings(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices(['.', '[']).map(|(end, _)| &path[..end]).chain([path])
}

/// Renders a table of key paths, values and sources.
pub(super) fn table(settings: &[EffectiveSetting]) -> String {
    let rows = settings.iter().map(|EffectiveSetting { key_path, value, origin }| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![
            one_line(key_path, usize::MAX),
            one_line(&value, MAX_CHARACTERS),
            format!("{DIM}{origin}{PLAIN}"),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// Renders the values as JSON.
pub(super) fn document(settings: &[EffectiveSetting]) -> Value {
    let describe = |EffectiveSetting { key_path, value, origin }: &EffectiveSetting| {
        let mut entry = json!({"path": key_path, "value": value, "origin": origin.to_string()});
        if let SettingSource::File { path, line, column } = origin {
            entry["file"] = display_path(path).into();
            entry["line"] = (*line).into();
            entry["column"] = (*column).into();
        }
        entry
    };
    settings.iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_whole_keys() {
        let configuration = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pegboard.yaml");
            std::fs::write(&path, text).unwrap();
            pegboard::config::load(&path, &|_| None).unwrap()
        };
        let text = "mcpServers: {git: {command: a, args: [b]}, github: {url: 'https://x.example/mcp'}}";
        let configurations = [configuration(text)];
        let paths = |name: &str| {
            let found = under(&configurations, name).map_err(|failure| failure.text());
            found.map(|found| found.into_iter().map(|setting| setting.key_path).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(paths("mcpServers.git").unwrap(), "mcpServers.git.command mcpServers.git.args");
        assert_eq!(paths("toolTimeout").unwrap(), "toolTimeout");
        insta::assert_snapshot!(paths("mcpServers.githb").unwrap_err(), @"
        error[not_found]: no value at 'mcpServers.githb'
          help: did you mean mcpServers.github?
        ");
    }
}
