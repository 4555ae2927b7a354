//! Navigation in the text under edit: lines, comments and separators.

use crate::source::ConfigFormat;
use crate::tree::Span;

/// The text under edit and its format.
#[derive(Clone, Copy)]
pub(super) struct EditText<'t> {
    pub(super) text: &'t str,
    pub(super) format: ConfigFormat,
}

/// A replacement of a span of text.
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

/// Applies all splices.
pub(super) fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    // Splices at the same offset keep their order.
    splices.sort_by_key(|splice| splice.span.start);
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for splice in splices {
        result.push_str(text.get(at..splice.span.start).unwrap_or_default());
        result.push_str(&splice.text);
        at = splice.span.end.max(at);
    }
    result.push_str(text.get(at..).unwrap_or_default());
    result
}

impl<'t> EditText<'t> {
    /// Returns the line ending of the first line.
    pub(super) fn newline(self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }

    pub(super) fn line_start(self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// Returns the end of the line, before its line ending.
    pub(super) fn line_end(self, at: usize) -> usize {
        let end = self.text[at..].find('\n').map_or(self.text.len(), |end| at + end);
        if self.text[at..end].ends_with('\r') { end - 1 } else { end }
    }

    /// Returns the start of the next line, or the end of the text.
    pub(super) fn next_line(self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |end| at + end + 1)
    }

    /// Returns the indentation of the line.
    pub(super) fn indentation(self, at: usize) -> &'t str {
        let line = &self.text[self.line_start(at)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Returns the byte column of an offset.
    pub(super) fn column(self, at: usize) -> usize {
        at - self.line_start(at)
    }

    /// Returns `true` if only white space precedes the offset in its line.
    pub(super) fn begins_line(self, at: usize) -> bool {
        self.text[self.line_start(at)..at].trim().is_empty()
    }

    /// Returns the end of the comment that starts here, if one does.
    fn comment_end(self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        match self.format {
            ConfigFormat::Json if rest.starts_with("//") => Some(self.line_end(at)),
            ConfigFormat::Json if rest.starts_with("/*") => {
                Some(rest.find("*/").map_or(self.text.len(), |end| at + end + 2))
            }
            ConfigFormat::Yaml | ConfigFormat::Toml if rest.starts_with('#') => Some(self.line_end(at)),
            ConfigFormat::Json | ConfigFormat::Yaml | ConfigFormat::Toml => None,
        }
    }

    /// Returns the next offset that is neither white space nor comment.
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

    /// Returns the offset of the next token if it is a comma.
    pub(super) fn comma_after(self, at: usize) -> Option<usize> {
        let next = self.skip_trivia(at);
        self.text[next..].starts_with(',').then_some(next)
    }

    /// Returns the end of the line if only comments and white space precede it, otherwise the end of the last
    /// such comment.
    pub(super) fn end_of_comments(self, at: usize) -> usize {
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

    /// Returns `true` if the rest of the line is white space or comments.
    pub(super) fn is_line_done(self, at: usize) -> bool {
        let end = self.end_of_comments(at);
        end == self.line_end(end)
    }

    /// Returns the start of the comment lines directly above a line, at or after `floor`.
    ///
    /// A comment at the start of the file describes the file and does not count.
    pub(super) fn comments_above(self, line: usize, floor: usize) -> usize {
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

    /// Removes lines. Collapses the blank lines around them and preserves the ending of the last line.
    pub(super) fn cut(self, mut from: usize, mut to: usize) -> Splice {
        let is_blank = |start: usize| self.text[start..self.line_end(start)].trim().is_empty();
        let closes = |at: usize| self.text[at..].trim_start().starts_with(['}', ']']);
        let opens = |at: usize| self.text[..at].trim_end().ends_with(['{', '[']);
        let is_last = self.text[to..].trim().is_empty();
        if is_last || (self.format == ConfigFormat::Json && closes(to)) {
            while from > 0 && is_blank(self.line_start(from - 1)) {
                from = self.line_start(from - 1);
            }
        } else if from == 0
            || is_blank(self.line_start(from - 1))
            || (self.format == ConfigFormat::Json && opens(from))
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
