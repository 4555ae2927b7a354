//! Environment variables of a server that come from an env file or from Pegboard's own environment.

use pegboard_core::fingerprint::sha256_hex;

use super::synthetic::{as_text, entry, items, map};
use crate::path::KeyPath;
use crate::read::{ConfigReader, EnvFile, OnUnsetVariable};
use crate::tree::{Node, Span, TreeEntry, Value, ValueOrigin};

/// Adds the variables of `envFile` and `passEnv` to `env`. Existing entries win.
pub(super) fn merge_environment(
    reader: &mut ConfigReader<'_>,
    server: &mut Node,
    key_path: &KeyPath,
    on_unset: OnUnsetVariable,
) {
    let mut more = Vec::new();
    if let Some((path, span)) = server.get("envFile").and_then(|node| Some((as_text(node)?, node.span))) {
        match reader.variable_context(span).read_file(path) {
            Ok(text) => {
                let variables = parse_env_file(&text);
                let entries = variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
                more.extend(entries.map(|variable| secret_entry(reader, variable, span)));
                reader.record_env_file(EnvFile { span, digest: sha256_hex(&text), variables });
            }
            Err(_) if on_unset == OnUnsetVariable::Ignore => {}
            Err(wrong) => reader.error(span, &key_path.key("envFile"), wrong.message, Some(wrong.help)),
        }
    }
    let passed = server.get("passEnv").and_then(items).unwrap_or_default();
    let passed: Vec<(String, Span)> =
        passed.iter().filter_map(|node| Some((as_text(node)?.to_owned(), node.span))).collect();
    for (name, span) in passed {
        if let Some(value) = (reader.variable_context(span).environment)(&name) {
            more.push(secret_entry(reader, (&name, value), span));
        }
    }
    add_to_env(server, &more);
}

/// Creates an entry with a secret value.
fn secret_entry(reader: &mut ConfigReader<'_>, (name, value): (&str, String), span: Span) -> TreeEntry {
    reader.add_named_secret(name, &value);
    entry(name, span, Node { span, value: Value::Text(value), origin: ValueOrigin::Secret })
}

fn add_to_env(server: &mut Node, more: &[TreeEntry]) {
    let span = server.span;
    let Value::Map(entries) = &mut server.value else { return };
    if more.is_empty() {
        return;
    }
    let is_env = |entry: &TreeEntry| entry.key == "env" || entry.key == "environment";
    if !entries.iter().any(is_env) {
        entries.push(entry("env", span, map(span, Vec::new())));
    }
    for env in entries.iter_mut().filter(|entry| is_env(entry)).take(1) {
        let Value::Map(variables) = &mut env.value.value else { return };
        for new in more {
            if !variables.iter().any(|old| old.key == new.key) {
                variables.push(new.clone());
            }
        }
    }
}

/// Parses the variables of an env file: `NAME=value`, optionally quoted or preceded by `export`, and
/// comments.
fn parse_env_file(text: &str) -> Vec<(String, String)> {
    let variable = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        Some((name.trim().to_owned(), unquote(value.trim())))
    };
    text.lines().filter_map(variable).filter(|(name, _)| !name.is_empty()).collect()
}

fn unquote(value: &str) -> String {
    let inside = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.split_once(quote));
    if let Some((inner, _)) = inside('\'') {
        return inner.to_owned();
    }
    if value.starts_with('"') {
        let mut text = String::new();
        let mut characters = value.chars().skip(1);
        while let Some(each) = characters.next() {
            match each {
                '"' => break,
                '\\' => match characters.next() {
                    Some('n') => text.push('\n'),
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                other => text.push(other),
            }
        }
        return text;
    }
    value.split(" #").next().unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_env_file_is_parsed_like_a_shell_does() {
        let text = "# a remark\nA=1\nexport B = two words # why\n\nC='it is # $x'\nD=\"a\\\"b\\nc\"\nno variable\n=5\nE=\n";
        let found = parse_env_file(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("A", "1"), ("B", "two words"), ("C", "it is # $x"), ("D", "a\"b\nc"), ("E", "")]);
    }
}
