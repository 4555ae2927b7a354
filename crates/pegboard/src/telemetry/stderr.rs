//! Standard error that never blocks.

use std::io::{self, Write};

use pegboard_core::printable::printable;

use super::live_lines::{self, LiveLine};

/// Time that a write may wait for a full pipe, and the minimum time between two such waits: a reader that is a little
/// slower than the log must not stall all calls for long.
#[cfg(unix)]
const WAIT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
#[cfg(unix)]
const WAIT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Number of bytes that a writable pipe accepts without blocking.
const CHUNK_BYTES: usize = 512;

/// Standard error. Lines are dropped while the pipe is full: blocking here would stall all calls.
#[derive(Debug, Default)]
pub struct Stderr {
    /// Time of the last wait for the pipe.
    waited_at: Option<std::time::Instant>,
    n_lost: u64,
}

impl Stderr {
    fn write_chunk(&mut self, chunk: &[u8]) -> io::Result<bool> {
        if !self.has_room()? {
            return Ok(false);
        }
        io::stderr().write_all(chunk)?;
        Ok(true)
    }

    /// Returns `true` if a chunk can be written, now or after a short wait.
    #[cfg(unix)]
    fn has_room(&mut self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let stderr = io::stderr();
        let is_ready = |timeout| {
            poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&timeout)).map(|n_ready| n_ready > 0)
        };
        if is_ready(Timespec { tv_sec: 0, tv_nsec: 0 })? {
            return Ok(true);
        }
        if self.waited_at.is_some_and(|waited_at| waited_at.elapsed() < WAIT_INTERVAL) {
            return Ok(false);
        }
        self.waited_at = Some(std::time::Instant::now());
        Ok(is_ready(WAIT)?)
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "elsewhere it may fail")]
    fn has_room(&mut self) -> io::Result<bool> {
        Ok(true)
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut live = live_lines::lock();
        if live.is_empty() {
            return self.write_text(bytes);
        }
        // The text is printable: log lines and reports are made so.
        let text = live.above(&String::from_utf8_lossy(bytes), stderr_columns());
        self.write_text(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stderr {
    fn write_text(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.n_lost > 0 {
            let lost = format!("… {} lines were dropped: the reader is too slow\n", self.n_lost);
            if !self.write_chunk(lost.as_bytes())? {
                self.n_lost += 1;
                return Ok(bytes.len());
            }
            self.n_lost = 0;
        }
        for chunk in bytes.chunks(CHUNK_BYTES) {
            if !self.write_chunk(chunk)? {
                self.n_lost += 1;
                break;
            }
        }
        Ok(bytes.len())
    }
}

/// Shows lines at the bottom of the terminal, in place of the previous ones. Each must fit the terminal, and all of them
/// with a line to spare. Everything else that is written here goes above them.
pub fn set_live_lines(lines: Vec<LiveLine>) {
    let mut live = live_lines::lock();
    if let Some(text) = live.replace(lines, stderr_columns()) {
        // There is no other place to report the error.
        let _ = Stderr::default().write_text(text.as_bytes());
    }
}

/// Prints a text of whole lines, with color codes, above the live lines. Returns `false`, and prints nothing, if there
/// are none.
pub fn write_above_live_lines(text: &str) -> bool {
    let mut live = live_lines::lock();
    if live.is_empty() {
        return false;
    }
    let text = live.above(text, stderr_columns());
    // There is no other place to report the error.
    let _ = Stderr::default().write_text(text.as_bytes());
    true
}

/// Notes that the user has typed a line on the terminal.
pub fn line_was_typed() {
    live_lines::lock().line_was_typed();
}

/// Leaves the lines on the terminal as they are; later text goes below them.
pub fn leave_live_lines() {
    live_lines::lock().leave();
}

fn stderr_columns() -> usize {
    stderr_size().map_or(usize::MAX, |(columns, _)| columns)
}

/// Returns the number of columns and rows of the terminal on standard error, if it is one and they are known.
#[cfg(unix)]
pub fn stderr_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns > 0 && rows > 0).then_some((columns, rows))
}

/// The size of a terminal is unknown on this platform.
#[cfg(not(unix))]
pub fn stderr_size() -> Option<(usize, usize)> {
    None
}

/// Writes a printable line to standard error without blocking.
pub fn write_stderr(text: &str) {
    // There is no other place to report the error.
    let _ = Stderr::default().write_all(format!("{}\n", printable(text)).as_bytes());
}
