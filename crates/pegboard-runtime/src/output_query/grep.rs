//! The `grep` view: lines that match a pattern, with context.

use std::collections::VecDeque;
use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::cursor::{CursorPosition, PageCursor};
use super::page::{OutputPage, content_capacity, excerpt, newlines};
use super::work_budget::WorkBudget;

/// Maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 512;
/// Maximum size of a compiled pattern; it also bounds the matching time per byte.
const MAX_COMPILED_BYTES: usize = 512 << 10;
/// Maximum memory of the matcher's cache.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Longer lines are searched in windows, so that the search can stop in between.
const WINDOW_BYTES: usize = 8 << 10;
/// Overlap of two windows; in a line longer than a window, a longer match may be missed.
const OVERLAP_BYTES: usize = 2 << 10;
/// Maximum nesting depth of groups in a pattern.
const MAX_NESTING: u32 = 50;
/// Longer lines are shown in parts.
const MAX_LINE_BYTES: usize = 1_000;
/// Maximum number of parts of one line per page. Each may require a scan to the end of the line.
const MAX_PARTS: usize = 50;
/// Size reserved for a line number and its separator.
const LINE_NUMBER_BYTES: usize = 32;

/// Parameters of a grep.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grep {
    /// Pattern that a line must match.
    pub pattern: GrepPattern,
    /// Number of context lines before and after a match.
    pub context: usize,
    /// Maximum number of matches per page.
    pub max_matches: usize,
}

impl Grep {
    /// Maximum number of context lines.
    pub const MAX_CONTEXT: usize = 50;
    /// Maximum number of matches per page.
    pub const MAX_MATCHES: usize = 1_000;

    /// Creates the parameters, clamping the numbers to their maximum.
    pub fn new(pattern: GrepPattern, context: usize, max_matches: usize) -> Self {
        Self {
            pattern,
            context: context.min(Self::MAX_CONTEXT),
            max_matches: max_matches.clamp(1, Self::MAX_MATCHES),
        }
    }
}

/// Case sensitivity of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// Case-sensitive.
    #[default]
    Sensitive,
    /// Case-insensitive.
    Insensitive,
}

/// A regular expression with linear matching time.
#[derive(Clone, Debug)]
pub struct GrepPattern {
    regex: Regex,
    case: Case,
}

/// Error of compiling a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// The pattern exceeds the maximum length.
    #[error("`pattern` is longer than {MAX_PATTERN_BYTES} bytes")]
    TooLong,
    /// The compiled pattern is too large; counted repetitions expand a pattern.
    #[error("`pattern` is too large when compiled; simplify it")]
    TooLarge,
    /// The pattern is not a valid regular expression.
    #[error("`pattern` is not a valid regular expression: {0}")]
    Refused(String),
}

impl GrepPattern {
    /// Compiles a pattern.
    pub fn new(text: &str, case: Case) -> Result<Self, InvalidPattern> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(InvalidPattern::TooLong);
        }
        RegexBuilder::new(text)
            .case_insensitive(case == Case::Insensitive)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_CACHE_BYTES)
            .nest_limit(MAX_NESTING)
            .build()
            .map(|regex| Self { regex, case })
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => InvalidPattern::TooLarge,
                error => InvalidPattern::Refused(error.to_string()),
            })
    }

    /// Returns the source text.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Returns the case sensitivity.
    pub fn case(&self) -> Case {
        self.case
    }
}

impl PartialEq for GrepPattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str() && self.case == other.case
    }
}

impl Eq for GrepPattern {}

/// Returns the matches from byte `at` on, preceded by `n_after` lines of context of a match on the previous
/// page.
pub(super) fn page(
    text: &str,
    grep: &Grep,
    (at, n_after): (usize, usize),
    max_bytes: usize,
    budget: &WorkBudget,
) -> OutputPage {
    let widest = CursorPosition::Grep { grep: grep.clone(), at: text.len(), n_after };
    let room = content_capacity(max_bytes, &PageCursor(widest));
    let limit = MAX_LINE_BYTES.min(room - LINE_NUMBER_BYTES);
    let mut page = GrepPage { grep, budget, room, limit, content: String::new(), n_matches: 0, last: None };
    match page.fill(text, at, n_after) {
        FillEnd::Full { at, n_after } => {
            let next = PageCursor(CursorPosition::Grep { grep: grep.clone(), at, n_after });
            OutputPage::partial(page.content, "more matches follow", next, max_bytes)
        }
        FillEnd::Stopped { at } => {
            let next = PageCursor(CursorPosition::Grep { grep: grep.clone(), at, n_after: 0 });
            let left = format!("searched {at} of {} bytes so far", text.len());
            OutputPage::partial(page.content, &left, next, max_bytes)
        }
        FillEnd::Done if page.content.is_empty() && at > 0 => {
            OutputPage::empty("No more lines match the pattern.")
        }
        FillEnd::Done if page.content.is_empty() => OutputPage::empty("No line matches the pattern."),
        FillEnd::Done => OutputPage::complete(page.content),
    }
}

/// Reason why filling a page ended.
enum FillEnd {
    /// The whole text was searched.
    Done,
    /// The page is full; continue here.
    Full { at: usize, n_after: usize },
    /// The work budget is exhausted; continue here.
    Stopped { at: usize },
}

/// The page has no room for the line.
struct PageIsFull;

/// The work budget is exhausted; the search reached this byte.
struct SearchStopped {
    at: usize,
}

/// Extent to which a line was shown.
enum LineExtent {
    All,
    /// The page is full; the line continues here.
    UpTo(usize),
    /// The work budget is exhausted; continue here.
    Stopped(usize),
}

#[derive(Clone, Copy)]
struct TextLine<'text> {
    number: usize,
    start: usize,
    text: &'text str,
}

struct GrepPage<'grep> {
    grep: &'grep Grep,
    budget: &'grep WorkBudget,
    room: usize,
    limit: usize,
    content: String,
    n_matches: usize,
    /// Number of the line that was shown last.
    last: Option<usize>,
}

impl GrepPage<'_> {
    fn fill(&mut self, text: &str, at: usize, mut n_after: usize) -> FillEnd {
        let at = text.floor_char_boundary(at);
        let mut before: VecDeque<TextLine<'_>> = VecDeque::new();
        for line in lines_from(text, at) {
            if line.start > at && self.budget.is_exhausted() {
                return FillEnd::Stopped { at: line.start };
            }
            // Only a line that began on the previous page has a part that is not searched again.
            let from = at.saturating_sub(line.start).min(line.text.len());
            let found = match self.find(line.text, from) {
                Ok(found) => found,
                // At least one window was searched, so the next page makes progress.
                Err(SearchStopped { at }) => return FillEnd::Stopped { at: line.start + at },
            };
            if found.is_some() {
                if self.n_matches == self.grep.max_matches {
                    let at = before.front().map_or(line.start, |first| first.start);
                    return FillEnd::Full { at, n_after: 0 };
                }
                for context in before.drain(..) {
                    if self.show(context, '-', 0..0).is_err() {
                        return FillEnd::Full { at: context.start, n_after: 0 };
                    }
                }
                match self.show_matches(line, from) {
                    LineExtent::All => {}
                    LineExtent::UpTo(within) => return FillEnd::Full { at: line.start + within, n_after: 0 },
                    LineExtent::Stopped(within) => return FillEnd::Stopped { at: line.start + within },
                }
                n_after = self.grep.context;
            } else if n_after > 0 {
                if self.show(line, '-', 0..0).is_err() {
                    return FillEnd::Full { at: line.start, n_after };
                }
                n_after -= 1;
            } else if self.grep.context > 0 {
                if before.len() == self.grep.context {
                    before.pop_front();
                }
                before.push_back(line);
            }
        }
        FillEnd::Done
    }

    /// Shows a matching line, or the matching parts of a long one.
    fn show_matches(&mut self, line: TextLine<'_>, mut from: usize) -> LineExtent {
        let mut n_parts = 0;
        loop {
            let found = match self.find(line.text, from) {
                Ok(Some(found)) => found,
                Ok(None) => return LineExtent::All,
                Err(SearchStopped { at }) => return LineExtent::Stopped(at),
            };
            if n_parts == MAX_PARTS || self.n_matches == self.grep.max_matches {
                return LineExtent::UpTo(from);
            }
            let Ok(shown_to) = self.show(line, ':', found.clone()) else { return LineExtent::UpTo(from) };
            self.n_matches += 1;
            n_parts += 1;
            from = shown_to.max(found.end);
            if from >= line.text.len() {
                return LineExtent::All;
            }
        }
    }

    /// Finds the first match from `first` on, window by window.
    fn find(&self, line: &str, first: usize) -> Result<Option<Range<usize>>, SearchStopped> {
        let mut from = first;
        let regex = &self.grep.pattern.regex;
        let mut end = line.floor_char_boundary(from.saturating_add(WINDOW_BYTES));
        loop {
            if line.len() - from <= WINDOW_BYTES {
                end = line.len();
            }
            match regex.find_at(&line[..end], from) {
                // At the edge of a window a match may be longer than it appears, or spurious. The window is
                // doubled, so that the repeated search costs no more than a single one.
                Some(found) if found.end() == end && end < line.len() => {
                    if from > first && self.budget.is_exhausted() {
                        return Err(SearchStopped { at: from });
                    }
                    end = line.floor_char_boundary(end.saturating_add(end - from));
                    continue;
                }
                Some(found) => return Ok(Some(found.range())),
                None if end == line.len() => return Ok(None),
                None => {
                    from = line.floor_char_boundary(end - OVERLAP_BYTES).max(from + 1);
                    from = line.ceil_char_boundary(from);
                    end = line.floor_char_boundary(from.saturating_add(WINDOW_BYTES));
                }
            }
            if end < line.len() && self.budget.is_exhausted() {
                return Err(SearchStopped { at: from });
            }
        }
    }

    /// Adds a line if there is room; returns the end of the shown part.
    fn show(&mut self, line: TextLine<'_>, sign: char, found: Range<usize>) -> Result<usize, PageIsFull> {
        let (text, shown_to) = excerpt(line.text, found, self.limit);
        let has_gap = self.grep.context > 0 && self.last.is_some_and(|last| last + 1 < line.number);
        let gap = if has_gap { "--\n" } else { "" };
        let shown = format!("{gap}{}{sign} {text}\n", line.number);
        if self.content.len() + shown.len() > self.room {
            return Err(PageIsFull);
        }
        self.content += &shown;
        self.last = Some(line.number);
        Ok(shown_to)
    }
}

/// Returns the lines from the one that contains byte `at`. A trailing newline begins no line.
fn lines_from(text: &str, at: usize) -> impl Iterator<Item = TextLine<'_>> {
    let mut start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let n_before = newlines(&text[..start]);
    text[start..].lines().zip(n_before + 1..).map(move |(line, number)| {
        let line = TextLine { number, start, text: line };
        // Skips the newline, and a carriage return that is not part of the line.
        let rest = &text[start + line.text.len()..];
        start += line.text.len() + rest.find('\n').map_or(rest.len(), |newline| newline + 1);
        line
    })
}
