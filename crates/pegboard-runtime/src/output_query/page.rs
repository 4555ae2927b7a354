//! One page of an output, with the continuation note at its end.

use std::fmt::Write;
use std::ops::Range;

use super::cursor::{CursorPosition, PageCursor};
use super::stats::{OutputStats, counted};

/// Size reserved for the description of the rest.
const MAX_LEFT_BYTES: usize = 90;
/// Number of characters shown on either side of a match in a long line.
const CHARS_AROUND: usize = 200;

/// A page of a stored output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputPage {
    /// Text for the model, including the continuation note.
    pub text: String,
    /// Cursor of the next page; `None` if this is the last one.
    pub next: Option<PageCursor>,
    n_content_bytes: usize,
}

impl OutputPage {
    /// Returns the text without the note: the pages of a line range concatenate to the lines.
    pub fn content(&self) -> &str {
        &self.text[..self.n_content_bytes]
    }

    /// A complete answer on one page.
    pub(super) fn complete(content: impl Into<String>) -> Self {
        let text = content.into();
        Self { n_content_bytes: text.len(), text, next: None }
    }

    /// A page without content, consisting of a note.
    pub(super) fn empty(note: &str) -> Self {
        Self { text: note.to_owned(), next: None, n_content_bytes: 0 }
    }

    /// A page followed by others. `left` briefly describes the rest.
    pub(super) fn partial(content: String, left: &str, next: PageCursor, max_bytes: usize) -> Self {
        let (n_content_bytes, mut text) = (content.len(), content);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let note = note(left, &next);
        if text.len() + note.len() <= max_bytes {
            text += &note;
        } else {
            // Only a page that is small compared with the query has no room for the cursor.
            write!(text, "… {left}; narrow the query").expect("writing to a String cannot fail");
        }
        Self { text, next: Some(next), n_content_bytes }
    }
}

fn note(left: &str, next: &PageCursor) -> String {
    let next = serde_json::json!({"mode": "next", "cursor": next.to_string()});
    format!("… {left}; continue with {next} and the same handle")
}

/// Returns the content capacity of a page with a note. `widest` is a cursor with the largest possible
/// numbers.
pub(super) fn content_capacity(max_bytes: usize, widest: &PageCursor) -> usize {
    let set_aside = note("", widest).len() + MAX_LEFT_BYTES + 1;
    max_bytes - set_aside.min(max_bytes / 2)
}

/// Returns a page of a byte range, cut after a line if possible.
pub(super) fn lines(text: &str, range: Range<usize>, max_bytes: usize) -> OutputPage {
    let end = text.floor_char_boundary(range.end);
    let start = text.floor_char_boundary(range.start).min(end);
    let requested = &text[start..end];
    if requested.is_empty() {
        let n_lines = counted(OutputStats::of(text.as_bytes()).n_lines, "line");
        return OutputPage::empty(&format!("There is nothing to read here; the output has {n_lines}."));
    }
    if requested.len() <= max_bytes {
        return OutputPage::complete(requested);
    }
    let widest = PageCursor(CursorPosition::Bytes(text.len()..text.len()));
    let content = fit_lines(requested, content_capacity(max_bytes, &widest));
    let rest = &requested[content.len()..];
    let n_lines = newlines(rest) + usize::from(!rest.ends_with('\n'));
    let left = if content.ends_with('\n') {
        counted_more(n_lines, "line")
    } else {
        let number = newlines(&text[..start + content.len()]) + 1;
        match n_lines - 1 {
            0 => format!("line {number} goes on"),
            n_after => format!("line {number} goes on, then {}", counted_more(n_after, "line")),
        }
    };
    OutputPage::partial(
        content.to_owned(),
        &left,
        PageCursor(CursorPosition::Bytes(start + content.len()..end)),
        max_bytes,
    )
}

/// Returns the longest prefix that fits, up to the end of a line if possible.
pub(super) fn fit_lines(text: &str, room: usize) -> &str {
    let cut = &text[..text.floor_char_boundary(room)];
    cut.rfind('\n').map_or(cut, |newline| &cut[..=newline])
}

pub(super) fn counted_more(n: usize, thing: &str) -> String {
    counted(n, &format!("more {thing}"))
}

pub(super) fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}

/// Returns the end offset of the first `n_lines` lines.
pub(super) fn end_of_line(text: &str, n_lines: usize) -> usize {
    match n_lines.checked_sub(1) {
        None => 0,
        Some(n_before) => {
            text.match_indices('\n').nth(n_before).map_or(text.len(), |(newline, _)| newline + 1)
        }
    }
}

/// Returns the start offset of the last `n_lines` lines. A trailing newline begins no line.
pub(super) fn start_of_tail(text: &str, n_lines: usize) -> usize {
    let lines = text.strip_suffix('\n').unwrap_or(text);
    match n_lines.checked_sub(1) {
        None => text.len(),
        Some(n_after) => lines.rmatch_indices('\n').nth(n_after).map_or(0, |(newline, _)| newline + 1),
    }
}

/// Returns a line as shown, and the end of the shown part: the whole line, or the surroundings of a match.
///
/// `limit` is in bytes and at least one hundred.
pub(super) fn excerpt(line: &str, found: Range<usize>, limit: usize) -> (String, usize) {
    if line.len() <= limit {
        return (line.to_owned(), line.len());
    }
    let side = limit / 4 - '…'.len_utf8();
    let (before, after) = (&line[..found.start], &line[found.start..]);
    let before = &before[before.ceil_char_boundary(before.len().saturating_sub(side))..];
    let n_skipped = before.chars().count().saturating_sub(CHARS_AROUND);
    let before: String = before.chars().skip(n_skipped).collect();
    let n_found = after.floor_char_boundary((found.end - found.start).min(limit / 2));
    let (middle, after) = after.split_at(n_found);
    let n_after = after.char_indices().nth(CHARS_AROUND).map_or(after.len(), |(at, _)| at);
    let after = &after[..after.floor_char_boundary(n_after.min(side))];
    let end = found.start + middle.len() + after.len();
    let opening = if before.len() < found.start { "…" } else { "" };
    let closing = if end < line.len() { "…" } else { "" };
    (format!("{opening}{before}{middle}{after}{closing}"), end)
}
