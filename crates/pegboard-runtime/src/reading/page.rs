//! One page of an answer, and the line at its end that says how to go on.

use std::fmt::Write;
use std::ops::Range;

use super::cursor::{Cursor, Place};
use super::stats::{Stats, counted};

/// What the words about the rest may take.
const MAX_LEFT_BYTES: usize = 90;
/// How many characters are shown on either side of something that was found in a long line.
const CHARS_AROUND: usize = 200;

/// A page of a stored output.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What the model reads, with the note about what is left out.
    pub text: String,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<Cursor>,
    n_content_bytes: usize,
}

impl Reading {
    /// The text without the note at its end: pages of lines put together are the lines.
    pub fn content(&self) -> &str {
        &self.text[..self.n_content_bytes]
    }

    /// An answer that fits on one page.
    pub(super) fn whole(content: impl Into<String>) -> Self {
        let text = content.into();
        Self { n_content_bytes: text.len(), text, next: None }
    }

    /// An answer without content, for which a note stands.
    pub(super) fn nothing(note: &str) -> Self {
        Self { text: note.to_owned(), next: None, n_content_bytes: 0 }
    }

    /// A page with others after it. `left` says in a few words what they hold.
    pub(super) fn cut(content: String, left: &str, next: Cursor, max_bytes: usize) -> Self {
        let (n_content_bytes, mut text) = (content.len(), content);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let note = note(left, &next);
        if text.len() + note.len() <= max_bytes {
            text += &note;
        } else {
            // Only a page that is small beside what was asked for cannot hold the way to the next.
            write!(text, "… {left}; ask for something narrower").expect("a string takes every text");
        }
        Self { text, next: Some(next), n_content_bytes }
    }
}

fn note(left: &str, next: &Cursor) -> String {
    let next = serde_json::json!({"mode": "next", "cursor": next.to_string()});
    format!("… {left}; continue with {next} and the same handle")
}

/// How many bytes of content a page has if it ends with a note. `widest` has the largest numbers that there can be.
pub(super) fn room(max_bytes: usize, widest: &Cursor) -> usize {
    let set_aside = note("", widest).len() + MAX_LEFT_BYTES + 1;
    max_bytes - set_aside.min(max_bytes / 2)
}

/// The bytes from `range` of a text, as many as fit, cut after a line if there is one.
pub(super) fn lines(text: &str, range: Range<usize>, max_bytes: usize) -> Reading {
    let end = text.floor_char_boundary(range.end);
    let start = text.floor_char_boundary(range.start).min(end);
    let asked = &text[start..end];
    if asked.is_empty() {
        let n_lines = counted(Stats::of(text.as_bytes()).n_lines, "line");
        return Reading::nothing(&format!("There is nothing to read here; the output has {n_lines}."));
    }
    if asked.len() <= max_bytes {
        return Reading::whole(asked);
    }
    let widest = Cursor(Place::Bytes(text.len()..text.len()));
    let content = fitting(asked, room(max_bytes, &widest));
    let rest = &asked[content.len()..];
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
    Reading::cut(content.to_owned(), &left, Cursor(Place::Bytes(start + content.len()..end)), max_bytes)
}

/// As much of the beginning of a text as fits, up to the end of a line if one ends there.
pub(super) fn fitting(text: &str, room: usize) -> &str {
    let cut = &text[..text.floor_char_boundary(room)];
    cut.rfind('\n').map_or(cut, |newline| &cut[..=newline])
}

pub(super) fn counted_more(n: usize, thing: &str) -> String {
    counted(n, &format!("more {thing}"))
}

pub(super) fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}

/// Where the first `n_lines` lines of a text end.
pub(super) fn end_of_line(text: &str, n_lines: usize) -> usize {
    match n_lines.checked_sub(1) {
        None => 0,
        Some(n_before) => {
            text.match_indices('\n').nth(n_before).map_or(text.len(), |(newline, _)| newline + 1)
        }
    }
}

/// Where the last `n_lines` lines of a text begin. A newline at the very end begins no line.
pub(super) fn start_of_tail(text: &str, n_lines: usize) -> usize {
    let lines = text.strip_suffix('\n').unwrap_or(text);
    match n_lines.checked_sub(1) {
        None => text.len(),
        Some(n_after) => lines.rmatch_indices('\n').nth(n_after).map_or(0, |(newline, _)| newline + 1),
    }
}

/// A line as it is shown, and where the shown part ends: whole, or the surroundings of what was found in it.
///
/// `limit` is in bytes and at least a hundred.
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
