//! Capture of a program's stderr.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pegboard_core::redact::Redactor;
use pegboard_core::server_log::{LogStream, ServerLog};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum number of bytes kept.
const MAX_TAIL_BYTES: usize = 64 * 1024;
/// Maximum length of a line. The log keeps less, so that no part of a secret remains at the end of a line.
const MAX_LINE_BYTES: usize = 32 * 1024;
/// Maximum number of lines returned.
const MAX_TAIL_LINES: usize = 100;

/// Ring buffer of the last bytes of stderr.
#[derive(Debug, Default)]
pub(super) struct StderrTail {
    bytes: VecDeque<u8>,
    is_truncated: bool,
}

pub(super) fn lock(tail: &Mutex<StderrTail>) -> MutexGuard<'_, StderrTail> {
    tail.lock()
}

/// Reads stderr to its end, so that the program never blocks, and keeps the tail.
pub(super) async fn read_stderr(
    mut pipe: impl AsyncRead + Unpin,
    tail: Arc<Mutex<StderrTail>>,
    mut forwarder: LineForwarder,
) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(n_bytes @ 1..) = pipe.read(&mut chunk).await {
        lock(&tail).push(&chunk[..n_bytes]);
        forwarder.push(&chunk[..n_bytes]);
    }
}

/// Writes chunks to a log, line by line.
pub(super) struct LineForwarder {
    log: ServerLog,
    redactor: Redactor,
    /// Line without its end so far.
    partial_line: Vec<u8>,
}

impl LineForwarder {
    /// Creates a forwarder that redacts each line.
    pub(super) fn new(log: ServerLog, redactor: Redactor) -> Self {
        Self { log, redactor, partial_line: Vec::new() }
    }

    fn push(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.partial_line.len());
            self.partial_line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.partial_line);
        let line = self.redactor.text(line.trim_end_matches(['\r', '\n']));
        if !line.trim().is_empty() {
            self.log.write(LogStream::Stderr, None, &printable_line(&line));
        }
        self.partial_line.clear();
    }
}

/// Writes the last line, which may lack a line break.
impl Drop for LineForwarder {
    fn drop(&mut self) {
        self.end_line();
    }
}

impl StderrTail {
    fn push(&mut self, chunk: &[u8]) {
        let excess = (self.bytes.len() + chunk.len()).saturating_sub(MAX_TAIL_BYTES);
        self.is_truncated |= excess > 0;
        self.bytes.drain(..excess.min(self.bytes.len()));
        self.bytes.extend(&chunk[chunk.len().saturating_sub(MAX_TAIL_BYTES)..]);
    }

    /// Returns the last lines, with control characters made visible.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        let mut bytes = [front, back].concat();
        if self.is_truncated {
            // Skip the partial line, or at least the partial character.
            let line = bytes.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
            let character = || bytes.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(bytes.len());
            bytes.drain(..line.unwrap_or_else(character));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\r', '\n']);
        let lines: Vec<&str> = text.split('\n').collect();
        let output = &lines[lines.len().saturating_sub(MAX_TAIL_LINES)..];
        let output: Vec<String> =
            output.iter().map(|line| printable_line(line.trim_end_matches('\r'))).collect();
        output.join("\n")
    }
}

/// Returns a text with control characters made visible in every line.
pub(crate) fn printable(text: &str) -> String {
    text.lines().map(printable_line).collect::<Vec<_>>().join("\n")
}

/// Returns a line with control characters made visible. Colour codes are removed.
fn printable_line(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find('\x1b') {
        let (before, code) = rest.split_at(start);
        plain.push_str(before);
        rest = strip_colour_code(code).unwrap_or_else(|| {
            plain.push('\x1b');
            &code[1..]
        });
    }
    plain.push_str(rest);
    pegboard_core::printable::printable(&plain).into_owned()
}

/// Returns the text after a leading colour code, if there is one.
fn strip_colour_code(text: &str) -> Option<&str> {
    let code = text.strip_prefix("\x1b[")?;
    code.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | ':')).strip_prefix('m')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(chunks: &[&[u8]]) -> String {
        let mut tail = StderrTail::default();
        for chunk in chunks {
            tail.push(chunk);
        }
        assert!(tail.bytes.len() <= MAX_TAIL_BYTES);
        tail.text()
    }

    #[test]
    fn control_characters_are_made_visible() {
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
            assert_eq!(tail_of(&[written]), expected, "{written:?}");
        }
    }

    #[test]
    fn the_log_gets_whole_redacted_lines_however_they_are_chunked() {
        let log = ServerLog::default();
        let redactor = Redactor::new(["s3cret-s3cret"]);
        let mut forwarder = LineForwarder::new(log.clone(), redactor);
        let wide = "x".repeat(2 * MAX_LINE_BYTES);
        for chunk in ["one\ntw", "o\x1b[31m!\x1b[0m\r\n\n", "key s3cret-", "s3cret\n", &wide, "\n", "no end"]
        {
            forwarder.push(chunk.as_bytes());
        }
        drop(forwarder);
        let lines = log.last(usize::MAX);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts[..3], ["one", "two!", "key [redacted]"]);
        assert!(texts[3].starts_with("xxx") && texts[3].len() < MAX_LINE_BYTES);
        assert_eq!(texts[4..], ["no end"]);
    }

    #[test]
    fn only_the_last_whole_lines_are_kept() {
        let lines: Vec<String> = (0..100_000).map(|number| format!("line {number}\n")).collect();
        let chunks: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let text = tail_of(&chunks);
        assert_eq!(text.lines().count(), MAX_TAIL_LINES);
        assert!(text.starts_with("line 99900\n") && text.ends_with("line 99999"), "{text}");
    }

    #[test]
    fn an_overlong_line_is_cut_between_characters() {
        let text = tail_of(&["é".repeat(MAX_TAIL_BYTES).as_bytes(), b"!"]);
        assert_eq!(text, "é".repeat(MAX_TAIL_BYTES / 2 - 1) + "!");
        assert_eq!(tail_of(&[&vec![0x80; 2 * MAX_TAIL_BYTES]]), "");
    }
}
