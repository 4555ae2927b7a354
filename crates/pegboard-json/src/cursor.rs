//! Cursor over well-formed JSON: every byte is visited once, at any depth.

use std::ops::Range;

/// A position in JSON text.
pub(crate) struct JsonCursor<'t> {
    pub(crate) text: &'t [u8],
    pub(crate) at: usize,
}

impl<'t> JsonCursor<'t> {
    pub(crate) fn of(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Skips white space and returns the next byte; 0 at the end.
    pub(crate) fn peek(&mut self) -> u8 {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or_default()
    }

    /// Skips the next byte if it is `byte`.
    pub(crate) fn skip(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == byte;
        self.at += usize::from(is_there);
        is_there
    }

    /// Skips a string and returns its span, with the quotes.
    pub(crate) fn string(&mut self) -> Range<usize> {
        self.peek();
        let start = self.at;
        self.at += 1;
        while let Some(found) = memchr::memchr2(b'"', b'\\', self.text.get(self.at..).unwrap_or_default()) {
            self.at += found + 1;
            if self.text[self.at - 1] == b'"' {
                return start..self.at;
            }
            // The escaped character cannot end the string.
            self.at += 1;
        }
        self.at = self.text.len();
        start..self.at
    }

    /// Skips a number or literal and returns its span.
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
