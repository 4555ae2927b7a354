//! Standard error that never blocks.

use std::io::{self, Write};

use pegboard_core::printable::printable;

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

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a printable line to standard error without blocking.
pub fn write_stderr(text: &str) {
    // There is no other place to report the error.
    let _ = Stderr::default().write_all(format!("{}\n", printable(text)).as_bytes());
}
