//! How new values are written, in the manner of what is around them.

use serde_json::Value;

use super::page::Page;
use super::{json, toml, yaml};
use crate::source::Format;

/// How long a list may get before each of its values has a line of its own.
pub(super) const MAX_WIDTH: usize = 80;

/// A value that is to be written, and the key that leads to it.
pub(super) struct Print<'v> {
    pub(super) format: Format,
    pub(super) key: Option<&'v str>,
    pub(super) value: &'v Value,
}

/// Where something is written.
#[derive(Clone)]
pub(super) struct Layout {
    /// What its lines begin with; `None` if it must be one line.
    pub(super) lines: Option<&'static str>,
    pub(super) indent: String,
    /// By how much more the lines inside begin.
    pub(super) unit: String,
    /// What stands between a key and its value, and behind a comma.
    pub(super) space: &'static str,
}

impl Layout {
    /// On lines that begin like this.
    pub(super) fn lines(page: Page<'_>, indent: &str) -> Self {
        Self { lines: Some(page.newline()), indent: indent.to_owned(), unit: unit(page), space: " " }
    }

    /// On one line.
    pub(super) fn one_line(page: Page<'_>) -> Self {
        let text = page.text.trim();
        let is_tight = page.format == Format::Json && text.contains("\":") && !text.contains("\": ");
        let space = if is_tight { "" } else { " " };
        Self { lines: None, indent: String::new(), unit: String::new(), space }
    }

    /// The same, one level further in.
    pub(super) fn deeper(&self) -> Self {
        Self { indent: format!("{}{}", self.indent, self.unit), ..self.clone() }
    }
}

impl Print<'_> {
    /// The key and the value, between brackets.
    pub(super) fn member(&self, layout: &Layout) -> String {
        match self.key {
            None => self.value(layout),
            Some(key) => match self.format {
                Format::Json => format!("{}:{}{}", json::text(key), layout.space, self.value(layout)),
                Format::Yaml => format!("{}: {}", yaml::flow_text(key), self.value(layout)),
                Format::Toml => format!("{} = {}", toml::key(key), self.value(layout)),
            },
        }
    }

    /// The value, between brackets.
    pub(super) fn value(&self, layout: &Layout) -> String {
        match self.format {
            Format::Json => json::value(self.value, layout),
            Format::Yaml => yaml::flow(self.value),
            Format::Toml => toml::value(self.value),
        }
    }
}

/// By how much the first lines that are inside something are further in.
fn unit(page: Page<'_>) -> String {
    let mut outer = "";
    for line in page.text.lines() {
        let written = line.trim_start_matches([' ', '\t']);
        let indent = &line[..line.len() - written.len()];
        let is_remark = written.is_empty() || written.starts_with(['#', '/', '*']);
        if is_remark {
            continue;
        }
        if let Some(more) = indent.strip_prefix(outer)
            && !more.is_empty()
        {
            return more.to_owned();
        }
        outer = indent;
    }
    "  ".to_owned()
}
