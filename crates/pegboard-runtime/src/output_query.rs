//! Paged queries over a stored output.
//!
//! An output that is too large for a model is stored unaltered, and the model receives a handle. With it the
//! model requests an [`OutputView`]: a range of lines, matching lines, a part of a JSON document. [`read`]
//! produces one page. A page that cannot hold everything ends with a note containing a [`PageCursor`], which
//! carries all state that the next page needs. The work per page is linear in the size of the output, for any
//! query.

mod cursor;
mod grep;
mod json_path;
mod page;
mod request;
mod search;
mod stats;
mod truncate;
mod work_budget;

pub use cursor::{InvalidCursor, PageCursor};
pub use grep::{Case, Grep, GrepPattern, InvalidPattern};
pub use json_path::{InvalidJsonPath, JsonPath, select, select_one};
pub use page::OutputPage;
pub use request::{InvalidOutputRequest, OutputRequest, OutputView};
pub use search::{InvalidWords, SearchWords};
pub use stats::OutputStats;
pub use truncate::{chunks, truncate_middle};
pub use work_budget::{WorkBudget, WorkGuard};

use cursor::CursorPosition;
use truncate::quoted;

/// Minimum page size: below it there is no room for content beside the continuation note.
pub const MIN_PAGE_BYTES: usize = 512;

/// Error of reading a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The view requires a model.
    #[error("mode {mode} needs a model; use stats, head, tail, lines, grep, search or jsonpath")]
    NeedsModel {
        /// Name of the mode.
        mode: &'static str,
    },
    /// The output is not text.
    #[error(
        "the output is not UTF-8 text: {n_bytes} bytes of content type {content_type}; only stats can be read"
    )]
    NotText {
        /// Declared content type, quoted.
        content_type: String,
        /// Size in bytes.
        n_bytes: usize,
    },
    /// The output is not JSON.
    #[error("the output is not a JSON document: {problem}; read it with lines, grep or search")]
    NotJson {
        /// Parse error.
        problem: String,
    },
    /// The path matches nothing.
    #[error("no match for the path {path}; use stats to list the structure")]
    NoMatch {
        /// The path, quoted.
        path: String,
    },
    /// The path matches too many values.
    #[error("the path {path} matches too many values; make it more specific")]
    TooManyMatches {
        /// The path, quoted.
        path: String,
    },
}

/// Reads one page of an output, at most `max_bytes` long; the limit is raised to [`MIN_PAGE_BYTES`].
///
/// ```
/// use pegboard_runtime::output_query::{OutputView, read};
///
/// let body = "a line\n".repeat(1_000);
/// let page = read(body.as_bytes(), "text/plain", &OutputView::Lines { from: 1, to: None }, 512).unwrap();
/// assert!(page.text.len() <= 512);
/// assert!(page.text.contains("more lines; continue with"));
/// let next = OutputView::Next(page.next.unwrap());
/// assert!(read(body.as_bytes(), "text/plain", &next, 512).unwrap().text.starts_with("a line\n"));
/// ```
pub fn read(
    body: &[u8],
    content_type: &str,
    view: &OutputView,
    max_bytes: usize,
) -> Result<OutputPage, ReadError> {
    read_within(body, content_type, view, max_bytes, &WorkBudget::unlimited())
}

/// Like [`read`], but returns a partial page when the work budget is exhausted.
pub fn read_within(
    body: &[u8],
    content_type: &str,
    view: &OutputView,
    max_bytes: usize,
    budget: &WorkBudget,
) -> Result<OutputPage, ReadError> {
    let max_bytes = max_bytes.max(MIN_PAGE_BYTES);
    let text = || {
        let not_text = |_| ReadError::NotText { content_type: quoted(content_type), n_bytes: body.len() };
        std::str::from_utf8(body).map_err(not_text)
    };
    match view {
        OutputView::Auto { .. } | OutputView::FullChunked { .. } | OutputView::ReadGrep { .. } => {
            Err(ReadError::NeedsModel { mode: view.mode() })
        }
        OutputView::Truncate => Ok(OutputPage::complete(truncate_middle(text()?, max_bytes))),
        OutputView::Head { n_lines } => {
            let text = text()?;
            Ok(page::lines(text, 0..page::end_of_line(text, *n_lines), max_bytes))
        }
        OutputView::Tail { n_lines } => {
            let text = text()?;
            Ok(page::lines(text, page::start_of_tail(text, *n_lines)..text.len(), max_bytes))
        }
        OutputView::Lines { from, to } => {
            let text = text()?;
            let start = page::end_of_line(text, from.saturating_sub(1));
            let end = to.map_or(text.len(), |to| page::end_of_line(text, to));
            Ok(page::lines(text, start..end, max_bytes))
        }
        OutputView::Grep(grep) => Ok(grep::page(text()?, grep, (0, 0), max_bytes, budget)),
        OutputView::Search(words) => Ok(search::page(text()?, words, 0, max_bytes, budget)),
        OutputView::JsonPath(path) => json_path::page(body, path, (0, 0), max_bytes),
        OutputView::Stats => Ok(OutputPage::complete(stats::summary(body, content_type, max_bytes))),
        OutputView::Next(PageCursor(position)) => match position {
            CursorPosition::Bytes(range) => Ok(page::lines(text()?, range.clone(), max_bytes)),
            CursorPosition::Grep { grep, at, n_after } => {
                Ok(grep::page(text()?, grep, (*at, *n_after), max_bytes, budget))
            }
            CursorPosition::Search { words, n_shown } => {
                Ok(search::page(text()?, words, *n_shown, max_bytes, budget))
            }
            CursorPosition::JsonPath { path, n_shown, offset } => {
                json_path::page(body, path, (*n_shown, *offset), max_bytes)
            }
        },
    }
}
