//! Translates server entries of other programs to the native format. Every value keeps its span.

use super::TranslationNotes;
use super::field_rules::{COMMON_FIELDS, DialectRules, DurationUnit, FieldRule, UrlTransport};
use super::synthetic::{ServerDraft, as_text, entry, items, list, map, text};
use super::variable_syntax::{InputDefaults, VariableSyntax, to_native};
use crate::path::{KeyPath, KeySegment};
use crate::tree::{Node, Span, TreeEntry, Value};

/// Translates the server entries of one dialect and reports what cannot be expressed.
pub(super) struct Translator<'t> {
    pub(super) rules: &'t DialectRules,
    pub(super) notes: &'t mut TranslationNotes,
    input_defaults: InputDefaults,
    /// `true` once the ambiguous unit has been reported.
    has_reported_unit: bool,
}

impl<'t> Translator<'t> {
    pub(super) fn new(
        rules: &'t DialectRules,
        input_defaults: InputDefaults,
        notes: &'t mut TranslationNotes,
    ) -> Self {
        Self { rules, notes, input_defaults, has_reported_unit: false }
    }

    /// Translates one server entry.
    pub(super) fn server(&mut self, mut node: Node, key_path: &KeyPath) -> Node {
        self.report_commands(&node, key_path);
        if let Value::Map(entries) = &mut node.value {
            for entry in entries.iter_mut().filter(|entry| entry.key != "toolSchemas") {
                rewrite_variables(
                    &mut entry.value,
                    self.rules.syntax.for_key(&entry.key),
                    &self.input_defaults,
                );
            }
        }
        let Value::Map(entries) = node.value else { return node };
        let mut draft = ServerDraft::default();
        let is_bare = entries.iter().any(|entry| entry.key == "url");
        self.fields(entries, self.rules.fields, &mut draft, key_path);
        if is_bare && self.rules.address == UrlTransport::Sse && draft.get("type").is_none() {
            draft.set("type", node.span, text(node.span, "sse"));
        }
        Node { value: Value::Map(draft.entries), ..node }
    }

    fn fields(
        &mut self,
        entries: Vec<TreeEntry>,
        own_rules: &[(&str, FieldRule)],
        draft: &mut ServerDraft,
        key_path: &KeyPath,
    ) {
        for entry in entries {
            let key_path = key_path.key(&entry.key);
            let is_match = |(word, _): &&(&str, FieldRule)| *word == entry.key;
            match own_rules.iter().find(is_match).or_else(|| COMMON_FIELDS.iter().find(is_match)) {
                Some((_, field)) => self.field(*field, entry, draft, &key_path),
                None => draft.set(&entry.key.clone(), entry.key_span, entry.value),
            }
        }
    }

    fn field(&mut self, field: FieldRule, entry: TreeEntry, draft: &mut ServerDraft, key_path: &KeyPath) {
        let TreeEntry { key, key_span, value } = entry;
        // Null means unset, and some programs write every key they have.
        if matches!(value.value, Value::Null) {
            return;
        }
        match field {
            FieldRule::Rename(name) => draft.set(name, key_span, value),
            FieldRule::Command => set_command(key_span, value, draft),
            FieldRule::Transport => draft.set("type", key_span, transport(value)),
            FieldRule::UrlTransport(kind) => {
                draft.set("type", key_span, text(key_span, kind));
                draft.set("url", key_span, value);
            }
            FieldRule::Environment => set_pairs("env", key_span, value, draft),
            FieldRule::Headers => set_pairs("headers", key_span, value, draft),
            FieldRule::PassedVariables => {
                let names = names(&value).into_iter().map(|(name, span)| text(span, name)).collect();
                draft.add_items("passEnv", key_span, value.span, names);
            }
            FieldRule::RequiredVariables => {
                let needed = |(name, span): (String, Span)| text_entry(&name, span, format!("${{{name}}}"));
                let needed = names(&value).into_iter().map(needed).collect();
                draft.add_entries("env", key_span, value.span, needed);
            }
            FieldRule::HeaderVariables => {
                let Value::Map(headers) = value.value else { return draft.set(&key, key_span, value) };
                let filled = |header: TreeEntry| match as_text(&header.value) {
                    Some(name) => text_entry(&header.key, header.value.span, format!("${{{name}}}")),
                    None => header,
                };
                draft.add_entries("headers", key_span, value.span, headers.into_iter().map(filled).collect());
            }
            FieldRule::TokenVariable => match as_text(&value) {
                Some(name) => add_token(&format!("${{{name}}}"), key_span, value.span, draft),
                None => draft.set(&key, key_span, value),
            },
            FieldRule::Token => match as_text(&value) {
                Some(token) if token != "oauth" => add_token(token, key_span, value.span, draft),
                _ => {
                    self.report_dropped(key_span, key_path, "OAuth sign-in; set a token in headers");
                }
            },
            FieldRule::Duration(name, unit) => {
                self.set_time((name, unit), (key_span, value), draft, key_path);
            }
            FieldRule::Timeout(name) => {
                self.set_time((name, self.rules.timeout), (key_span, value), draft, key_path);
            }
            FieldRule::Tools => set_tools(key_span, value, draft),
            FieldRule::Filter => self.set_filter(key_span, &value, draft, key_path),
            FieldRule::Nested(rules) => match value.value {
                Value::Map(inner) => self.fields(inner, rules, draft, key_path),
                _ => draft.set(&key, key_span, value),
            },
            FieldRule::HostAndPort(kind) => set_host(kind, key_span, &value, draft),
            FieldRule::Ignored => {}
            FieldRule::Unsupported(_) if is_blank(&value) => {}
            FieldRule::Unsupported(reason) => self.report_dropped(key_span, key_path, reason),
        }
    }

    fn set_time(
        &mut self,
        (name, unit): (&str, DurationUnit),
        (key_span, value): (Span, Node),
        draft: &mut ServerDraft,
        key_path: &KeyPath,
    ) {
        let number = match &value.value {
            Value::Number(number) => number.as_f64(),
            Value::Text(written) => written.trim().parse::<f64>().ok(),
            _ => None,
        };
        let number = number.filter(|number| *number >= 0.0);
        if let (Some(number), DurationUnit::Unknown) = (number, unit) {
            // If seconds are meant, less than a thousand milliseconds would abort every call.
            let is_short = number < 1_000.0;
            if is_short || !self.has_reported_unit {
                let became = if is_short { "the value is ignored" } else { "assuming milliseconds" };
                let message = format!("ambiguous unit: {became}");
                let help = format!("set it in a pegboard.yaml with a unit, such as {name}: 60s");
                self.notes.warn(value.span, key_path, message, Some(help));
            }
            self.has_reported_unit |= !is_short;
            if is_short {
                return;
            }
        }
        let written = match (number, unit) {
            (Some(seconds), DurationUnit::Seconds) => Value::Text(format_seconds(seconds)),
            _ => value.value,
        };
        draft.set(name, key_span, Node { value: written, ..value });
    }

    fn set_filter(&mut self, key_span: Span, value: &Node, draft: &mut ServerDraft, key_path: &KeyPath) {
        let mode = value.get("mode").and_then(as_text).unwrap_or_default().to_lowercase();
        let Some(listed) = value.get("list").cloned() else { return };
        match mode.as_str() {
            "allow" => draft.set("toolFilters", key_span, listed),
            "block" | "deny" => draft.set("toolsDenied", key_span, listed),
            _ => {
                let help = Some("use allow or block".to_owned());
                self.notes.warn(value.span, key_path, "the filter mode must be allow or block", help);
            }
        }
    }

    pub(super) fn report_dropped(&mut self, span: Span, key_path: &KeyPath, reason: &str) {
        self.notes.warn(span, key_path, format!("not supported: {reason}"), None);
    }

    /// Reports shell commands in values.
    fn report_commands(&mut self, node: &Node, key_path: &KeyPath) {
        if self.rules.syntax != VariableSyntax::ShellWithCommands {
            return;
        }
        match &node.value {
            Value::Text(text) if text.contains("$(") => {
                let reason = "command substitution; provide the value as an input";
                self.report_dropped(node.span, key_path, reason);
            }
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.report_commands(item, &key_path.segment(KeySegment::Index(index)));
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.report_commands(&entry.value, &key_path.key(&entry.key));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }
}

/// Rewrites all variable references of a value in native syntax. Schemas are left unchanged.
pub(super) fn rewrite_variables(node: &mut Node, syntax: VariableSyntax, input_defaults: &InputDefaults) {
    match &mut node.value {
        Value::Text(text) => *text = to_native(text, syntax, input_defaults),
        Value::List(items) => {
            for item in items {
                rewrite_variables(item, syntax, input_defaults);
            }
        }
        Value::Map(entries) => {
            let entries = entries.iter_mut().filter(|entry| entry.key != "toolSchemas");
            entries.for_each(|entry| rewrite_variables(&mut entry.value, syntax, input_defaults));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_blank(node: &Node) -> bool {
    match &node.value {
        Value::Null | Value::Bool(false) => true,
        Value::Text(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Creates an entry with a text value.
pub(super) fn text_entry(key: &str, span: Span, value: String) -> TreeEntry {
    entry(key, span, text(span, value))
}

fn add_token(token: &str, key_span: Span, span: Span, draft: &mut ServerDraft) {
    let token = text_entry("Authorization", span, format!("Bearer {token}"));
    draft.add_entries("headers", key_span, span, vec![token]);
}

fn set_command(key_span: Span, value: Node, draft: &mut ServerDraft) {
    let Value::Map(parts) = value.value else { return draft.set("command", key_span, value) };
    for part in parts {
        match part.key.as_str() {
            "path" | "command" => draft.set("command", key_span, part.value),
            _ => draft.set(&part.key.clone(), part.key_span, part.value),
        }
    }
}

/// Normalizes the spelling of a transport.
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

/// Adds environment variables or headers.
fn set_pairs(name: &str, key_span: Span, value: Node, draft: &mut ServerDraft) {
    let span = value.span;
    match value.value {
        Value::Map(entries) => draft.add_entries(name, key_span, span, entries),
        Value::List(ref items) if items.iter().all(|item| pair(item).is_some()) => {
            draft.add_entries(name, key_span, span, items.iter().filter_map(pair).collect());
        }
        _ => draft.set(name, key_span, value),
    }
}

/// Parses `{name: …, value: …}` or `NAME=value`.
fn pair(node: &Node) -> Option<TreeEntry> {
    if let Some((name, value)) = as_text(node).and_then(|written| written.split_once('=')) {
        return Some(text_entry(name.trim(), node.span, value.to_owned()));
    }
    let name = node.get("name")?;
    let value = node.get("value").cloned().unwrap_or_else(|| text(name.span, ""));
    Some(entry(as_text(name)?, name.span, value))
}

/// Returns the names in a list of strings or objects with a `name`.
fn names(node: &Node) -> Vec<(String, Span)> {
    let named = |item: &Node| {
        let name = if as_text(item).is_some() { Some(item) } else { item.get("name") }?;
        Some((as_text(name)?.to_owned(), name.span))
    };
    items(node).unwrap_or_default().iter().filter_map(named).collect()
}

fn set_tools(key_span: Span, value: Node, draft: &mut ServerDraft) {
    let Value::Map(tools) = value.value else {
        let listed = items(&value);
        // A list with more than names describes the existing tools and filters nothing.
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
        if let Value::Map(settings) = &mut tool.value.value {
            settings.retain(|setting| setting.key != "enabled" && setting.key != "description");
            if !settings.is_empty() {
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

/// Builds a URL from its parts. The host may be a complete URL already.
fn set_host(kind: &str, key_span: Span, value: &Node, draft: &mut ServerDraft) {
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

/// Formats seconds as a duration.
fn format_seconds(seconds: f64) -> String {
    let millis = (seconds * 1_000.0).round();
    if (millis / 1_000.0).fract() == 0.0 { format!("{}s", millis / 1_000.0) } else { format!("{millis}ms") }
}

/// Creates a list of texts.
pub(super) fn text_list(span: Span, words: impl IntoIterator<Item = String>) -> Node {
    list(span, words.into_iter().map(|word| text(span, word)).collect())
}
