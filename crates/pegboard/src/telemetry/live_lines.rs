//! Lines at the bottom of the terminal that are redrawn in place, below everything else on standard error.

use std::fmt::Write as _;

use parking_lot::{Mutex, MutexGuard};

/// A line with its color codes, and the number of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLine {
    /// Printable text with color codes.
    pub text: String,
    /// Number of columns.
    pub width: usize,
}

/// The lines that are shown.
#[derive(Default)]
pub(super) struct LiveLines {
    lines: Vec<LiveLine>,
    /// Number of lines that were typed below them.
    n_typed: usize,
}

static LIVE: Mutex<LiveLines> = Mutex::new(LiveLines { lines: Vec::new(), n_typed: 0 });

/// Locks standard error for a text above the lines.
pub(super) fn lock() -> MutexGuard<'static, LiveLines> {
    LIVE.lock()
}

impl LiveLines {
    /// Returns `true` if no line is shown.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the sequence that prints a text of whole lines above the lines, on a terminal with this width.
    pub(super) fn above(&mut self, text: &str, columns: usize) -> String {
        self.erased(columns) + text + &self.drawn()
    }

    /// Replaces the lines; returns the sequence for it, or `None` if they are the same.
    pub(super) fn replace(&mut self, lines: Vec<LiveLine>, columns: usize) -> Option<String> {
        if lines == self.lines {
            return None;
        }
        let erased = self.erased(columns);
        self.lines = lines;
        Some(erased + &self.drawn())
    }

    /// Notes that the user has typed a line, so that the cursor is further down.
    pub(super) fn line_was_typed(&mut self) {
        if !self.lines.is_empty() {
            self.n_typed += 1;
        }
    }

    /// Leaves the lines on the terminal as they are.
    pub(super) fn leave(&mut self) {
        self.lines.clear();
        self.n_typed = 0;
    }

    /// Returns the sequence that erases the lines. A terminal that became narrower has wrapped them.
    fn erased(&mut self, columns: usize) -> String {
        let n_rows: usize = self.lines.iter().map(|line| line.width.div_ceil(columns.max(1)).max(1)).sum();
        let n_rows = n_rows + std::mem::take(&mut self.n_typed);
        if n_rows == 0 { String::new() } else { format!("\u{1b}[{n_rows}A\r\u{1b}[J") }
    }

    fn drawn(&self) -> String {
        self.lines.iter().fold(String::new(), |mut drawn, line| {
            write!(drawn, "\r{}\n", line.text).expect("a string takes all text");
            drawn
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<LiveLine> {
        texts.iter().map(|text| LiveLine { text: (*text).to_owned(), width: text.len() }).collect()
    }

    #[test]
    fn text_is_printed_above_the_lines() {
        let mut live = LiveLines::default();
        assert_eq!(live.replace(lines(&["one", "two"]), 80).as_deref(), Some("\rone\n\rtwo\n"));
        assert_eq!(live.replace(lines(&["one", "two"]), 80), None);
        assert_eq!(live.above("log\n", 80), "\u{1b}[2A\r\u{1b}[Jlog\n\rone\n\rtwo\n");
        // Enter has moved the cursor.
        live.line_was_typed();
        assert_eq!(live.above("log\n", 80), "\u{1b}[3A\r\u{1b}[Jlog\n\rone\n\rtwo\n");
        assert_eq!(live.above("log\n", 80), "\u{1b}[2A\r\u{1b}[Jlog\n\rone\n\rtwo\n");
        assert_eq!(live.replace(lines(&["one"]), 80).as_deref(), Some("\u{1b}[2A\r\u{1b}[J\rone\n"));
        // The terminal became narrower.
        assert_eq!(live.replace(lines(&["x"]), 2).as_deref(), Some("\u{1b}[2A\r\u{1b}[J\rx\n"));
        live.leave();
        assert!(live.is_empty());
        assert_eq!(live.above("log\n", 80), "log\n");
    }
}
