//! One walk through a value that is known to be JSON: every byte is looked at once, however deep it stands.

use std::ops::Range;

/// A place in a value.
pub(crate) struct Walk<'t> {
    pub(crate) text: &'t [u8],
    pub(crate) at: usize,
}

impl<'t> Walk<'t> {
    pub(crate) fn of(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is no white space; 0 at the end.
    pub(crate) fn peek(&mut self) -> u8 {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or_default()
    }

    /// Goes past the next byte if it is this one.
    pub(crate) fn skip(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == byte;
        self.at += usize::from(is_there);
        is_there
    }

    /// Goes past a string, and says where it is, with its quotation marks.
    pub(crate) fn string(&mut self) -> Range<usize> {
        self.peek();
        let start = self.at;
        self.at += 1;
        while let Some(found) = memchr::memchr2(b'"', b'\\', self.text.get(self.at..).unwrap_or_default()) {
            self.at += found + 1;
            if self.text[self.at - 1] == b'"' {
                return start..self.at;
            }
            // Whatever is escaped, it is not the end.
            self.at += 1;
        }
        self.at = self.text.len();
        start..self.at
    }

    /// Goes past a number or a word, and says where it is.
    pub(crate) fn scalar(&mut self) -> Range<usize> {
        self.peek();
        let start = self.at;
        let is_part = |byte: &u8| !matches!(byte, b',' | b']' | b'}') && !byte.is_ascii_whitespace();
        while self.text.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        start..self.at
    }
}
