//! Sections with lines in them, as TOML has them.

use std::ops::Range;

use serde_json::{Map, Value};

use super::flow;
use super::page::{Page, Splice};
use super::print::{MAX_WIDTH, Print};
use super::walk::{self, Obstacle};
use crate::path::Step;

mod sections;

use sections::{Line, Section, sections};

/// Puts a value at the end of a way, with all that is missing on it.
pub(super) fn put(
    page: Page<'_>,
    steps: &[Step],
    (old, value): (&Value, &Value),
) -> Result<Vec<Splice>, Obstacle> {
    let outline = Outline::new(page);
    let keys = outline.keys(steps)?;
    if let Some((line, n_steps)) = outline.line_on(&keys) {
        if n_steps == steps.len() {
            let print = Print { format: page.format, key: None, value };
            return Ok(flow::replace(page, line.start, &line.value, &print));
        }
        let (done, rest) = steps.split_at(n_steps);
        let old = walk::at(old, done).unwrap_or(&Value::Null);
        return walk::put(page, &line.value, rest, (old, value));
    }
    // What is not there yet is made with all that is inside.
    let value = &walk::wrapped(&steps[keys.len()..], value);
    let present = outline.ranges(&keys);
    let Some((first, others)) = present.split_first() else {
        return Ok(vec![outline.insert(&keys, value)]);
    };
    let cut = |range: &Range<usize>| page.cut(range.start, range.end);
    if outline.is_section(&keys) && !value.is_object() {
        // What is no table stands with the lines of its parent.
        return Ok(std::iter::once(outline.insert(&keys, value)).chain(present.iter().map(cut)).collect());
    }
    let newline = if page.text[first.clone()].ends_with('\n') { page.newline() } else { "" };
    let text = format!("{}{newline}", outline.text_in_place(&keys, first.start, value));
    let splice = Splice::new(first.start, first.end, text);
    Ok(std::iter::once(splice).chain(others.iter().map(cut)).collect())
}

/// Takes away what is at the end of a way.
pub(super) fn remove(page: Page<'_>, steps: &[Step]) -> Result<Vec<Splice>, Obstacle> {
    let outline = Outline::new(page);
    let keys = outline.keys(steps)?;
    match outline.line_on(&keys) {
        Some((line, n_steps)) if n_steps < steps.len() => walk::remove(page, &line.value, &steps[n_steps..]),
        _ => Ok(outline.ranges(&keys).iter().map(|range| page.cut(range.start, range.end)).collect()),
    }
}

/// A key as it is written.
pub(super) fn key(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '-' | '_'));
    if is_bare { key.to_owned() } else { text(key) }
}

/// A value as it is written behind a key, on one line.
pub(super) fn value(value: &Value) -> String {
    match value {
        // There is none in TOML, and whoever checks the result finds that out.
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

/// A text in quotes.
fn text(text: &str) -> String {
    // The escapes of JSON are some of those of TOML, which wants one more character to have one.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Keys with dots between them.
fn dotted(keys: &[String]) -> String {
    keys.iter().map(|each| key(each)).collect::<Vec<_>>().join(".")
}

/// The sections of a text, and where something can be found or put.
struct Outline<'t> {
    page: Page<'t>,
    sections: Vec<Section>,
}

impl<'t> Outline<'t> {
    fn new(page: Page<'t>) -> Self {
        Self { page, sections: sections(page.text) }
    }

    /// The keys that a way begins with, unless it leads through sections that have one name together.
    fn keys(&self, steps: &[Step]) -> Result<Vec<String>, Obstacle> {
        let keys: Vec<String> = steps
            .iter()
            .map_while(|step| match step {
                Step::Key(key) => Some(key.clone()),
                Step::Index(_) => None,
            })
            .collect();
        let is_in_way = |section: &&Section| {
            section.is_one_of_many && keys.iter().zip(&section.keys).all(|(one, other)| one == other)
        };
        match self.sections.iter().find(is_in_way) {
            Some(section) => {
                let message =
                    "a section with double brackets stands here, and only people can tell which is meant";
                Err(Obstacle::new(section.header.unwrap_or_default(), message))
            }
            None => Ok(keys),
        }
    }

    /// The line whose value the way leads to or through, and how many steps lead to it.
    fn line_on(&self, keys: &[String]) -> Option<(&Line, usize)> {
        self.lines().find_map(|(section, line)| {
            let way = section.way(line);
            keys.starts_with(&way).then_some((line, way.len()))
        })
    }

    /// Whether it has sections and no lines.
    fn is_section(&self, keys: &[String]) -> bool {
        !self
            .lines()
            .any(|(section, line)| section.keys.len() < keys.len() && section.way(line).starts_with(keys))
    }

    fn lines(&self) -> impl Iterator<Item = (&Section, &Line)> {
        self.sections.iter().flat_map(|section| section.lines.iter().map(move |line| (section, line)))
    }

    /// The lines and sections that are at the end of a way or behind it, in whole lines of the text.
    fn ranges(&self, keys: &[String]) -> Vec<Range<usize>> {
        let page = self.page;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut add = |start: usize, end: usize, floor: usize| {
            let line = page.line_start(start);
            let start = page.remarks_above(line, floor.min(line));
            let end = page.next_line(page.end_of_remarks(end));
            match ranges.last_mut() {
                Some(last) if page.text.get(last.end..start).is_some_and(|gap| gap.trim().is_empty()) => {
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
                    if section.way(line).starts_with(keys) {
                        add(line.start, line.value.span.end, floor);
                    }
                    floor = page.next_line(line.value.span.end);
                }
            }
            floor = section.end().map_or(floor, |end| page.next_line(end));
        }
        ranges
    }

    /// What stands where lines or sections were, the first of which began at a place.
    fn text_in_place(&self, keys: &[String], start: usize, value: &Value) -> String {
        let of_line =
            self.lines().find(|(section, line)| line.start >= start && section.way(line).starts_with(keys));
        let header = self.sections.iter().find(|section| {
            section.header.is_some_and(|header| header.start >= start) && section.keys.starts_with(keys)
        });
        let is_first = |header: &Section| of_line.is_none_or(|(_, line)| header.start() < Some(line.start));
        match (of_line, header, value) {
            (_, Some(header), Value::Object(entries)) if is_first(header) => self.section(keys, entries),
            (Some((section, _)), _, _) if keys.len() > section.keys.len() => {
                format!("{} = {}", dotted(&keys[section.keys.len()..]), self::value(value))
            }
            _ => format!("{} = {}", dotted(keys), self::value(value)),
        }
    }

    /// Puts something where nothing is yet.
    fn insert(&self, keys: &[String], value: &Value) -> Splice {
        let newline = self.page.newline();
        let (parent, name) = keys.split_at(keys.len().saturating_sub(1));
        let dotted_beside = self.lines().filter(|(section, line)| {
            section.keys.len() < parent.len() && section.way(line).starts_with(parent)
        });
        if let Some((section, line)) = dotted_beside.last() {
            let text = format!("{newline}{} = {}", dotted(&keys[section.keys.len()..]), self::value(value));
            return Splice::insert(self.page.end_of_remarks(line.value.span.end), text);
        }
        let own = self.sections.iter().find(|section| section.keys == parent);
        let mut below = self
            .sections
            .iter()
            .filter(|section| section.keys.starts_with(parent) && section.keys.len() > parent.len());
        let has_tables_in_lines = own.is_some_and(|own| {
            let is_table = |line: &Line| self.page.text[line.value.span.start..].starts_with('{');
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
                match below.clone().next().and_then(Section::start) {
                    Some(start) => {
                        let line = self.page.line_start(start);
                        let at = self.page.remarks_above(line, 0);
                        Splice::insert(at, format!("{text}{newline}{newline}"))
                    }
                    None => self.add_section(None, &text),
                }
            }
        }
    }

    /// Adds a section behind another, or behind everything.
    fn add_section(&self, beside: Option<&Section>, text: &str) -> Splice {
        let newline = self.page.newline();
        if let Some(end) = beside.and_then(Section::end) {
            return Splice::insert(self.page.end_of_remarks(end), format!("{newline}{newline}{text}"));
        }
        let at = self.page.text.trim_end().len();
        match (at, self.page.text.len()) {
            (0, 0) => Splice::insert(0, format!("{text}{newline}")),
            (0, _) => Splice::insert(0, text),
            _ => Splice::insert(at, format!("{newline}{newline}{text}")),
        }
    }

    /// Adds a line behind the others of a section.
    fn add_line(&self, section: &Section, text: &str) -> Splice {
        let newline = self.page.newline();
        if let Some(end) = section.end() {
            let indent = section.lines.last().map_or("", |line| self.page.indentation(line.start));
            return Splice::insert(self.page.end_of_remarks(end), format!("{newline}{indent}{text}"));
        }
        // The first section has nothing in it: before the first header is where it ends.
        match self.sections.iter().find_map(|section| section.header) {
            Some(header) => {
                let at = self.page.remarks_above(self.page.line_start(header.start), 0);
                Splice::insert(at, format!("{text}{newline}{newline}"))
            }
            None => self.add_section(None, text),
        }
    }

    /// A section as it is written. What is too long for a line in it has a section of its own.
    fn section(&self, keys: &[String], entries: &Map<String, Value>) -> String {
        let newline = self.page.newline();
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
