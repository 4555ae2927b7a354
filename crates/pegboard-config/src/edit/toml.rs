//! Edits of TOML sections and lines.

use std::ops::Range;

use serde_json::{Map, Value};

use super::cst_edit::{self, EditConflict};
use super::flow;
use super::print::{MAX_WIDTH, ValuePrinter};
use super::text::{EditText, Splice};
use crate::path::KeySegment;

mod sections;

use sections::{TomlLine, TomlSection, sections};

/// Sets the value at a path and creates missing parents.
pub(super) fn put(
    source: EditText<'_>,
    segments: &[KeySegment],
    (old, value): (&Value, &Value),
) -> Result<Vec<Splice>, EditConflict> {
    let outline = TomlOutline::new(source);
    let keys = outline.keys(segments)?;
    if let Some((line, n_segments)) = outline.line_for(&keys) {
        if n_segments == segments.len() {
            let print = ValuePrinter { format: source.format, key: None, value };
            return Ok(flow::replace(source, line.start, &line.value, &print));
        }
        let (done, rest) = segments.split_at(n_segments);
        let old = cst_edit::value_at(old, done).unwrap_or(&Value::Null);
        return cst_edit::put(source, &line.value, rest, (old, value));
    }
    // A new value is created with all of its parents.
    let value = &cst_edit::nest(&segments[keys.len()..], value);
    let present = outline.ranges(&keys);
    let Some((first, others)) = present.split_first() else {
        return Ok(vec![outline.insert(&keys, value)]);
    };
    let cut = |range: &Range<usize>| source.cut(range.start, range.end);
    if outline.is_section(&keys) && !value.is_object() {
        // A value that is not a table belongs to the lines of its parent.
        return Ok(std::iter::once(outline.insert(&keys, value)).chain(present.iter().map(cut)).collect());
    }
    let newline = if source.text[first.clone()].ends_with('\n') { source.newline() } else { "" };
    let text = format!("{}{newline}", outline.text_in_place(&keys, first.start, value));
    let splice = Splice::new(first.start, first.end, text);
    Ok(std::iter::once(splice).chain(others.iter().map(cut)).collect())
}

/// Removes the value at a path.
pub(super) fn remove(source: EditText<'_>, segments: &[KeySegment]) -> Result<Vec<Splice>, EditConflict> {
    let outline = TomlOutline::new(source);
    let keys = outline.keys(segments)?;
    match outline.line_for(&keys) {
        Some((line, n_segments)) if n_segments < segments.len() => {
            cst_edit::remove(source, &line.value, &segments[n_segments..])
        }
        _ => Ok(outline.ranges(&keys).iter().map(|range| source.cut(range.start, range.end)).collect()),
    }
}

/// Prints a key.
pub(super) fn key(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '-' | '_'));
    if is_bare { key.to_owned() } else { text(key) }
}

/// Prints a value on a single line.
pub(super) fn value(value: &Value) -> String {
    match value {
        // TOML has no null; the check of the result rejects it.
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(value) => text(value),
        Value::Array(items) => format!("[{}]", items.iter().map(self::value).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) if entries.is_empty() => "{}".to_owned(),
        Value::Object(entries) => {
            let member = |(name, value): (&String, &Value)| format!("{} = {}", key(name), self::value(value));
            format!("{{ {} }}", entries.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Prints a string with quotes.
fn text(text: &str) -> String {
    // JSON escapes are valid in TOML, which additionally requires one for DEL.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Prints a dotted key.
fn dotted(keys: &[String]) -> String {
    keys.iter().map(|each| key(each)).collect::<Vec<_>>().join(".")
}

/// The sections of a text.
struct TomlOutline<'t> {
    source: EditText<'t>,
    sections: Vec<TomlSection>,
}

impl<'t> TomlOutline<'t> {
    fn new(source: EditText<'t>) -> Self {
        Self { source, sections: sections(source.text) }
    }

    /// Returns the leading keys of a path, unless it leads through an array of tables.
    fn keys(&self, segments: &[KeySegment]) -> Result<Vec<String>, EditConflict> {
        let keys: Vec<String> = segments
            .iter()
            .map_while(|segment| match segment {
                KeySegment::Key(key) => Some(key.clone()),
                KeySegment::Index(_) => None,
            })
            .collect();
        let is_in_way = |section: &&TomlSection| {
            section.is_array_table && keys.iter().zip(&section.keys).all(|(one, other)| one == other)
        };
        match self.sections.iter().find(is_in_way) {
            Some(section) => {
                let message = "ambiguous: the path leads through an array of tables";
                Err(EditConflict::new(section.header.unwrap_or_default(), message))
            }
            None => Ok(keys),
        }
    }

    /// Returns the line that the path leads to or through, and the number of segments that lead to it.
    fn line_for(&self, keys: &[String]) -> Option<(&TomlLine, usize)> {
        self.lines().find_map(|(section, line)| {
            let key_path = section.key_path(line);
            keys.starts_with(&key_path).then_some((line, key_path.len()))
        })
    }

    /// Returns `true` if the value is written as sections rather than lines.
    fn is_section(&self, keys: &[String]) -> bool {
        !self.lines().any(|(section, line)| {
            section.keys.len() < keys.len() && section.key_path(line).starts_with(keys)
        })
    }

    fn lines(&self) -> impl Iterator<Item = (&TomlSection, &TomlLine)> {
        self.sections.iter().flat_map(|section| section.lines.iter().map(move |line| (section, line)))
    }

    /// Returns the ranges of whole lines that hold the value at a path.
    fn ranges(&self, keys: &[String]) -> Vec<Range<usize>> {
        let source = self.source;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut add = |start: usize, end: usize, floor: usize| {
            let line = source.line_start(start);
            let start = source.comments_above(line, floor.min(line));
            let end = source.next_line(source.end_of_comments(end));
            match ranges.last_mut() {
                Some(last) if source.text.get(last.end..start).is_some_and(|gap| gap.trim().is_empty()) => {
                    last.end = end;
                }
                _ => ranges.push(start..end),
            }
        };
        let mut floor = 0;
        for section in &self.sections {
            if section.header.is_some() && section.keys.starts_with(keys) {
                if let (Some(start), Some(end)) = (section.start(), section.end()) {
                    add(start, end, floor);
                }
            } else {
                for line in &section.lines {
                    if section.key_path(line).starts_with(keys) {
                        add(line.start, line.value.span.end, floor);
                    }
                    floor = source.next_line(line.value.span.end);
                }
            }
            floor = section.end().map_or(floor, |end| source.next_line(end));
        }
        ranges
    }

    /// Prints the replacement of lines or sections that start at an offset.
    fn text_in_place(&self, keys: &[String], start: usize, value: &Value) -> String {
        let of_line = self
            .lines()
            .find(|(section, line)| line.start >= start && section.key_path(line).starts_with(keys));
        let header = self.sections.iter().find(|section| {
            section.header.is_some_and(|header| header.start >= start) && section.keys.starts_with(keys)
        });
        let is_first =
            |header: &TomlSection| of_line.is_none_or(|(_, line)| header.start() < Some(line.start));
        match (of_line, header, value) {
            (_, Some(header), Value::Object(entries)) if is_first(header) => self.section(keys, entries),
            (Some((section, _)), _, _) if keys.len() > section.keys.len() => {
                format!("{} = {}", dotted(&keys[section.keys.len()..]), self::value(value))
            }
            _ => format!("{} = {}", dotted(keys), self::value(value)),
        }
    }

    /// Inserts a value that does not exist yet.
    fn insert(&self, keys: &[String], value: &Value) -> Splice {
        let newline = self.source.newline();
        let (parent, name) = keys.split_at(keys.len().saturating_sub(1));
        let dotted_beside = self.lines().filter(|(section, line)| {
            section.keys.len() < parent.len() && section.key_path(line).starts_with(parent)
        });
        if let Some((section, line)) = dotted_beside.last() {
            let text = format!("{newline}{} = {}", dotted(&keys[section.keys.len()..]), self::value(value));
            return Splice::insert(self.source.end_of_comments(line.value.span.end), text);
        }
        let own = self.sections.iter().find(|section| section.keys == parent);
        let mut below = self
            .sections
            .iter()
            .filter(|section| section.keys.starts_with(parent) && section.keys.len() > parent.len());
        let has_tables_in_lines = own.is_some_and(|own| {
            let is_table = |line: &TomlLine| self.source.text[line.value.span.start..].starts_with('{');
            own.lines.iter().any(is_table)
        });
        match (value, own) {
            (Value::Object(entries), _)
                if !entries.is_empty() && (below.clone().next().is_some() || !has_tables_in_lines) =>
            {
                let beside = if parent.is_empty() { None } else { below.next_back().or(own) };
                self.add_section(beside, &self.section(keys, entries))
            }
            (_, Some(own)) => self.add_line(own, &format!("{} = {}", dotted(name), self::value(value))),
            (_, None) => {
                let entries = Map::from_iter([(name.concat(), value.clone())]);
                let text = self.section(parent, &entries);
                match below.clone().next().and_then(TomlSection::start) {
                    Some(start) => {
                        let line = self.source.line_start(start);
                        let at = self.source.comments_above(line, 0);
                        Splice::insert(at, format!("{text}{newline}{newline}"))
                    }
                    None => self.add_section(None, &text),
                }
            }
        }
    }

    /// Appends a section after another one, or at the end.
    fn add_section(&self, beside: Option<&TomlSection>, text: &str) -> Splice {
        let newline = self.source.newline();
        if let Some(end) = beside.and_then(TomlSection::end) {
            return Splice::insert(self.source.end_of_comments(end), format!("{newline}{newline}{text}"));
        }
        let at = self.source.text.trim_end().len();
        match (at, self.source.text.len()) {
            (0, 0) => Splice::insert(0, format!("{text}{newline}")),
            (0, _) => Splice::insert(0, text),
            _ => Splice::insert(at, format!("{newline}{newline}{text}")),
        }
    }

    /// Appends a line to a section.
    fn add_line(&self, section: &TomlSection, text: &str) -> Splice {
        let newline = self.source.newline();
        if let Some(end) = section.end() {
            let indent = section.lines.last().map_or("", |line| self.source.indentation(line.start));
            return Splice::insert(self.source.end_of_comments(end), format!("{newline}{indent}{text}"));
        }
        // The root section is empty: it ends before the first header.
        match self.sections.iter().find_map(|section| section.header) {
            Some(header) => {
                let at = self.source.comments_above(self.source.line_start(header.start), 0);
                Splice::insert(at, format!("{text}{newline}{newline}"))
            }
            None => self.add_section(None, text),
        }
    }

    /// Prints a section. Tables that are too long for a line become sections of their own.
    fn section(&self, keys: &[String], entries: &Map<String, Value>) -> String {
        let newline = self.source.newline();
        let mut text = format!("[{}]", dotted(keys));
        let mut below = String::new();
        for (name, value) in entries {
            let line = format!("{} = {}", key(name), self::value(value));
            match value {
                Value::Object(inner) if line.len() > MAX_WIDTH => {
                    let keys: Vec<String> = keys.iter().chain([name]).cloned().collect();
                    below.push_str(newline);
                    below.push_str(newline);
                    below.push_str(&self.section(&keys, inner));
                }
                _ => {
                    text.push_str(newline);
                    text.push_str(&line);
                }
            }
        }
        text + &below
    }
}
