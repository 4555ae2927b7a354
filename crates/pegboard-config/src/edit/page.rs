//! The lines of a text, and what stands between the values in it.

use crate::source::Format;
use crate::tree::Span;

/// A text that is changed in places.
#[derive(Clone, Copy)]
pub(super) struct Page<'t> {
    pub(super) text: &'t str,
    pub(super) format: Format,
}

/// One change: what stands at a place, and what stands there afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) span: Span,
    pub(super) text: String,
}

impl Splice {
    pub(super) fn new(start: usize, end: usize, text: impl Into<String>) -> Self {
        Self { span: Span::new(start, end), text: text.into() }
    }

    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self::new(at, at, text)
    }
}

/// A text with all changes made.
pub(super) fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    // Of two at one place the first stays first.
    splices.sort_by_key(|splice| splice.span.start);
    let mut made = String::with_capacity(text.len());
    let mut at = 0;
    for splice in splices {
        made.push_str(text.get(at..splice.span.start).unwrap_or_default());
        made.push_str(&splice.text);
        at = splice.span.end.max(at);
    }
    made.push_str(text.get(at..).unwrap_or_default());
    made
}

impl<'t> Page<'t> {
    /// How lines end here: as the first one does.
    pub(super) fn newline(self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }

    pub(super) fn line_start(self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// Where the line ends, before its line end.
    pub(super) fn line_end(self, at: usize) -> usize {
        let end = self.text[at..].find('\n').map_or(self.text.len(), |end| at + end);
        if self.text[at..end].ends_with('\r') { end - 1 } else { end }
    }

    /// Where the next line begins, or the text ends.
    pub(super) fn next_line(self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |end| at + end + 1)
    }

    /// The white space that the line begins with.
    pub(super) fn indentation(self, at: usize) -> &'t str {
        let line = &self.text[self.line_start(at)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// How many bytes of its line are before a place.
    pub(super) fn column(self, at: usize) -> usize {
        at - self.line_start(at)
    }

    /// Whether nothing but white space comes before it in its line.
    pub(super) fn begins_line(self, at: usize) -> bool {
        self.text[self.line_start(at)..at].trim().is_empty()
    }

    /// Where the comment ends that begins here, if one does.
    fn comment_end(self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        match self.format {
            Format::Json if rest.starts_with("//") => Some(self.line_end(at)),
            Format::Json if rest.starts_with("/*") => {
                Some(rest.find("*/").map_or(self.text.len(), |end| at + end + 2))
            }
            Format::Yaml | Format::Toml if rest.starts_with('#') => Some(self.line_end(at)),
            Format::Json | Format::Yaml | Format::Toml => None,
        }
    }

    /// The next place that is neither white space nor comment.
    pub(super) fn skip_trivia(self, mut at: usize) -> usize {
        loop {
            let rest = &self.text[at..];
            at += rest.len() - rest.trim_start().len();
            match self.comment_end(at) {
                Some(end) => at = end,
                None => return at,
            }
        }
    }

    /// The comma that comes next, if nothing else does.
    pub(super) fn comma_after(self, at: usize) -> Option<usize> {
        let next = self.skip_trivia(at);
        self.text[next..].starts_with(',').then_some(next)
    }

    /// The end of the line, if only comments and white space come before it; else where the last of those comments ends.
    pub(super) fn end_of_remarks(self, at: usize) -> usize {
        let mut end = at;
        loop {
            let rest = &self.text[end..];
            let next = end + rest.len() - rest.trim_start_matches([' ', '\t']).len();
            if next == self.line_end(end) {
                return next;
            }
            match self.comment_end(next) {
                Some(after) if after <= self.line_end(next) => end = after,
                _ => return end,
            }
        }
    }

    /// Whether the line has nothing more to say.
    pub(super) fn is_done(self, at: usize) -> bool {
        let end = self.end_of_remarks(at);
        end == self.line_end(end)
    }

    /// Where the comment lines begin that stand directly above a line, not before `floor`.
    ///
    /// A comment that opens the file is about the file, so it does not count.
    pub(super) fn remarks_above(self, line: usize, floor: usize) -> usize {
        let mut start = line;
        while start > floor {
            let above = self.line_start(start - 1);
            let written = self.text[above..start].trim();
            let first = above + (self.text[above..].len() - self.text[above..].trim_start().len());
            let is_comment = !written.is_empty()
                && self
                    .comment_end(first)
                    .is_some_and(|end| end == above + self.text[above..start].trim_end().len());
            if above < floor || !is_comment {
                break;
            }
            start = above;
        }
        if start == 0 { line } else { start }
    }

    /// Takes lines away. Blank lines that stood on both sides do not add up, and the last line ends as it did.
    pub(super) fn cut(self, mut from: usize, mut to: usize) -> Splice {
        let is_blank = |start: usize| self.text[start..self.line_end(start)].trim().is_empty();
        let closes = |at: usize| self.text[at..].trim_start().starts_with(['}', ']']);
        let opens = |at: usize| self.text[..at].trim_end().ends_with(['{', '[']);
        let is_last = self.text[to..].trim().is_empty();
        if is_last || (self.format == Format::Json && closes(to)) {
            while from > 0 && is_blank(self.line_start(from - 1)) {
                from = self.line_start(from - 1);
            }
        } else if from == 0
            || is_blank(self.line_start(from - 1))
            || (self.format == Format::Json && opens(from))
        {
            while to < self.text.len() && is_blank(to) {
                to = self.next_line(to);
            }
        }
        if is_last && !self.text.ends_with('\n') {
            from = self.text[..from].trim_end_matches(['\n', '\r']).len();
        }
        Splice::new(from, to, "")
    }
}
