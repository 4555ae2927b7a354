//! Capture of a program's stderr.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pegboard_core::redact::Redactor;
use pegboard_core::server_log::{LogStream, ServerLog};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::coop;
use tokio::time::{self, Instant};

/// Maximum number of bytes kept.
const MAX_TAIL_BYTES: usize = 64 * 1024;
/// Maximum length of a line. The log keeps less, so that no part of a secret remains at the end of a line.
const MAX_LINE_BYTES: usize = 32 * 1024;
/// Maximum number of lines returned.
const MAX_TAIL_LINES: usize = 100;
/// Size of a read: the capacity of a pipe.
const CHUNK_BYTES: usize = 64 * 1024;
/// Time after which a rate limit starts anew.
const RATE_WINDOW: Duration = Duration::from_millis(100);
/// Maximum number of bytes that are read in a window without a pause.
const MAX_UNPACED_BYTES: usize = 1024 * 1024;
/// Pause after each read beyond that. A program can still write some 60 MB/s.
const PACE: Duration = Duration::from_millis(1);
/// Maximum number of bytes that are logged in a window.
const MAX_LOGGED_BYTES: usize = 128 * 1024;
/// Cost of a logged line beside its length.
const LINE_OVERHEAD: usize = 128;

/// Ring buffer of the last bytes of stderr.
#[derive(Debug, Default)]
pub(super) struct StderrTail {
    bytes: VecDeque<u8>,
    is_truncated: bool,
}

pub(super) fn lock(tail: &Mutex<StderrTail>) -> MutexGuard<'_, StderrTail> {
    tail.lock()
}

/// Reads stderr to its end and keeps the tail. A flood slows down the program that writes it, and nothing else.
pub(super) async fn read_stderr(
    mut pipe: impl AsyncRead + Unpin,
    tail: Arc<Mutex<StderrTail>>,
    mut forwarder: LineForwarder,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut flow = RateLimit::new(MAX_UNPACED_BYTES);
    while let Ok(n_bytes @ 1..) = pipe.read(&mut chunk).await {
        let now = Instant::now();
        lock(&tail).push(&chunk[..n_bytes]);
        forwarder.push(&chunk[..n_bytes], now);
        if flow.take(n_bytes, now) {
            coop::consume_budget().await;
        } else {
            time::sleep(PACE).await;
        }
    }
}

/// Limits an amount in each window of time.
struct RateLimit {
    max: usize,
    used: usize,
    since: Option<Instant>,
}

impl RateLimit {
    fn new(max: usize) -> Self {
        Self { max, used: 0, since: None }
    }

    /// Takes an amount; returns `false` once the limit of this window is exceeded.
    fn take(&mut self, amount: usize, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= RATE_WINDOW) {
            (self.used, self.since) = (0, Some(now));
        }
        self.used = self.used.saturating_add(amount);
        self.used <= self.max
    }
}

/// Writes chunks to a log, line by line. Lines beyond a rate are dropped and counted.
pub(super) struct LineForwarder {
    log: ServerLog,
    redactor: Redactor,
    /// Line without its end so far.
    partial_line: Vec<u8>,
    rate: RateLimit,
    /// Number of lines dropped since the last one that was written.
    n_dropped: u64,
}

impl LineForwarder {
    /// Creates a forwarder that redacts each line.
    pub(super) fn new(log: ServerLog, redactor: Redactor) -> Self {
        let rate = RateLimit::new(MAX_LOGGED_BYTES);
        Self { log, redactor, partial_line: Vec::new(), rate, n_dropped: 0 }
    }

    fn push(&mut self, mut chunk: &[u8], now: Instant) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            let (line, rest) = chunk.split_at(end + 1);
            if self.rate.take(self.partial_line.len() + line.len() + LINE_OVERHEAD, now) {
                self.extend_line(line);
                self.end_line();
            } else {
                self.partial_line.clear();
                // The rate stays exceeded for this chunk, so its lines are only counted.
                let n_lines = memchr::memchr_iter(b'\n', rest).count() as u64;
                self.n_dropped += 1 + n_lines;
                chunk = memchr::memrchr(b'\n', rest).map_or(rest, |end| &rest[end + 1..]);
                break;
            }
            chunk = rest;
        }
        self.extend_line(chunk);
    }

    /// Appends to the line, up to its maximum length.
    fn extend_line(&mut self, text: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.partial_line.len());
        self.partial_line.extend_from_slice(&text[..text.len().min(room)]);
    }

    fn end_line(&mut self) {
        self.report_dropped();
        let line = String::from_utf8_lossy(&self.partial_line);
        let line = self.redactor.text(line.trim_end_matches(['\r', '\n']));
        if !line.trim().is_empty() {
            self.log.write(LogStream::Stderr, None, &printable_line(&line));
        }
        self.partial_line.clear();
    }

    /// Writes the number of dropped lines, if there are any.
    fn report_dropped(&mut self) {
        let n_dropped = std::mem::take(&mut self.n_dropped);
        if n_dropped > 0 {
            let report = format!("dropped {n_dropped} lines of standard error: too many at once");
            self.log.write(LogStream::Supervisor, None, &report);
        }
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
            forwarder.push(chunk.as_bytes(), Instant::now());
        }
        drop(forwarder);
        let lines = log.last(usize::MAX);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts[..3], ["one", "two!", "key [redacted]"]);
        assert!(texts[3].starts_with("xxx") && texts[3].len() < MAX_LINE_BYTES);
        assert_eq!(texts[4..], ["no end"]);
    }

    #[test]
    fn lines_beyond_the_rate_are_dropped_and_counted() {
        let log = ServerLog::default();
        let mut forwarder = LineForwarder::new(log.clone(), Redactor::new([""; 0]));
        let started = Instant::now();
        let chunk = format!("{}\n", "x".repeat(1023)).repeat(64);
        let mut n_lines = 0;
        for _ in 0..100 {
            forwarder.push(chunk.as_bytes(), started);
            n_lines += 64;
        }
        forwarder.push(b"the rest of a line\nlast", started);
        n_lines += 1;
        let n_logged = log.last(usize::MAX).len() as u64;
        assert!(n_logged > 50 && n_logged < 200, "{n_logged} lines were logged");
        // In the next window there is room again.
        forwarder.push(b" line\n", started + RATE_WINDOW);
        let lines = log.last(2);
        let expected = format!("dropped {} lines of standard error: too many at once", n_lines - n_logged);
        assert_eq!([lines[0].text.as_str(), lines[1].text.as_str()], [expected.as_str(), "last line"]);
        // The last ones are reported at the end.
        forwarder.push(chunk.repeat(10).as_bytes(), started + RATE_WINDOW);
        drop(forwarder);
        assert!(log.last(1)[0].text.starts_with("dropped "), "{:?}", log.last(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_paced_and_a_burst_is_not() {
        for (n_bytes, expected) in [(MAX_UNPACED_BYTES, 0), (MAX_UNPACED_BYTES + 50 * CHUNK_BYTES, 50)] {
            let (mut writer, reader) = tokio::io::duplex(CHUNK_BYTES);
            let tail = Arc::default();
            let forwarder = LineForwarder::new(ServerLog::default(), Redactor::new([""; 0]));
            let reading = tokio::spawn(read_stderr(reader, Arc::clone(&tail), forwarder));
            let started_at = Instant::now();
            let text = [vec![b'x'; n_bytes - 4], b"\nend".to_vec()].concat();
            tokio::io::AsyncWriteExt::write_all(&mut writer, &text).await.unwrap();
            drop(writer);
            reading.await.unwrap();
            let n_pauses = started_at.elapsed().as_millis();
            assert!(n_pauses.abs_diff(expected) <= 2, "{n_pauses} pauses for {n_bytes} bytes");
            assert!(lock(&tail).text().ends_with("end"));
        }
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
