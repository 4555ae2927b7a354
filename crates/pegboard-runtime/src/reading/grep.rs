//! The lines that match a pattern, with the lines around them.

use std::collections::VecDeque;
use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::cursor::{Cursor, Place};
use super::effort::Effort;
use super::page::{Reading, excerpt, newlines, room};

/// How long a pattern may be.
const MAX_PATTERN_BYTES: usize = 512;
/// How much memory a compiled pattern may take; it bounds the time for each byte of the text, too.
const MAX_COMPILED_BYTES: usize = 512 << 10;
/// How much memory the matcher may use to be fast.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// A longer line is searched window by window, so that the search can stop in between.
const WINDOW_BYTES: usize = 8 << 10;
/// How much of a window the next one repeats: in a longer line than a window, a longer match may be missed.
const OVERLAP_BYTES: usize = 2 << 10;
/// How deeply the groups of a pattern may nest.
const MAX_NESTING: u32 = 50;
/// A longer line is shown in parts.
const MAX_LINE_BYTES: usize = 1_000;
/// How many parts of one line a page shows. Each may take a walk to the end of the line.
const MAX_PARTS: usize = 50;
/// What a line number and its sign may take.
const LINE_NUMBER_BYTES: usize = 32;

/// What to look for, and how much of it to show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grep {
    /// What a line must match.
    pub pattern: Pattern,
    /// How many lines are shown before and after a match.
    pub context: usize,
    /// How many matches a page shows.
    pub max_matches: usize,
}

impl Grep {
    /// How many lines of context there may be.
    pub const MAX_CONTEXT: usize = 50;
    /// How many matches a page may show.
    pub const MAX_MATCHES: usize = 1_000;

    /// A search with the nearest numbers that are allowed.
    pub fn new(pattern: Pattern, context: usize, max_matches: usize) -> Self {
        Self {
            pattern,
            context: context.min(Self::MAX_CONTEXT),
            max_matches: max_matches.clamp(1, Self::MAX_MATCHES),
        }
    }
}

/// Whether `A` is `a`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// It is not.
    #[default]
    Matters,
    /// It is.
    Ignored,
}

/// A regular expression that takes linear time.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    case: Case,
}

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is longer than a pattern needs to be.
    #[error("`pattern` is longer than {MAX_PATTERN_BYTES} bytes")]
    TooLong,
    /// Matching it would take too long; counted repetitions make a pattern large.
    #[error("`pattern` is too large once its repetitions are counted out; use a simpler one")]
    TooLarge,
    /// It is not a regular expression.
    #[error("`pattern` is not a regular expression that can be used: {0}")]
    Refused(String),
}

impl Pattern {
    /// The pattern that a text spells.
    pub fn new(text: &str, case: Case) -> Result<Self, BadPattern> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(BadPattern::TooLong);
        }
        RegexBuilder::new(text)
            .case_insensitive(case == Case::Ignored)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_CACHE_BYTES)
            .nest_limit(MAX_NESTING)
            .build()
            .map(|regex| Self { regex, case })
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => BadPattern::TooLarge,
                error => BadPattern::Refused(error.to_string()),
            })
    }

    /// How it is spelled.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Whether case matters.
    pub fn case(&self) -> Case {
        self.case
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str() && self.case == other.case
    }
}

impl Eq for Pattern {}

/// The matches from the byte `at` on; `n_after` lines are shown before the first, as context of one on the page before.
pub(super) fn page(
    text: &str,
    grep: &Grep,
    (at, n_after): (usize, usize),
    max_bytes: usize,
    effort: &Effort,
) -> Reading {
    let widest = Place::Grep { grep: grep.clone(), at: text.len(), n_after };
    let room = room(max_bytes, &Cursor(widest));
    let limit = MAX_LINE_BYTES.min(room - LINE_NUMBER_BYTES);
    let mut page = Page { grep, effort, room, limit, content: String::new(), n_matches: 0, last: None };
    match page.fill(text, at, n_after) {
        Filled::Full { at, n_after } => {
            let next = Cursor(Place::Grep { grep: grep.clone(), at, n_after });
            Reading::cut(page.content, "more matches follow", next, max_bytes)
        }
        Filled::Stopped { at } => {
            let next = Cursor(Place::Grep { grep: grep.clone(), at, n_after: 0 });
            let left = format!("searched {at} of {} bytes so far", text.len());
            Reading::cut(page.content, &left, next, max_bytes)
        }
        Filled::Done if page.content.is_empty() && at > 0 => {
            Reading::nothing("No more lines match the pattern.")
        }
        Filled::Done if page.content.is_empty() => Reading::nothing("No line matches the pattern."),
        Filled::Done => Reading::whole(page.content),
    }
}

/// How the filling of a page ended.
enum Filled {
    /// All of the text was searched.
    Done,
    /// There is more, from here.
    Full { at: usize, n_after: usize },
    /// It took too long; the search goes on from here.
    Stopped { at: usize },
}

/// Why a line was not taken: the page is full.
struct PageIsFull;

/// How far a search came.
struct Stopped {
    at: usize,
}

/// How much of a line was shown.
enum Shown {
    All,
    /// The page is full, and the line goes on from here.
    UpTo(usize),
    /// It took too long, and the search goes on from here.
    Stopped(usize),
}

#[derive(Clone, Copy)]
struct Line<'text> {
    number: usize,
    start: usize,
    text: &'text str,
}

struct Page<'grep> {
    grep: &'grep Grep,
    effort: &'grep Effort,
    room: usize,
    limit: usize,
    content: String,
    n_matches: usize,
    /// The number of the line that was shown last.
    last: Option<usize>,
}

impl Page<'_> {
    fn fill(&mut self, text: &str, at: usize, mut n_after: usize) -> Filled {
        let at = text.floor_char_boundary(at);
        let mut before: VecDeque<Line<'_>> = VecDeque::new();
        for line in lines_from(text, at) {
            if line.start > at && self.effort.is_over() {
                return Filled::Stopped { at: line.start };
            }
            // Only a line that was begun on the page before has a part that is not searched again.
            let from = at.saturating_sub(line.start).min(line.text.len());
            let found = match self.find(line.text, from) {
                Ok(found) => found,
                // At least a window was searched, so the next page begins later than this one.
                Err(Stopped { at }) => return Filled::Stopped { at: line.start + at },
            };
            if found.is_some() {
                if self.n_matches == self.grep.max_matches {
                    let at = before.front().map_or(line.start, |first| first.start);
                    return Filled::Full { at, n_after: 0 };
                }
                for context in before.drain(..) {
                    if self.show(context, '-', 0..0).is_err() {
                        return Filled::Full { at: context.start, n_after: 0 };
                    }
                }
                match self.show_matches(line, from) {
                    Shown::All => {}
                    Shown::UpTo(within) => return Filled::Full { at: line.start + within, n_after: 0 },
                    Shown::Stopped(within) => return Filled::Stopped { at: line.start + within },
                }
                n_after = self.grep.context;
            } else if n_after > 0 {
                if self.show(line, '-', 0..0).is_err() {
                    return Filled::Full { at: line.start, n_after };
                }
                n_after -= 1;
            } else if self.grep.context > 0 {
                if before.len() == self.grep.context {
                    before.pop_front();
                }
                before.push_back(line);
            }
        }
        Filled::Done
    }

    /// Shows a line that matches, or the parts of a long one.
    fn show_matches(&mut self, line: Line<'_>, mut from: usize) -> Shown {
        let mut n_parts = 0;
        loop {
            let found = match self.find(line.text, from) {
                Ok(Some(found)) => found,
                Ok(None) => return Shown::All,
                Err(Stopped { at }) => return Shown::Stopped(at),
            };
            if n_parts == MAX_PARTS || self.n_matches == self.grep.max_matches {
                return Shown::UpTo(from);
            }
            let Ok(shown_to) = self.show(line, ':', found.clone()) else { return Shown::UpTo(from) };
            self.n_matches += 1;
            n_parts += 1;
            from = shown_to.max(found.end);
            if from >= line.text.len() {
                return Shown::All;
            }
        }
    }

    /// The first match from `from` on, window by window; or how far the search came before it had to stop.
    fn find(&self, line: &str, first: usize) -> Result<Option<Range<usize>>, Stopped> {
        let mut from = first;
        let regex = &self.grep.pattern.regex;
        let mut end = line.floor_char_boundary(from.saturating_add(WINDOW_BYTES));
        loop {
            if line.len() - from <= WINDOW_BYTES {
                end = line.len();
            }
            match regex.find_at(&line[..end], from) {
                // At the edge of a window a match may be longer than it looks, or none at all. The window doubles,
                // so that looking again costs no more than looking once.
                Some(found) if found.end() == end && end < line.len() => {
                    if from > first && self.effort.is_over() {
                        return Err(Stopped { at: from });
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
            if end < line.len() && self.effort.is_over() {
                return Err(Stopped { at: from });
            }
        }
    }

    /// Adds a line if there is room for it, and says up to where it was shown.
    fn show(&mut self, line: Line<'_>, sign: char, found: Range<usize>) -> Result<usize, PageIsFull> {
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

/// The lines of a text from the one that holds the byte `at`. A newline at the very end begins no line.
fn lines_from(text: &str, at: usize) -> impl Iterator<Item = Line<'_>> {
    let mut start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let n_before = newlines(&text[..start]);
    text[start..].lines().zip(n_before + 1..).map(move |(line, number)| {
        let line = Line { number, start, text: line };
        // The newline, and the carriage return that is not part of the line.
        let rest = &text[start + line.text.len()..];
        start += line.text.len() + rest.find('\n').map_or(rest.len(), |newline| newline + 1);
        line
    })
}
