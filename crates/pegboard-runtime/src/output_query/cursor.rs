//! Page cursors.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::grep::{Case, Grep, GrepPattern};
use super::json_path::JsonPath;
use super::search::SearchWords;

/// Maximum length of a cursor: the longest pattern and its numbers.
const MAX_BYTES: usize = 1_024;

/// Position at which the next page begins.
///
/// A cursor is self-contained text, so no state is kept between pages. Any cursor, even a forged one, yields
/// only some part of the same output.
///
/// ```
/// use pegboard_runtime::output_query::PageCursor;
///
/// let cursor: PageCursor = "bytes:1200-9000".parse().unwrap();
/// assert_eq!(cursor.to_string(), "bytes:1200-9000");
/// assert!("page 2".parse::<PageCursor>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PageCursor(pub(super) CursorPosition);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum CursorPosition {
    /// A byte range of the text.
    Bytes(Range<usize>),
    /// A grep continues at a byte, with some lines of trailing context still to show.
    Grep { grep: Grep, at: usize, n_after: usize },
    /// A word search continues after a number of shown lines.
    Search { words: SearchWords, n_shown: usize },
    /// A JSON path query continues after a number of shown matches, at an offset in the next one.
    JsonPath { path: JsonPath, n_shown: usize, offset: usize },
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`cursor` must be copied verbatim from the previous page")]
pub struct InvalidCursor;

impl fmt::Display for PageCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CursorPosition::Bytes(range) => write!(formatter, "bytes:{}-{}", range.start, range.end),
            CursorPosition::Grep { grep, at, n_after } => {
                let Grep { pattern, context, max_matches } = grep;
                let case = match pattern.case() {
                    Case::Sensitive => "case",
                    Case::Insensitive => "nocase",
                };
                write!(formatter, "grep:{at}:{n_after}:{context}:{max_matches}:{case}:{}", pattern.as_str())
            }
            CursorPosition::Search { words, n_shown } => {
                write!(formatter, "search:{n_shown}:{}", words.as_str())
            }
            CursorPosition::JsonPath { path, n_shown, offset } => {
                write!(formatter, "jsonpath:{n_shown}:{offset}:{}", path.as_str())
            }
        }
    }
}

impl FromStr for PageCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        if text.len() > MAX_BYTES {
            return Err(InvalidCursor);
        }
        let (kind, rest) = text.split_once(':').ok_or(InvalidCursor)?;
        match kind {
            "bytes" => {
                let (start, end) = rest.split_once('-').ok_or(InvalidCursor)?;
                Ok(CursorPosition::Bytes(number(start)?..number(end)?))
            }
            "grep" => grep(rest),
            "search" => {
                let [n_shown, words] = fields(rest)?;
                let words = SearchWords::new(words).map_err(|_| InvalidCursor)?;
                Ok(CursorPosition::Search { words, n_shown: number(n_shown)? })
            }
            "jsonpath" => {
                let [n_shown, offset, path] = fields(rest)?;
                let path = JsonPath::parse(path).map_err(|_| InvalidCursor)?;
                Ok(CursorPosition::JsonPath { path, n_shown: number(n_shown)?, offset: number(offset)? })
            }
            _ => Err(InvalidCursor),
        }
        .map(Self)
    }
}

fn grep(rest: &str) -> Result<CursorPosition, InvalidCursor> {
    let [at, n_after, context, max_matches, case, pattern] = fields(rest)?;
    let case = match case {
        "case" => Case::Sensitive,
        "nocase" => Case::Insensitive,
        _ => return Err(InvalidCursor),
    };
    let pattern = GrepPattern::new(pattern, case).map_err(|_| InvalidCursor)?;
    let grep = Grep::new(pattern, number(context)?, number(max_matches)?);
    Ok(CursorPosition::Grep { n_after: number::<usize>(n_after)?.min(grep.context), grep, at: number(at)? })
}

/// Splits the fields of a cursor. The last one may contain colons.
fn fields<const N: usize>(text: &str) -> Result<[&str; N], InvalidCursor> {
    text.splitn(N, ':').collect::<Vec<_>>().try_into().map_err(|_| InvalidCursor)
}

fn number<T: FromStr>(text: &str) -> Result<T, InvalidCursor> {
    text.parse().map_err(|_| InvalidCursor)
}
