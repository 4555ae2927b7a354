//! Prints new values in the style of the surrounding text.

use serde_json::Value;

use super::text::EditText;
use super::{json, toml, yaml};
use crate::source::ConfigFormat;

/// Maximum width of a list on a single line.
pub(super) const MAX_WIDTH: usize = 80;

/// A value to print, with its key.
pub(super) struct ValuePrinter<'v> {
    pub(super) format: ConfigFormat,
    pub(super) key: Option<&'v str>,
    pub(super) value: &'v Value,
}

/// Layout of printed text.
#[derive(Clone)]
pub(super) struct PrintLayout {
    /// Line ending; `None` if everything must fit on one line.
    pub(super) lines: Option<&'static str>,
    pub(super) indent: String,
    /// Indentation of one level.
    pub(super) unit: String,
    /// Space after a colon or comma.
    pub(super) space: &'static str,
}

impl PrintLayout {
    /// Multi-line layout with this indentation.
    pub(super) fn lines(source: EditText<'_>, indent: &str) -> Self {
        Self { lines: Some(source.newline()), indent: indent.to_owned(), unit: unit(source), space: " " }
    }

    /// Single-line layout.
    pub(super) fn one_line(source: EditText<'_>) -> Self {
        let text = source.text.trim();
        let is_tight = source.format == ConfigFormat::Json && text.contains("\":") && !text.contains("\": ");
        let space = if is_tight { "" } else { " " };
        Self { lines: None, indent: String::new(), unit: String::new(), space }
    }

    /// The same layout, one level deeper.
    pub(super) fn indented(&self) -> Self {
        Self { indent: format!("{}{}", self.indent, self.unit), ..self.clone() }
    }
}

impl ValuePrinter<'_> {
    /// Prints the key and the value in flow style.
    pub(super) fn member(&self, layout: &PrintLayout) -> String {
        match self.key {
            None => self.value(layout),
            Some(key) => match self.format {
                ConfigFormat::Json => format!("{}:{}{}", json::text(key), layout.space, self.value(layout)),
                ConfigFormat::Yaml => format!("{}: {}", yaml::flow_text(key), self.value(layout)),
                ConfigFormat::Toml => format!("{} = {}", toml::key(key), self.value(layout)),
            },
        }
    }

    /// Prints the value in flow style.
    pub(super) fn value(&self, layout: &PrintLayout) -> String {
        match self.format {
            ConfigFormat::Json => json::value(self.value, layout),
            ConfigFormat::Yaml => yaml::flow(self.value),
            ConfigFormat::Toml => toml::value(self.value),
        }
    }
}

/// Detects the indentation of one level from the first nested line.
fn unit(source: EditText<'_>) -> String {
    let mut outer = "";
    for line in source.text.lines() {
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
