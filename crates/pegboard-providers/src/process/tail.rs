//! The end of what a program wrote to its standard error.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is kept.
const KEPT_BYTES: usize = 64 * 1024;
/// How much of it is shown.
const SHOWN_LINES: usize = 100;

/// The last bytes that came.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

pub(super) fn lock(tail: &Mutex<Tail>) -> MutexGuard<'_, Tail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads everything, so that the writer never has to wait, and keeps the end.
pub(super) async fn follow(mut pipe: impl AsyncRead + Unpin, tail: Arc<Mutex<Tail>>) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(n_bytes @ 1..) = pipe.read(&mut chunk).await {
        lock(&tail).push(&chunk[..n_bytes]);
    }
}

impl Tail {
    fn push(&mut self, chunk: &[u8]) {
        let excess = (self.bytes.len() + chunk.len()).saturating_sub(KEPT_BYTES);
        self.is_cut |= excess > 0;
        self.bytes.drain(..excess.min(self.bytes.len()));
        self.bytes.extend(&chunk[chunk.len().saturating_sub(KEPT_BYTES)..]);
    }

    /// The last lines, fit to be shown.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        let mut bytes = [front, back].concat();
        if self.is_cut {
            // Half a line, or at least half a character.
            let line = bytes.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
            let character = || bytes.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(bytes.len());
            bytes.drain(..line.unwrap_or_else(character));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\r', '\n']);
        let lines: Vec<&str> = text.split('\n').collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        let shown: Vec<String> = shown.iter().map(|line| neutralised(line.trim_end_matches('\r'))).collect();
        shown.join("\n")
    }
}

/// A line in which every character is seen and none does anything. Colours are left out.
fn neutralised(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = after_colour(rest) {
            rest = after;
            continue;
        }
        match character {
            '\t' => shown.push(character),
            '\0'..='\x1f' => shown.extend(char::from_u32(0x2400 + u32::from(character))),
            '\x7f' => shown.push('\u{2421}'),
            _ if is_unseen(character) => {
                write!(shown, "{}", character.escape_unicode()).expect("a string takes every text");
            }
            _ => shown.push(character),
        }
        rest = &rest[character.len_utf8()..];
    }
    shown
}

/// What follows the code that changes the colour, if the text begins with one.
fn after_colour(text: &str) -> Option<&str> {
    let code = text.strip_prefix("\x1b[")?;
    code.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | ':')).strip_prefix('m')
}

/// Whether a character cannot be seen, or changes how its neighbours are. Joiners are part of words.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(chunks: &[&[u8]]) -> String {
        let mut tail = Tail::default();
        for chunk in chunks {
            tail.push(chunk);
        }
        assert!(tail.bytes.len() <= KEPT_BYTES);
        tail.text()
    }

    #[test]
    fn every_character_is_seen_and_none_does_anything() {
        for (written, expected) in [
            (&b""[..], ""),
            (b"plain\r\nlines\n", "plain\nlines"),
            (b"\x1b[1;31merror\x1b[0m: no", "error: no"),
            (b"\x1b]0;title\x07\x1b[2J\x1b[", "␛]0;title␇␛[2J␛["),
            (b"50%\r100%", "50%␍100%"),
            (b"tab\there\x7f\0", "tab\there␡␀"),
            ("a\u{202e}b\u{9b}c\u{e0041}".as_bytes(), r"a\u{202e}b\u{9b}c\u{e0041}"),
            ("👩\u{200d}🚀".as_bytes(), "👩\u{200d}🚀"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(shown(&[written]), expected, "{written:?}");
        }
    }

    #[test]
    fn only_the_end_is_kept_from_the_beginning_of_a_line() {
        let lines: Vec<String> = (0..100_000).map(|number| format!("line {number}\n")).collect();
        let chunks: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let text = shown(&chunks);
        assert_eq!(text.lines().count(), SHOWN_LINES);
        assert!(text.starts_with("line 99900\n") && text.ends_with("line 99999"), "{text}");
    }

    #[test]
    fn one_line_that_is_too_long_is_cut_between_characters() {
        let text = shown(&["é".repeat(KEPT_BYTES).as_bytes(), b"!"]);
        assert_eq!(text, "é".repeat(KEPT_BYTES / 2 - 1) + "!");
        assert_eq!(shown(&[&vec![0x80; 2 * KEPT_BYTES]]), "");
    }
}
