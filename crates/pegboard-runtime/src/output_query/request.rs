//! Parses a query over a stored output: the arguments of `tool_output`.

use serde_json::{Map, Value, json};

use super::cursor::{InvalidCursor, PageCursor};
use super::grep::{Case, Grep, GrepPattern, InvalidPattern};
use super::json_path::{InvalidJsonPath, JsonPath};
use super::search::{InvalidWords, SearchWords};
use super::truncate::quoted;

/// Default number of matches per page.
const DEFAULT_MATCHES: usize = 100;

/// A query over a stored output.
///
/// ```
/// use pegboard_runtime::output_query::{OutputRequest, OutputView};
/// use serde_json::json;
///
/// let request = OutputRequest::parse(&json!({"handle": "h1", "mode": "head", "lines": 20})).unwrap();
/// assert_eq!(request.view, OutputView::Head { n_lines: 20 });
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OutputRequest {
    /// Handle of the output.
    pub handle: String,
    /// Requested view.
    pub view: OutputView,
}

/// A view of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputView {
    /// Information described in a sentence, extracted by a model with the strategy that suits the output.
    Auto {
        /// The sentence.
        extract: String,
    },
    /// Information described in a sentence, extracted by a model that reads everything.
    FullChunked {
        /// The sentence.
        extract: String,
    },
    /// Information described in a sentence, extracted by a model that searches.
    ReadGrep {
        /// The sentence.
        extract: String,
    },
    /// The beginning and the end, as much as fits.
    Truncate,
    /// The first lines.
    Head {
        /// Number of lines.
        n_lines: usize,
    },
    /// The last lines.
    Tail {
        /// Number of lines.
        n_lines: usize,
    },
    /// A range of lines, counted from 1.
    Lines {
        /// First line.
        from: usize,
        /// Last line; `None` for all that follow.
        to: Option<usize>,
    },
    /// Lines that match a pattern.
    Grep(Grep),
    /// Lines that contain words, best first.
    Search(SearchWords),
    /// Values selected by a path in a JSON document.
    JsonPath(JsonPath),
    /// Size and structure.
    Stats,
    /// The page after another one.
    Next(PageCursor),
}

/// Error of parsing a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutputRequest {
    /// The handle is missing, or the sentence of a mode that requires one.
    #[error("Invalid tool_output parameters: handle and extract are required.")]
    HandleAndExtract,
    /// The mode does not exist.
    #[error("Invalid tool_output parameters: there is no mode {mode}; use {}.", listed(QueryMode::ALL.map(QueryMode::name)))]
    UnknownMode {
        /// The name, quoted.
        mode: String,
    },
    /// The parameter does not exist.
    #[error("Invalid tool_output parameters: there is no {key}; use {}.", listed(KEYS))]
    UnknownKey {
        /// The name, quoted.
        key: String,
    },
    /// The mode does not accept the parameter.
    #[error("Invalid tool_output parameters: mode {mode} does not take `{key}`; it takes {takes}.")]
    NotTaken {
        /// Name of the mode.
        mode: &'static str,
        /// Name of the parameter.
        key: &'static str,
        /// Accepted parameters.
        takes: String,
    },
    /// The mode requires a parameter that is missing.
    #[error("Invalid tool_output parameters: mode {mode} needs `{key}`.")]
    Missing {
        /// Name of the mode.
        mode: &'static str,
        /// Name of the parameter.
        key: &'static str,
    },
    /// A parameter has the wrong type or is out of range.
    #[error("Invalid tool_output parameters: `{key}` must be {expected}.")]
    WrongValue {
        /// Name of the parameter.
        key: &'static str,
        /// Expected value.
        expected: String,
    },
    /// The pattern is invalid.
    #[error("Invalid tool_output parameters: {0}")]
    Pattern(#[from] InvalidPattern),
    /// The query is invalid.
    #[error("Invalid tool_output parameters: {0}.")]
    Query(#[from] InvalidWords),
    /// The path is invalid.
    #[error("Invalid tool_output parameters: {0}.")]
    Path(#[from] InvalidJsonPath),
    /// The cursor is invalid.
    #[error("Invalid tool_output parameters: {0}.")]
    Cursor(#[from] InvalidCursor),
}

impl OutputRequest {
    /// Parses the arguments of a call. `null` counts as absent.
    pub fn parse(arguments: &Value) -> Result<Self, InvalidOutputRequest> {
        let arguments = arguments.as_object().ok_or(InvalidOutputRequest::HandleAndExtract)?;
        let handle = non_blank(arguments, "handle").ok_or(InvalidOutputRequest::HandleAndExtract)?;
        let mode = match non_null(arguments, "mode") {
            None => QueryMode::Auto,
            Some(mode) => QueryMode::named(mode)?,
        };
        let arguments = QueryArguments { mode, arguments };
        arguments.check_keys()?;
        Ok(Self { handle: handle.to_owned(), view: arguments.view()? })
    }

    /// Returns the JSON Schema of the arguments.
    pub fn input_schema() -> Value {
        let count = |description: &str| json!({"type": "integer", "minimum": 1, "description": description});
        let text = |description: &str| json!({"type": "string", "description": description});
        json!({
            "type": "object",
            "properties": {
                "handle": text("The handle of the stored output, as it was given."),
                "extract": text("What you want to know, in a sentence. Needed by auto, full-chunked and read-grep."),
                "mode": {
                    "type": "string",
                    "enum": QueryMode::ALL.map(QueryMode::name),
                    "default": QueryMode::Auto.name(),
                    "description": "How to read. stats: size and shape. head, tail: the first or last `lines`. \
                        lines: `from` to `to`. grep: lines that match `pattern`. search: the best lines for `query`. \
                        jsonpath: the values at `path`. next: the page after `cursor`. truncate: beginning and end. \
                        auto, full-chunked, read-grep: a model finds `extract`."
                },
                "lines": count("head, tail: how many lines."),
                "from": count("lines: the first line, counted from 1."),
                "to": count("lines: the last line, included; all that follow if left out."),
                "pattern": text("grep: a regular expression, without look-around and back-references."),
                "ignoreCase": {"type": "boolean", "default": false, "description": "grep: whether A matches a."},
                "context": {
                    "type": "integer", "minimum": 0, "maximum": Grep::MAX_CONTEXT, "default": 0,
                    "description": "grep: how many lines to show before and after each match."
                },
                "maxMatches": {
                    "type": "integer", "minimum": 1, "maximum": Grep::MAX_MATCHES, "default": DEFAULT_MATCHES,
                    "description": "grep: how many matches to show on a page."
                },
                "query": text("search: words to look for, separated by spaces."),
                "path": text("jsonpath: where to look, as in $.items[0].id or $..name."),
                "cursor": text("next: the cursor at the end of the page before.")
            },
            "required": ["handle"],
            "additionalProperties": false
        })
    }
}

/// All parameter names.
const KEYS: [&str; 13] = [
    "handle",
    "extract",
    "mode",
    "lines",
    "from",
    "to",
    "pattern",
    "ignoreCase",
    "context",
    "maxMatches",
    "query",
    "path",
    "cursor",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryMode {
    Auto,
    FullChunked,
    ReadGrep,
    Truncate,
    Head,
    Tail,
    Lines,
    Grep,
    Search,
    JsonPath,
    Stats,
    Next,
}

impl QueryMode {
    const ALL: [Self; 12] = [
        Self::Auto,
        Self::FullChunked,
        Self::ReadGrep,
        Self::Truncate,
        Self::Head,
        Self::Tail,
        Self::Lines,
        Self::Grep,
        Self::Search,
        Self::JsonPath,
        Self::Stats,
        Self::Next,
    ];

    fn named(name: &Value) -> Result<Self, InvalidOutputRequest> {
        let name = name.as_str().ok_or_else(|| wrong_value("mode", "a string"))?;
        let unknown = || InvalidOutputRequest::UnknownMode { mode: quoted(name) };
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(unknown)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::FullChunked => "full-chunked",
            Self::ReadGrep => "read-grep",
            Self::Truncate => "truncate",
            Self::Head => "head",
            Self::Tail => "tail",
            Self::Lines => "lines",
            Self::Grep => "grep",
            Self::Search => "search",
            Self::JsonPath => "jsonpath",
            Self::Stats => "stats",
            Self::Next => "next",
        }
    }

    /// Returns the parameters specific to the mode.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Auto | Self::FullChunked | Self::ReadGrep | Self::Truncate | Self::Stats => &[],
            Self::Head | Self::Tail => &["lines"],
            Self::Lines => &["from", "to"],
            Self::Grep => &["pattern", "ignoreCase", "context", "maxMatches"],
            Self::Search => &["query"],
            Self::JsonPath => &["path"],
            Self::Next => &["cursor"],
        }
    }
}

impl OutputView {
    /// Returns the sentence that describes the wanted information, if the view requires a model.
    pub fn extract(&self) -> Option<&str> {
        match self {
            Self::Auto { extract } | Self::FullChunked { extract } | Self::ReadGrep { extract } => {
                Some(extract)
            }
            Self::Truncate
            | Self::Head { .. }
            | Self::Tail { .. }
            | Self::Lines { .. }
            | Self::Grep(_)
            | Self::Search(_)
            | Self::JsonPath(_)
            | Self::Stats
            | Self::Next(_) => None,
        }
    }

    /// Returns the name of the mode.
    pub(super) fn mode(&self) -> &'static str {
        match self {
            Self::Auto { .. } => QueryMode::Auto,
            Self::FullChunked { .. } => QueryMode::FullChunked,
            Self::ReadGrep { .. } => QueryMode::ReadGrep,
            Self::Truncate => QueryMode::Truncate,
            Self::Head { .. } => QueryMode::Head,
            Self::Tail { .. } => QueryMode::Tail,
            Self::Lines { .. } => QueryMode::Lines,
            Self::Grep(_) => QueryMode::Grep,
            Self::Search(_) => QueryMode::Search,
            Self::JsonPath(_) => QueryMode::JsonPath,
            Self::Stats => QueryMode::Stats,
            Self::Next(_) => QueryMode::Next,
        }
        .name()
    }
}

struct QueryArguments<'call> {
    mode: QueryMode,
    arguments: &'call Map<String, Value>,
}

impl<'call> QueryArguments<'call> {
    /// Rejects parameters that would be silently ignored.
    fn check_keys(&self) -> Result<(), InvalidOutputRequest> {
        for (key, _) in self.arguments.iter().filter(|(_, value)| !value.is_null()) {
            let known = KEYS.into_iter().find(|known| known == key);
            let key = known.ok_or_else(|| InvalidOutputRequest::UnknownKey { key: quoted(key) })?;
            // A sentence is harmless for modes that do not use it.
            let is_for_all = matches!(key, "handle" | "extract" | "mode");
            if !is_for_all && !self.mode.keys().contains(&key) {
                let takes = ["handle"].iter().chain(self.mode.keys()).copied();
                return Err(InvalidOutputRequest::NotTaken {
                    mode: self.mode.name(),
                    key,
                    takes: listed(takes),
                });
            }
        }
        Ok(())
    }

    fn view(&self) -> Result<OutputView, InvalidOutputRequest> {
        Ok(match self.mode {
            QueryMode::Auto => OutputView::Auto { extract: self.extract()? },
            QueryMode::FullChunked => OutputView::FullChunked { extract: self.extract()? },
            QueryMode::ReadGrep => OutputView::ReadGrep { extract: self.extract()? },
            QueryMode::Truncate => OutputView::Truncate,
            QueryMode::Head => OutputView::Head { n_lines: self.needed("lines", self.count("lines")?)? },
            QueryMode::Tail => OutputView::Tail { n_lines: self.needed("lines", self.count("lines")?)? },
            QueryMode::Lines => {
                let from = self.needed("from", self.count("from")?)?;
                let to = self.count("to")?;
                if to.is_some_and(|to| to < from) {
                    return Err(wrong_value("to", "no less than `from`"));
                }
                OutputView::Lines { from, to }
            }
            QueryMode::Grep => OutputView::Grep(self.grep()?),
            QueryMode::Search => OutputView::Search(SearchWords::new(self.text("query")?)?),
            QueryMode::JsonPath => OutputView::JsonPath(JsonPath::parse(self.text("path")?)?),
            QueryMode::Stats => OutputView::Stats,
            QueryMode::Next => OutputView::Next(self.text("cursor")?.parse()?),
        })
    }

    fn grep(&self) -> Result<Grep, InvalidOutputRequest> {
        let case = match non_null(self.arguments, "ignoreCase") {
            None | Some(Value::Bool(false)) => Case::Sensitive,
            Some(Value::Bool(true)) => Case::Insensitive,
            Some(_) => return Err(wrong_value("ignoreCase", "true or false")),
        };
        let pattern = GrepPattern::new(self.text("pattern")?, case)?;
        let context = self.number("context", 0, Grep::MAX_CONTEXT)?.unwrap_or_default();
        let max_matches = self.number("maxMatches", 1, Grep::MAX_MATCHES)?.unwrap_or(DEFAULT_MATCHES);
        Ok(Grep::new(pattern, context, max_matches))
    }

    fn extract(&self) -> Result<String, InvalidOutputRequest> {
        non_blank(self.arguments, "extract").map(str::to_owned).ok_or(InvalidOutputRequest::HandleAndExtract)
    }

    fn text(&self, key: &'static str) -> Result<&'call str, InvalidOutputRequest> {
        let value = self.needed(key, non_null(self.arguments, key))?;
        value.as_str().ok_or_else(|| wrong_value(key, "a string"))
    }

    fn count(&self, key: &'static str) -> Result<Option<usize>, InvalidOutputRequest> {
        self.number(key, 1, usize::MAX)
    }

    fn number(
        &self,
        key: &'static str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, InvalidOutputRequest> {
        let Some(value) = non_null(self.arguments, key) else { return Ok(None) };
        let number = whole_number(value).filter(|number| (least..=most).contains(number));
        let expected = || match most {
            usize::MAX => format!("a whole number, {least} or more"),
            most => format!("a whole number from {least} to {most}"),
        };
        number.map(Some).ok_or_else(|| InvalidOutputRequest::WrongValue { key, expected: expected() })
    }

    fn needed<T>(&self, key: &'static str, value: Option<T>) -> Result<T, InvalidOutputRequest> {
        value.ok_or(InvalidOutputRequest::Missing { mode: self.mode.name(), key })
    }
}

fn non_null<'call>(arguments: &'call Map<String, Value>, key: &str) -> Option<&'call Value> {
    arguments.get(key).filter(|value| !value.is_null())
}

/// Returns a non-blank string.
fn non_blank<'call>(arguments: &'call Map<String, Value>, key: &str) -> Option<&'call str> {
    arguments.get(key)?.as_str().filter(|text| !text.trim().is_empty())
}

/// Parses a whole number in any notation, including `5.0`.
fn whole_number(value: &Value) -> Option<usize> {
    let number = value.as_number()?.to_string();
    number.strip_suffix(".0").unwrap_or(&number).parse().ok()
}

fn wrong_value(key: &'static str, expected: &str) -> InvalidOutputRequest {
    InvalidOutputRequest::WrongValue { key, expected: expected.to_owned() }
}

fn listed<'name>(names: impl IntoIterator<Item = &'name str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
