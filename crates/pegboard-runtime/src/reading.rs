//! Reading a stored output piece by piece: from its bytes and a request to a text.
//!
//! An output that is too large for a model is stored as it came, and the model gets a handle. With it the model asks
//! for a [`View`]: some lines, those that match, a part of a JSON document. [`read`] makes one page of it. A page that
//! cannot hold everything ends with a note that has a [`Cursor`], and the cursor holds all that the next page needs.
//! The work for a page is linear in the output, whatever the request.

mod cursor;
mod cut;
mod effort;
mod grep;
mod json_path;
mod page;
mod request;
mod search;
mod stats;

pub use cursor::{BadCursor, Cursor};
pub use cut::{chunks, truncated};
pub use effort::{Effort, GiveUp};
pub use grep::{BadPattern, Case, Grep, Pattern};
pub use json_path::{BadPath, JsonPath, select, select_one};
pub use page::Reading;
pub use request::{BadRequest, Request, View};
pub use search::{BadWords, Words};
pub use stats::Stats;

use cursor::Place;
use cut::quoted;

/// The smallest page: below it there is no room for a text beside the note about what is left out.
pub const MIN_PAGE_BYTES: usize = 512;

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The view needs a model to find what is asked for.
    #[error("mode {mode} needs a model; use stats, head, tail, lines, grep, search or jsonpath")]
    NeedsModel {
        /// The mode.
        mode: &'static str,
    },
    /// The output has no lines to read.
    #[error(
        "the output is not UTF-8 text: {n_bytes} bytes of content type {content_type}; only stats can be read"
    )]
    NotText {
        /// What it is said to be, in quotation marks.
        content_type: String,
        /// How large it is.
        n_bytes: usize,
    },
    /// The output has no paths to follow.
    #[error("the output is not a JSON document: {problem}; read it with lines, grep or search")]
    NotJson {
        /// What is wrong, and where.
        problem: String,
    },
    /// There is nothing at the path.
    #[error("nothing in the output is at the path {path}; stats lists what there is")]
    NoMatch {
        /// The path, in quotation marks.
        path: String,
    },
    /// There is more at the path than can be of use.
    #[error("the path {path} leads to too many values; name more of its steps")]
    TooMuch {
        /// The path, in quotation marks.
        path: String,
    },
}

/// One page of an output, at most `max_bytes` long; a smaller limit than [`MIN_PAGE_BYTES`] counts as that.
///
/// ```
/// use pegboard_runtime::reading::{View, read};
///
/// let body = "a line\n".repeat(1_000);
/// let page = read(body.as_bytes(), "text/plain", &View::Lines { from: 1, to: None }, 512).unwrap();
/// assert!(page.text.len() <= 512);
/// assert!(page.text.contains("more lines; continue with"));
/// let next = View::Next(page.next.unwrap());
/// assert!(read(body.as_bytes(), "text/plain", &next, 512).unwrap().text.starts_with("a line\n"));
/// ```
pub fn read(body: &[u8], content_type: &str, view: &View, max_bytes: usize) -> Result<Reading, ReadError> {
    read_within(body, content_type, view, max_bytes, &Effort::unlimited())
}

/// One page of an output, of which a part is given when it takes more than the effort.
pub fn read_within(
    body: &[u8],
    content_type: &str,
    view: &View,
    max_bytes: usize,
    effort: &Effort,
) -> Result<Reading, ReadError> {
    let max_bytes = max_bytes.max(MIN_PAGE_BYTES);
    let text = || {
        let not_text = |_| ReadError::NotText { content_type: quoted(content_type), n_bytes: body.len() };
        std::str::from_utf8(body).map_err(not_text)
    };
    match view {
        View::Auto { .. } | View::FullChunked { .. } | View::ReadGrep { .. } => {
            Err(ReadError::NeedsModel { mode: view.mode() })
        }
        View::Truncate => Ok(Reading::whole(truncated(text()?, max_bytes))),
        View::Head { n_lines } => {
            let text = text()?;
            Ok(page::lines(text, 0..page::end_of_line(text, *n_lines), max_bytes))
        }
        View::Tail { n_lines } => {
            let text = text()?;
            Ok(page::lines(text, page::start_of_tail(text, *n_lines)..text.len(), max_bytes))
        }
        View::Lines { from, to } => {
            let text = text()?;
            let start = page::end_of_line(text, from.saturating_sub(1));
            let end = to.map_or(text.len(), |to| page::end_of_line(text, to));
            Ok(page::lines(text, start..end, max_bytes))
        }
        View::Grep(grep) => Ok(grep::page(text()?, grep, (0, 0), max_bytes, effort)),
        View::Search(words) => Ok(search::page(text()?, words, 0, max_bytes, effort)),
        View::JsonPath(path) => json_path::page(body, path, (0, 0), max_bytes),
        View::Stats => Ok(Reading::whole(stats::summary(body, content_type, max_bytes))),
        View::Next(Cursor(place)) => match place {
            Place::Bytes(range) => Ok(page::lines(text()?, range.clone(), max_bytes)),
            Place::Grep { grep, at, n_after } => {
                Ok(grep::page(text()?, grep, (*at, *n_after), max_bytes, effort))
            }
            Place::Search { words, n_shown } => Ok(search::page(text()?, words, *n_shown, max_bytes, effort)),
            Place::JsonPath { path, n_shown, offset } => {
                json_path::page(body, path, (*n_shown, *offset), max_bytes)
            }
        },
    }
}
