//! Standard error that never blocks.

use std::io::{self, Write};

use pegboard_core::printable::printable;

/// Number of bytes that a writable pipe accepts without blocking.
const CHUNK_BYTES: usize = 512;

/// Standard error. Lines are dropped while the pipe is full: blocking here would stall all calls.
#[derive(Debug, Default)]
pub struct Stderr {
    /// Set after a wait timed out, until the pipe is writable again.
    is_stuck: bool,
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
        let soon = Timespec { tv_sec: 0, tv_nsec: if self.is_stuck { 0 } else { 100_000_000 } };
        let n_ready = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&soon))?;
        self.is_stuck = n_ready == 0;
        Ok(n_ready > 0)
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
