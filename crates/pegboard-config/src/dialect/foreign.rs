//! Servers in the words of other programs, written in ours. Every value keeps its place in the file.

use super::Remarks;
use super::made::{Draft, as_text, entry, items, list, map, text};
use super::syntax::{Answers, Syntax, ours};
use super::words::{Address, COMMON, Field, Unit, Words};
use crate::path::{Path as Way, Step};
use crate::tree::{Entry, Node, Span, Value};

/// Somebody who knows the words of one dialect, and says what has none of ours.
pub(super) struct Translator<'t> {
    pub(super) words: &'t Words,
    pub(super) remarks: &'t mut Remarks,
    answers: Answers,
    /// Whether it has been said that nobody knows what a number counts.
    has_told_unit: bool,
}

impl<'t> Translator<'t> {
    pub(super) fn new(words: &'t Words, answers: Answers, remarks: &'t mut Remarks) -> Self {
        Self { words, remarks, answers, has_told_unit: false }
    }

    /// One server, in our words.
    pub(super) fn server(&mut self, mut node: Node, way: &Way) -> Node {
        self.tell_commands(&node, way);
        if let Value::Map(entries) = &mut node.value {
            for entry in entries.iter_mut().filter(|entry| entry.key != "toolSchemas") {
                rewrite(&mut entry.value, self.words.syntax.under(&entry.key), &self.answers);
            }
        }
        let Value::Map(entries) = node.value else { return node };
        let mut draft = Draft::default();
        let is_bare = entries.iter().any(|entry| entry.key == "url");
        self.fields(entries, self.words.fields, &mut draft, way);
        if is_bare && self.words.address == Address::Sse && draft.get("type").is_none() {
            draft.set("type", node.span, text(node.span, "sse"));
        }
        Node { value: Value::Map(draft.entries), ..node }
    }

    fn fields(&mut self, entries: Vec<Entry>, first: &[(&str, Field)], draft: &mut Draft, way: &Way) {
        for entry in entries {
            let way = way.key(&entry.key);
            let is_it = |(word, _): &&(&str, Field)| *word == entry.key;
            match first.iter().find(is_it).or_else(|| COMMON.iter().find(is_it)) {
                Some((_, field)) => self.field(*field, entry, draft, &way),
                None => draft.set(&entry.key.clone(), entry.key_span, entry.value),
            }
        }
    }

    fn field(&mut self, field: Field, entry: Entry, draft: &mut Draft, way: &Way) {
        let Entry { key, key_span, value } = entry;
        // Nothing is said by nothing, and some programs write every word they have.
        if matches!(value.value, Value::Null) {
            return;
        }
        match field {
            Field::Is(name) => draft.set(name, key_span, value),
            Field::Command => set_command(key_span, value, draft),
            Field::Transport => draft.set("type", key_span, transport(value)),
            Field::Address(kind) => {
                draft.set("type", key_span, text(key_span, kind));
                draft.set("url", key_span, value);
            }
            Field::Environment => set_pairs("env", key_span, value, draft),
            Field::Headers => set_pairs("headers", key_span, value, draft),
            Field::Passed => {
                let names = names(&value).into_iter().map(|(name, span)| text(span, name)).collect();
                draft.add_items("passEnv", key_span, value.span, names);
            }
            Field::Needed => {
                let needed = |(name, span): (String, Span)| entry_of(&name, span, format!("${{{name}}}"));
                let needed = names(&value).into_iter().map(needed).collect();
                draft.add_entries("env", key_span, value.span, needed);
            }
            Field::HeaderVariables => {
                let Value::Map(headers) = value.value else { return draft.set(&key, key_span, value) };
                let filled = |header: Entry| match as_text(&header.value) {
                    Some(name) => entry_of(&header.key, header.value.span, format!("${{{name}}}")),
                    None => header,
                };
                draft.add_entries("headers", key_span, value.span, headers.into_iter().map(filled).collect());
            }
            Field::TokenVariable => match as_text(&value) {
                Some(name) => add_token(&format!("${{{name}}}"), key_span, value.span, draft),
                None => draft.set(&key, key_span, value),
            },
            Field::Token => match as_text(&value) {
                Some(token) if token != "oauth" => add_token(token, key_span, value.span, draft),
                _ => {
                    self.lose(key_span, way, "signing in is not done for servers: give the token in headers");
                }
            },
            Field::Time(name, unit) => self.set_time((name, unit), (key_span, value), draft, way),
            Field::Timeout(name) => {
                self.set_time((name, self.words.timeout), (key_span, value), draft, way);
            }
            Field::Tools => set_tools(key_span, value, draft),
            Field::Filter => self.set_filter(key_span, &value, draft, way),
            Field::Inside(words) => match value.value {
                Value::Map(inner) => self.fields(inner, words, draft, way),
                _ => draft.set(&key, key_span, value),
            },
            Field::Host(kind) => set_host(kind, key_span, &value, draft),
            Field::Kept => {}
            Field::Lost(_) if is_nothing(&value) => {}
            Field::Lost(reason) => self.lose(key_span, way, reason),
        }
    }

    fn set_time(
        &mut self,
        (name, unit): (&str, Unit),
        (key_span, value): (Span, Node),
        draft: &mut Draft,
        way: &Way,
    ) {
        let number = match &value.value {
            Value::Number(number) => number.as_f64(),
            Value::Text(written) => written.trim().parse::<f64>().ok(),
            _ => None,
        };
        let number = number.filter(|number| *number >= 0.0);
        if let (Some(number), Unit::Unsaid) = (number, unit) {
            // Less than a second would end every call, if seconds are meant.
            let is_short = number < 1_000.0;
            if is_short || !self.has_told_unit {
                let became = if is_short { "not carried over" } else { "taken for milliseconds" };
                let message = format!("programs do not agree what this number counts: it is {became}");
                let help = format!("say it in a pegboard.yaml, such as {name}: 60s");
                self.remarks.warn(value.span, way, message, Some(help));
            }
            self.has_told_unit |= !is_short;
            if is_short {
                return;
            }
        }
        let written = match (number, unit) {
            (Some(seconds), Unit::Seconds) => Value::Text(in_words(seconds)),
            _ => value.value,
        };
        draft.set(name, key_span, Node { value: written, ..value });
    }

    fn set_filter(&mut self, key_span: Span, value: &Node, draft: &mut Draft, way: &Way) {
        let mode = value.get("mode").and_then(as_text).unwrap_or_default().to_lowercase();
        let Some(listed) = value.get("list").cloned() else { return };
        match mode.as_str() {
            "allow" => draft.set("toolFilters", key_span, listed),
            "block" | "deny" => draft.set("toolsDenied", key_span, listed),
            _ => {
                let help = Some("write allow or block".to_owned());
                self.remarks.warn(value.span, way, "this filter says neither allow nor block", help);
            }
        }
    }

    pub(super) fn lose(&mut self, span: Span, way: &Way, reason: &str) {
        self.remarks.warn(span, way, format!("this is not carried over: {reason}"), None);
    }

    /// Tells commands in texts, which a shell would run.
    fn tell_commands(&mut self, node: &Node, way: &Way) {
        if self.words.syntax != Syntax::Script {
            return;
        }
        match &node.value {
            Value::Text(text) if text.contains("$(") => {
                let reason = "no command is run to fill in a text, so somebody must say what it would";
                self.lose(node.span, way, reason);
            }
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.tell_commands(item, &way.step(Step::Index(index)));
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.tell_commands(&entry.value, &way.key(&entry.key));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }
}

/// Writes all variables of a value in our syntax. Schemas stay as they are.
pub(super) fn rewrite(node: &mut Node, syntax: Syntax, answers: &Answers) {
    match &mut node.value {
        Value::Text(text) => *text = ours(text, syntax, answers),
        Value::List(items) => items.iter_mut().for_each(|item| rewrite(item, syntax, answers)),
        Value::Map(entries) => {
            let entries = entries.iter_mut().filter(|entry| entry.key != "toolSchemas");
            entries.for_each(|entry| rewrite(&mut entry.value, syntax, answers));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_nothing(node: &Node) -> bool {
    match &node.value {
        Value::Null | Value::Bool(false) => true,
        Value::Text(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// An entry whose value is a text.
pub(super) fn entry_of(key: &str, span: Span, value: String) -> Entry {
    entry(key, span, text(span, value))
}

fn add_token(token: &str, key_span: Span, span: Span, draft: &mut Draft) {
    let token = entry_of("Authorization", span, format!("Bearer {token}"));
    draft.add_entries("headers", key_span, span, vec![token]);
}

fn set_command(key_span: Span, value: Node, draft: &mut Draft) {
    let Value::Map(parts) = value.value else { return draft.set("command", key_span, value) };
    for part in parts {
        match part.key.as_str() {
            "path" | "command" => draft.set("command", key_span, part.value),
            _ => draft.set(&part.key.clone(), part.key_span, part.value),
        }
    }
}

/// How a server is reached: one word in many spellings.
fn transport(value: Node) -> Node {
    let Some(written) = as_text(&value) else { return value };
    let plain = |each: &char| !matches!(each, '-' | '_' | ' ');
    let word: String = written.to_lowercase().chars().filter(plain).collect();
    let word = match word.as_str() {
        "stdio" | "local" | "command" => "stdio",
        "http" | "streamablehttp" | "shttp" => "http",
        "sse" => "sse",
        "ws" | "websocket" => "websocket",
        _ => return value,
    };
    text(value.span, word)
}

/// Variables or headers.
fn set_pairs(name: &str, key_span: Span, value: Node, draft: &mut Draft) {
    let span = value.span;
    match value.value {
        Value::Map(entries) => draft.add_entries(name, key_span, span, entries),
        Value::List(ref items) if items.iter().all(|item| pair(item).is_some()) => {
            draft.add_entries(name, key_span, span, items.iter().filter_map(pair).collect());
        }
        _ => draft.set(name, key_span, value),
    }
}

/// `{name: …, value: …}` or `NAME=value`.
fn pair(node: &Node) -> Option<Entry> {
    if let Some((name, value)) = as_text(node).and_then(|written| written.split_once('=')) {
        return Some(entry_of(name.trim(), node.span, value.to_owned()));
    }
    let name = node.get("name")?;
    let value = node.get("value").cloned().unwrap_or_else(|| text(name.span, ""));
    Some(entry(as_text(name)?, name.span, value))
}

/// Names in a list, each a text or an object that has one.
fn names(node: &Node) -> Vec<(String, Span)> {
    let named = |item: &Node| {
        let name = if as_text(item).is_some() { Some(item) } else { item.get("name") }?;
        Some((as_text(name)?.to_owned(), name.span))
    };
    items(node).unwrap_or_default().iter().filter_map(named).collect()
}

fn set_tools(key_span: Span, value: Node, draft: &mut Draft) {
    let Value::Map(tools) = value.value else {
        let listed = items(&value);
        // Who lists more than names describes what there is, and leaves nothing out.
        let is_described = |listed: &[Node]| listed.iter().any(|item| item.get("name").is_some());
        if !listed.is_some_and(is_described) {
            draft.set(if listed.is_some() { "toolFilters" } else { "tools" }, key_span, value);
        }
        return;
    };
    let (mut denied, mut others) = (Vec::new(), Vec::new());
    for mut tool in tools {
        let says_no = |node: &Node| matches!(node.value, Value::Bool(false));
        if says_no(&tool.value) || tool.value.get("enabled").is_some_and(says_no) {
            denied.push(text(tool.key_span, tool.key));
            continue;
        }
        if let Value::Map(words) = &mut tool.value.value {
            words.retain(|word| word.key != "enabled" && word.key != "description");
            if !words.is_empty() {
                others.push(tool);
            }
        }
    }
    if !denied.is_empty() {
        draft.add_items("toolsDenied", key_span, value.span, denied);
    }
    if !others.is_empty() {
        draft.set("tools", key_span, map(value.span, others));
    }
}

/// An address in parts. A host may be an address already.
fn set_host(kind: &str, key_span: Span, value: &Node, draft: &mut Draft) {
    let part = |name: &str| {
        value.get(name).and_then(|node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    };
    let span = value.get("host").unwrap_or(value).span;
    if let Some(host) = part("host") {
        let address = if host.contains("://") {
            host
        } else {
            let start = match part("port").as_deref() {
                Some("443") => format!("https://{host}"),
                Some(number) => format!("http://{host}:{number}"),
                None => format!("http://{host}"),
            };
            let path = part("path").unwrap_or_else(|| if kind == "sse" { "/sse" } else { "/mcp" }.to_owned());
            format!("{start}/{}", path.trim_start_matches('/'))
        };
        draft.set("url", key_span, text(span, address));
    }
    draft.set("type", key_span, text(key_span, kind));
}

/// Seconds as people write them.
fn in_words(seconds: f64) -> String {
    let millis = (seconds * 1_000.0).round();
    if (millis / 1_000.0).fract() == 0.0 { format!("{}s", millis / 1_000.0) } else { format!("{millis}ms") }
}

/// The command line of a program, as a list.
pub(super) fn words_of(span: Span, words: impl IntoIterator<Item = String>) -> Node {
    list(span, words.into_iter().map(|word| text(span, word)).collect())
}
