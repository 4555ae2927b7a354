//! The end of what a program wrote to its standard error.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pegboard_core::redact::Redactor;
use pegboard_core::server_log::{ServerLog, Stream};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is kept.
const KEPT_BYTES: usize = 64 * 1024;
/// How much of a line is looked at; a log keeps less, so that no half of a secret is left at the end of it.
const MAX_LINE_BYTES: usize = 32 * 1024;
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
pub(super) async fn follow(mut pipe: impl AsyncRead + Unpin, tail: Arc<Mutex<Tail>>, mut heard: Heard) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(n_bytes @ 1..) = pipe.read(&mut chunk).await {
        lock(&tail).push(&chunk[..n_bytes]);
        heard.push(&chunk[..n_bytes]);
    }
}

/// Writes what comes into a log, line by line.
pub(super) struct Heard {
    log: ServerLog,
    redactor: Redactor,
    /// A line of which the end has yet to come.
    begun: Vec<u8>,
}

impl Heard {
    /// Writes into this log, without what is to be blotted out.
    pub(super) fn new(log: ServerLog, redactor: Redactor) -> Self {
        Self { log, redactor, begun: Vec::new() }
    }

    fn push(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.begun);
        let line = self.redactor.text(line.trim_end_matches(['\r', '\n']));
        if !line.trim().is_empty() {
            self.log.write(Stream::Stderr, None, &neutralised(&line));
        }
        self.begun.clear();
    }
}

/// The last line may have no end.
impl Drop for Heard {
    fn drop(&mut self) {
        self.end_line();
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

/// A text of several lines in which every character is seen and none does anything.
pub(crate) fn shown(text: &str) -> String {
    text.lines().map(neutralised).collect::<Vec<_>>().join("\n")
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
    fn a_log_has_whole_lines_without_secrets_however_they_come() {
        let log = ServerLog::default();
        let redactor = Redactor::new(["s3cret-s3cret"]);
        let mut heard = Heard::new(log.clone(), redactor);
        let wide = "x".repeat(2 * MAX_LINE_BYTES);
        for chunk in ["one\ntw", "o\x1b[31m!\x1b[0m\r\n\n", "key s3cret-", "s3cret\n", &wide, "\n", "no end"]
        {
            heard.push(chunk.as_bytes());
        }
        drop(heard);
        let lines = log.last(usize::MAX);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts[..3], ["one", "two!", "key [redacted]"]);
        assert!(texts[3].starts_with("xxx") && texts[3].len() < MAX_LINE_BYTES);
        assert_eq!(texts[4..], ["no end"]);
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
