//! Unified diffs of configuration files with secrets redacted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use similar::{DiffOp, TextDiff};

use crate::source::{ConfigFormat, holds_secrets, redact_all_values, redact_spans};
use crate::tree::{self, Node, Span, Value};

/// Number of context lines around a change.
const CONTEXT_LINES: usize = 3;

/// Returns the unified diff of two texts of a file, with secrets redacted.
///
/// Values of `env` and `headers`, keys, tokens and passwords are replaced with stars; names of variables are
/// kept.
///
/// ```
/// let old = "mcpServers:\n  a: {command: a}\n";
/// let new = "mcpServers:\n  a: {command: a, env: {TOKEN: abc, HOME: '${HOME}'}}\n";
/// assert_eq!(
///     pegboard_config::edit::diff("pegboard.yaml".as_ref(), old, new),
///     "--- pegboard.yaml
/// +++ pegboard.yaml
/// @@ -1,2 +1,2 @@
///  mcpServers:
/// -  a: {command: a}
/// +  a: {command: a, env: {TOKEN: ***, HOME: '${HOME}'}}
/// ",
/// );
/// ```
pub fn diff(path: &Path, old: &str, new: &str) -> String {
    let difference = TextDiff::from_lines(old, new);
    let (old, new) = (DiffSide::new(path, old), DiffSide::new(path, new));
    let mut shown = String::new();
    for group in difference.grouped_ops(CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        if shown.is_empty() {
            let name = path.display();
            let _ = write!(shown, "--- {name}\n+++ {name}\n");
        }
        let range = |first: Range<usize>, last: Range<usize>| {
            let n_lines = last.end - first.start;
            // By convention an empty range names the preceding line.
            let start = if n_lines == 0 { first.start } else { first.start + 1 };
            if n_lines == 1 { start.to_string() } else { format!("{start},{n_lines}") }
        };
        let (before, after) =
            (range(first.old_range(), last.old_range()), range(first.new_range(), last.new_range()));
        let _ = writeln!(shown, "@@ -{before} +{after} @@");
        for operation in &group {
            if let DiffOp::Equal { .. } = operation {
                old.show(' ', operation.old_range(), &mut shown);
            } else {
                old.show('-', operation.old_range(), &mut shown);
                new.show('+', operation.new_range(), &mut shown);
            }
        }
    }
    shown
}

/// One of the two texts.
struct DiffSide<'t> {
    lines: Vec<(usize, &'t str)>,
    /// Spans of secrets by their start.
    redacted: Option<BTreeMap<usize, Span>>,
}

impl<'t> DiffSide<'t> {
    fn new(path: &Path, text: &'t str) -> Self {
        let mut at = 0;
        let mut lines = Vec::new();
        for line in text.split_inclusive('\n') {
            lines.push((at, line));
            at += line.len();
        }
        // Spans are relative to the text without its byte order mark.
        let body = text.trim_start_matches('\u{feff}');
        let shift = text.len() - body.len();
        let root = tree::parse(body, ConfigFormat::of(path, body)).ok();
        let redacted = root.map(|parsed| {
            let mut redacted = BTreeMap::new();
            if let Some(parsed) = parsed {
                find_secrets(&parsed.root, &mut |span| {
                    redacted.insert(span.start + shift, Span::new(span.start + shift, span.end + shift));
                });
            }
            redacted
        });
        Self { lines, redacted }
    }

    fn show(&self, sign: char, range: Range<usize>, shown: &mut String) {
        for (at, line) in self.lines.get(range).unwrap_or_default() {
            let written = line.trim_end_matches(['\n', '\r']);
            let text = match &self.redacted {
                Some(redacted) => {
                    // A secret may begin before the line and end in it.
                    let started = redacted.range(..*at).next_back().map(|(_, span)| *span);
                    let inside = redacted.range(*at..*at + written.len()).map(|(_, span)| *span);
                    let near: Vec<Span> = started.into_iter().chain(inside).collect();
                    redact_spans(written, *at, &near)
                }
                None => redact_all_values(written),
            };
            let _ = writeln!(shown, "{sign}{text}");
            if !line.ends_with('\n') {
                shown.push_str("\\ No newline at end of file\n");
            }
        }
    }
}

/// Finds the spans of all secrets.
fn find_secrets(node: &Node, found: &mut dyn FnMut(Span)) {
    match &node.value {
        Value::List(items) => {
            let mut is_next = false;
            for item in items {
                if let Value::Text(text) = &item.value {
                    // Programs take secrets as `--token abc`, `--token=abc` and `TOKEN=abc`.
                    let (name, value) = text
                        .split_once('=')
                        .map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
                    if is_next || (is_secret(name) && value.is_some()) || has_password(text) {
                        found(item.span);
                    }
                    is_next = value.is_none() && text.starts_with('-') && is_secret(text);
                } else {
                    is_next = false;
                    find_secrets(item, found);
                }
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                if holds_secrets(&entry.key) || is_secret(&entry.key) && !is_definition(&entry.value) {
                    collect_scalars(&entry.value, found);
                } else {
                    find_secrets(&entry.value, found);
                }
            }
        }
        Value::Text(text) if has_password(text) => found(node.span),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

/// Returns `true` if the value defines an entry of that name, such as an input, a server or a toolbox.
fn is_definition(node: &Node) -> bool {
    const FIELDS: [&str; 7] = ["args", "command", "description", "mcpServers", "password", "type", "url"];
    let mut keys = node.entries().unwrap_or_default().iter();
    keys.any(|entry| FIELDS.contains(&entry.key.as_str()))
}

fn collect_scalars(node: &Node, found: &mut dyn FnMut(Span)) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| collect_scalars(item, found)),
        Value::Map(entries) => entries.iter().for_each(|entry| collect_scalars(&entry.value, found)),
        Value::Text(_) | Value::Number(_) => found(node.span),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns `true` if the name sounds like a secret.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 9] = [
        "token",
        "secret",
        "password",
        "passwd",
        "apikey",
        "authorization",
        "credential",
        "envs",
        "httpheaders",
    ];
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // The name of a variable is not a secret.
    !name.ends_with("envvar") && WORDS.iter().any(|word| name.contains(word))
}

/// Returns `true` if the text is a URL with a password or a key.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let is_key =
        |part: &str| part.split_once('=').is_some_and(|(name, _)| is_secret(name) || name.ends_with("key"));
    authority.contains('@') || query.split('&').any(is_key)
}
