//! Where the next page of an answer begins.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::grep::{Case, Grep, Pattern};
use super::json_path::JsonPath;
use super::search::Words;

/// How long a cursor may be: the longest pattern and its numbers.
const MAX_BYTES: usize = 1_024;

/// Where the next page of an answer begins.
///
/// It is a text that holds all there is to know, so that nothing is kept between two pages. Whatever it says, reading
/// on from it gives some part of the same output.
///
/// ```
/// use pegboard_runtime::reading::Cursor;
///
/// let cursor: Cursor = "bytes:1200-9000".parse().unwrap();
/// assert_eq!(cursor.to_string(), "bytes:1200-9000");
/// assert!("page 2".parse::<Cursor>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(pub(super) Place);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// A part of the text.
    Bytes(Range<usize>),
    /// The search goes on from a byte, with some lines of context still to show.
    Grep { grep: Grep, at: usize, n_after: usize },
    /// So many lines were shown.
    Search { words: Words, n_shown: usize },
    /// So many matches were shown, and so many bytes of the one after them.
    JsonPath { path: JsonPath, n_shown: usize, offset: usize },
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`cursor` must be copied as it stood at the end of the page before")]
pub struct BadCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Bytes(range) => write!(formatter, "bytes:{}-{}", range.start, range.end),
            Place::Grep { grep, at, n_after } => {
                let Grep { pattern, context, max_matches } = grep;
                let case = match pattern.case() {
                    Case::Matters => "case",
                    Case::Ignored => "nocase",
                };
                write!(formatter, "grep:{at}:{n_after}:{context}:{max_matches}:{case}:{}", pattern.as_str())
            }
            Place::Search { words, n_shown } => write!(formatter, "search:{n_shown}:{}", words.as_str()),
            Place::JsonPath { path, n_shown, offset } => {
                write!(formatter, "jsonpath:{n_shown}:{offset}:{}", path.as_str())
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        if text.len() > MAX_BYTES {
            return Err(BadCursor);
        }
        let (kind, rest) = text.split_once(':').ok_or(BadCursor)?;
        match kind {
            "bytes" => {
                let (start, end) = rest.split_once('-').ok_or(BadCursor)?;
                Ok(Place::Bytes(number(start)?..number(end)?))
            }
            "grep" => grep(rest),
            "search" => {
                let [n_shown, words] = fields(rest)?;
                let words = Words::new(words).map_err(|_| BadCursor)?;
                Ok(Place::Search { words, n_shown: number(n_shown)? })
            }
            "jsonpath" => {
                let [n_shown, offset, path] = fields(rest)?;
                let path = JsonPath::parse(path).map_err(|_| BadCursor)?;
                Ok(Place::JsonPath { path, n_shown: number(n_shown)?, offset: number(offset)? })
            }
            _ => Err(BadCursor),
        }
        .map(Self)
    }
}

fn grep(fields_of_it: &str) -> Result<Place, BadCursor> {
    let [at, n_after, context, max_matches, case, pattern] = fields(fields_of_it)?;
    let case = match case {
        "case" => Case::Matters,
        "nocase" => Case::Ignored,
        _ => return Err(BadCursor),
    };
    let pattern = Pattern::new(pattern, case).map_err(|_| BadCursor)?;
    let grep = Grep::new(pattern, number(context)?, number(max_matches)?);
    Ok(Place::Grep { n_after: number::<usize>(n_after)?.min(grep.context), grep, at: number(at)? })
}

/// The fields of a cursor. The last one may hold colons.
fn fields<const N: usize>(text: &str) -> Result<[&str; N], BadCursor> {
    text.splitn(N, ':').collect::<Vec<_>>().try_into().map_err(|_| BadCursor)
}

fn number<T: FromStr>(text: &str) -> Result<T, BadCursor> {
    text.parse().map_err(|_| BadCursor)
}
