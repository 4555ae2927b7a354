//! What a change does to a text, for people to see before it is made.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use similar::{DiffOp, TextDiff};

use crate::source::{Format, is_veiling, veiled, without_values};
use crate::tree::{self, Node, Span, Value};

/// How many lines are shown around a change.
const AROUND: usize = 3;

/// The difference between two texts of a file, as `diff -u` shows it, with stars for what nobody should see.
///
/// Values of `env` and `headers`, keys, tokens and passwords are starred out, but for the names of variables in them.
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
    let (old, new) = (Side::new(path, old), Side::new(path, new));
    let mut shown = String::new();
    for group in difference.grouped_ops(AROUND) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        if shown.is_empty() {
            let name = path.display();
            let _ = write!(shown, "--- {name}\n+++ {name}\n");
        }
        let range = |first: Range<usize>, last: Range<usize>| {
            let n_lines = last.end - first.start;
            // By custom a part without lines names the line before it.
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
struct Side<'t> {
    lines: Vec<(usize, &'t str)>,
    /// What nobody should see, by where it begins.
    veils: Option<BTreeMap<usize, Span>>,
}

impl<'t> Side<'t> {
    fn new(path: &Path, text: &'t str) -> Self {
        let mut at = 0;
        let mut lines = Vec::new();
        for line in text.split_inclusive('\n') {
            lines.push((at, line));
            at += line.len();
        }
        // Places are told without the mark that some editors put first.
        let body = text.trim_start_matches('\u{feff}');
        let shift = text.len() - body.len();
        let root = tree::parse(body, Format::of(path, body)).ok();
        let veils = root.map(|parsed| {
            let mut veils = BTreeMap::new();
            if let Some(parsed) = parsed {
                find(&parsed.root, &mut |span| {
                    veils.insert(span.start + shift, Span::new(span.start + shift, span.end + shift));
                });
            }
            veils
        });
        Self { lines, veils }
    }

    fn show(&self, sign: char, range: Range<usize>, shown: &mut String) {
        for (at, line) in self.lines.get(range).unwrap_or_default() {
            let written = line.trim_end_matches(['\n', '\r']);
            let text = match &self.veils {
                Some(veils) => {
                    // What began before the line and ends after it began counts as well.
                    let begun = veils.range(..*at).next_back().map(|(_, span)| *span);
                    let within = veils.range(*at..*at + written.len()).map(|(_, span)| *span);
                    let near: Vec<Span> = begun.into_iter().chain(within).collect();
                    veiled(written, *at, &near)
                }
                None => without_values(written),
            };
            let _ = writeln!(shown, "{sign}{text}");
            if !line.ends_with('\n') {
                shown.push_str("\\ No newline at end of file\n");
            }
        }
    }
}

/// Finds all that nobody should see.
fn find(node: &Node, found: &mut dyn FnMut(Span)) {
    match &node.value {
        Value::List(items) => {
            let mut is_next = false;
            for item in items {
                if let Value::Text(text) = &item.value {
                    // `--token abc`, `--token=abc` and `TOKEN=abc` are how programs are told.
                    let (name, value) = text
                        .split_once('=')
                        .map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
                    if is_next || (is_secret(name) && value.is_some()) || has_password(text) {
                        found(item.span);
                    }
                    is_next = value.is_none() && text.starts_with('-') && is_secret(text);
                } else {
                    is_next = false;
                    find(item, found);
                }
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                if is_veiling(&entry.key) || is_secret(&entry.key) {
                    find_all(&entry.value, found);
                } else {
                    find(&entry.value, found);
                }
            }
        }
        Value::Text(text) if has_password(text) => found(node.span),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

fn find_all(node: &Node, found: &mut dyn FnMut(Span)) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| find_all(item, found)),
        Value::Map(entries) => entries.iter().for_each(|entry| find_all(&entry.value, found)),
        Value::Text(_) | Value::Number(_) => found(node.span),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Whether a name is one that secrets have.
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
    // A name of a variable is no secret.
    !name.ends_with("envvar") && WORDS.iter().any(|word| name.contains(word))
}

/// Whether a text is an address with a password or a key in it.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let is_key =
        |part: &str| part.split_once('=').is_some_and(|(name, _)| is_secret(name) || name.ends_with("key"));
    authority.contains('@') || query.split('&').any(is_key)
}
