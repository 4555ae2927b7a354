//! The environment of a server's program, where it is not written down: in a file, or in ours.

use super::made::{as_text, entry, items, map};
use crate::path::Path;
use crate::read::{Missing, Reader};
use crate::tree::{Entry, Node, Origin, Span, Value};

/// Adds to `env` what `envFile` and `passEnv` lead to. What is there already stays.
pub(super) fn complete(reader: &mut Reader<'_>, server: &mut Node, way: &Path, missing: Missing) {
    let mut more = Vec::new();
    if let Some((path, span)) = server.get("envFile").and_then(|node| Some((as_text(node)?, node.span))) {
        match reader.surroundings(span).read_file(path) {
            Ok(text) => {
                let found = lines(&text).into_iter();
                more.extend(found.map(|(name, value)| secret(reader, (&name, value), span)));
            }
            Err(_) if missing == Missing::Ignored => {}
            Err(wrong) => reader.error(span, &way.key("envFile"), wrong.message, Some(wrong.help)),
        }
    }
    let passed = server.get("passEnv").and_then(items).unwrap_or_default();
    let passed: Vec<(String, Span)> =
        passed.iter().filter_map(|node| Some((as_text(node)?.to_owned(), node.span))).collect();
    for (name, span) in passed {
        if let Some(value) = (reader.surroundings(span).environment)(&name) {
            more.push(secret(reader, (&name, value), span));
        }
    }
    add(server, &more);
}

/// A variable that nobody should see.
fn secret(reader: &mut Reader<'_>, (name, value): (&str, String), span: Span) -> Entry {
    reader.keep_secret(&value);
    entry(name, span, Node { span, value: Value::Text(value), origin: Origin::Secret })
}

fn add(server: &mut Node, more: &[Entry]) {
    let span = server.span;
    let Value::Map(entries) = &mut server.value else { return };
    if more.is_empty() {
        return;
    }
    let is_env = |entry: &Entry| entry.key == "env" || entry.key == "environment";
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

/// The variables of a file: `NAME=value`, with quotes if somebody likes, `export` before it, and remarks.
fn lines(text: &str) -> Vec<(String, String)> {
    let variable = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        Some((name.trim().to_owned(), unquoted(value.trim())))
    };
    text.lines().filter_map(variable).filter(|(name, _)| !name.is_empty()).collect()
}

fn unquoted(value: &str) -> String {
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
    fn a_file_of_variables_is_read_as_shells_read_it() {
        let text = "# a remark\nA=1\nexport B = two words # why\n\nC='it is # $x'\nD=\"a\\\"b\\nc\"\nno variable\n=5\nE=\n";
        let found = lines(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("A", "1"), ("B", "two words"), ("C", "it is # $x"), ("D", "a\"b\nc"), ("E", "")]);
    }
}
