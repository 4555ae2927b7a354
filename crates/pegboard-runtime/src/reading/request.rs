//! What a model asks of a stored output: the arguments of `tool_output`.

use serde_json::{Map, Value, json};

use super::cursor::{BadCursor, Cursor};
use super::cut::quoted;
use super::grep::{BadPattern, Case, Grep, Pattern};
use super::json_path::{BadPath, JsonPath};
use super::search::{BadWords, Words};

/// How many matches a page shows if nobody says otherwise.
const DEFAULT_MATCHES: usize = 100;

/// A request to read a stored output.
///
/// ```
/// use pegboard_runtime::reading::{Request, View};
/// use serde_json::json;
///
/// let request = Request::parse(&json!({"handle": "h1", "mode": "head", "lines": 20})).unwrap();
/// assert_eq!(request.view, View::Head { n_lines: 20 });
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Which output.
    pub handle: String,
    /// What of it.
    pub view: View,
}

/// What of an output is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// What a sentence asks for, found by a model in whichever way suits.
    Auto {
        /// The sentence.
        extract: String,
    },
    /// What a sentence asks for, found by a model that reads everything.
    FullChunked {
        /// The sentence.
        extract: String,
    },
    /// What a sentence asks for, found by a model that searches.
    ReadGrep {
        /// The sentence.
        extract: String,
    },
    /// The beginning and the end, as much as fits.
    Truncate,
    /// The first lines.
    Head {
        /// How many.
        n_lines: usize,
    },
    /// The last lines.
    Tail {
        /// How many.
        n_lines: usize,
    },
    /// Some lines, counted from 1.
    Lines {
        /// The first.
        from: usize,
        /// The last; `None` for all that follow.
        to: Option<usize>,
    },
    /// The lines that match a pattern.
    Grep(Grep),
    /// The lines that have some words, best first.
    Search(Words),
    /// What a path leads to in a JSON document.
    JsonPath(JsonPath),
    /// How large it is, and what shape it has.
    Stats,
    /// The page after one that was read.
    Next(Cursor),
}

/// Why a request cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// There is no handle, or no sentence for a mode that needs one.
    #[error("Invalid tool_output parameters: handle and extract are required.")]
    HandleAndExtract,
    /// There is no mode of this name.
    #[error("Invalid tool_output parameters: there is no mode {mode}; use {}.", listed(Mode::ALL.map(Mode::name)))]
    UnknownMode {
        /// The name, in quotation marks.
        mode: String,
    },
    /// There is no parameter of this name.
    #[error("Invalid tool_output parameters: there is no {key}; use {}.", listed(KEYS))]
    UnknownKey {
        /// The name, in quotation marks.
        key: String,
    },
    /// A mode does not take a parameter.
    #[error("Invalid tool_output parameters: mode {mode} does not take `{key}`; it takes {takes}.")]
    NotTaken {
        /// The mode.
        mode: &'static str,
        /// The parameter.
        key: &'static str,
        /// What it does take.
        takes: String,
    },
    /// A mode needs a parameter that is not there.
    #[error("Invalid tool_output parameters: mode {mode} needs `{key}`.")]
    Missing {
        /// The mode.
        mode: &'static str,
        /// The parameter.
        key: &'static str,
    },
    /// A parameter is of the wrong type, or out of its range.
    #[error("Invalid tool_output parameters: `{key}` must be {wanted}.")]
    WrongValue {
        /// The parameter.
        key: &'static str,
        /// What it must be.
        wanted: String,
    },
    /// The pattern cannot be used.
    #[error("Invalid tool_output parameters: {0}")]
    Pattern(#[from] BadPattern),
    /// The query cannot be used.
    #[error("Invalid tool_output parameters: {0}.")]
    Query(#[from] BadWords),
    /// The path cannot be used.
    #[error("Invalid tool_output parameters: {0}.")]
    Path(#[from] BadPath),
    /// The cursor cannot be used.
    #[error("Invalid tool_output parameters: {0}.")]
    Cursor(#[from] BadCursor),
}

impl Request {
    /// The request that the arguments of a call make. `null` is as good as nothing.
    pub fn parse(arguments: &Value) -> Result<Self, BadRequest> {
        let arguments = arguments.as_object().ok_or(BadRequest::HandleAndExtract)?;
        let handle = filled(arguments, "handle").ok_or(BadRequest::HandleAndExtract)?;
        let mode = match given(arguments, "mode") {
            None => Mode::Auto,
            Some(mode) => Mode::named(mode)?,
        };
        let arguments = Arguments { mode, arguments };
        arguments.check_keys()?;
        Ok(Self { handle: handle.to_owned(), view: arguments.view()? })
    }

    /// The JSON Schema of the arguments.
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
                    "enum": Mode::ALL.map(Mode::name),
                    "default": Mode::Auto.name(),
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

/// Every parameter there is.
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
enum Mode {
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

impl Mode {
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

    fn named(name: &Value) -> Result<Self, BadRequest> {
        let name = name.as_str().ok_or_else(|| wrong("mode", "a string"))?;
        let unknown = || BadRequest::UnknownMode { mode: quoted(name) };
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

    /// The parameters of its own.
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

impl View {
    /// The sentence that says what is looked for, if a model has to find it.
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

    /// The name of its mode.
    pub(super) fn mode(&self) -> &'static str {
        match self {
            Self::Auto { .. } => Mode::Auto,
            Self::FullChunked { .. } => Mode::FullChunked,
            Self::ReadGrep { .. } => Mode::ReadGrep,
            Self::Truncate => Mode::Truncate,
            Self::Head { .. } => Mode::Head,
            Self::Tail { .. } => Mode::Tail,
            Self::Lines { .. } => Mode::Lines,
            Self::Grep(_) => Mode::Grep,
            Self::Search(_) => Mode::Search,
            Self::JsonPath(_) => Mode::JsonPath,
            Self::Stats => Mode::Stats,
            Self::Next(_) => Mode::Next,
        }
        .name()
    }
}

struct Arguments<'call> {
    mode: Mode,
    arguments: &'call Map<String, Value>,
}

impl<'call> Arguments<'call> {
    /// A parameter that would be passed over in silence is an error.
    fn check_keys(&self) -> Result<(), BadRequest> {
        for (key, _) in self.arguments.iter().filter(|(_, value)| !value.is_null()) {
            let known = KEYS.into_iter().find(|known| known == key);
            let key = known.ok_or_else(|| BadRequest::UnknownKey { key: quoted(key) })?;
            // A sentence does no harm to a mode that needs none.
            let is_for_all = matches!(key, "handle" | "extract" | "mode");
            if !is_for_all && !self.mode.keys().contains(&key) {
                let takes = ["handle"].iter().chain(self.mode.keys()).copied();
                return Err(BadRequest::NotTaken { mode: self.mode.name(), key, takes: listed(takes) });
            }
        }
        Ok(())
    }

    fn view(&self) -> Result<View, BadRequest> {
        Ok(match self.mode {
            Mode::Auto => View::Auto { extract: self.extract()? },
            Mode::FullChunked => View::FullChunked { extract: self.extract()? },
            Mode::ReadGrep => View::ReadGrep { extract: self.extract()? },
            Mode::Truncate => View::Truncate,
            Mode::Head => View::Head { n_lines: self.needed("lines", self.count("lines")?)? },
            Mode::Tail => View::Tail { n_lines: self.needed("lines", self.count("lines")?)? },
            Mode::Lines => {
                let from = self.needed("from", self.count("from")?)?;
                let to = self.count("to")?;
                if to.is_some_and(|to| to < from) {
                    return Err(wrong("to", "no less than `from`"));
                }
                View::Lines { from, to }
            }
            Mode::Grep => View::Grep(self.grep()?),
            Mode::Search => View::Search(Words::new(self.text("query")?)?),
            Mode::JsonPath => View::JsonPath(JsonPath::parse(self.text("path")?)?),
            Mode::Stats => View::Stats,
            Mode::Next => View::Next(self.text("cursor")?.parse()?),
        })
    }

    fn grep(&self) -> Result<Grep, BadRequest> {
        let case = match given(self.arguments, "ignoreCase") {
            None | Some(Value::Bool(false)) => Case::Matters,
            Some(Value::Bool(true)) => Case::Ignored,
            Some(_) => return Err(wrong("ignoreCase", "true or false")),
        };
        let pattern = Pattern::new(self.text("pattern")?, case)?;
        let context = self.number("context", 0, Grep::MAX_CONTEXT)?.unwrap_or_default();
        let max_matches = self.number("maxMatches", 1, Grep::MAX_MATCHES)?.unwrap_or(DEFAULT_MATCHES);
        Ok(Grep::new(pattern, context, max_matches))
    }

    fn extract(&self) -> Result<String, BadRequest> {
        filled(self.arguments, "extract").map(str::to_owned).ok_or(BadRequest::HandleAndExtract)
    }

    fn text(&self, key: &'static str) -> Result<&'call str, BadRequest> {
        let value = self.needed(key, given(self.arguments, key))?;
        value.as_str().ok_or_else(|| wrong(key, "a string"))
    }

    fn count(&self, key: &'static str) -> Result<Option<usize>, BadRequest> {
        self.number(key, 1, usize::MAX)
    }

    fn number(&self, key: &'static str, least: usize, most: usize) -> Result<Option<usize>, BadRequest> {
        let Some(value) = given(self.arguments, key) else { return Ok(None) };
        let number = whole(value).filter(|number| (least..=most).contains(number));
        let wanted = || match most {
            usize::MAX => format!("a whole number, {least} or more"),
            most => format!("a whole number from {least} to {most}"),
        };
        number.map(Some).ok_or_else(|| BadRequest::WrongValue { key, wanted: wanted() })
    }

    fn needed<T>(&self, key: &'static str, value: Option<T>) -> Result<T, BadRequest> {
        value.ok_or(BadRequest::Missing { mode: self.mode.name(), key })
    }
}

fn given<'call>(arguments: &'call Map<String, Value>, key: &str) -> Option<&'call Value> {
    arguments.get(key).filter(|value| !value.is_null())
}

/// A text that says something.
fn filled<'call>(arguments: &'call Map<String, Value>, key: &str) -> Option<&'call str> {
    arguments.get(key)?.as_str().filter(|text| !text.trim().is_empty())
}

/// A whole number, however it is written: `5.0` is one, too.
fn whole(value: &Value) -> Option<usize> {
    let number = value.as_number()?.to_string();
    number.strip_suffix(".0").unwrap_or(&number).parse().ok()
}

fn wrong(key: &'static str, wanted: &str) -> BadRequest {
    BadRequest::WrongValue { key, wanted: wanted.to_owned() }
}

fn listed<'name>(names: impl IntoIterator<Item = &'name str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
