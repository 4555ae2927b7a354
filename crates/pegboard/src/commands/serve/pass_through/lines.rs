//! Lines of a byte stream, taken as many at a time as have arrived.

use std::io;

use axum::body::Bytes;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Capacity that is available to each read.
const READ_BYTES: usize = 64 * 1024;

/// Reads a stream in chunks of whole lines.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: R,
    buffer: BytesMut,
    /// Number of bytes that are known to contain no line feed.
    n_scanned: usize,
    /// Set while the start of the current line was taken already.
    is_mid_line: bool,
    /// Set at the end of the stream.
    has_ended: bool,
    max_line: usize,
}

/// Whole lines, or parts of a line that is too long to wait for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineChunk {
    pub(super) bytes: Bytes,
    /// Set if the chunk begins within a line.
    pub(super) is_continuation: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines; parts of one that is longer than `max_line` are not held back.
    pub(super) fn new(reader: R, max_line: usize) -> Self {
        Self { reader, buffer: BytesMut::new(), n_scanned: 0, is_mid_line: false, has_ended: false, max_line }
    }

    /// Returns the lines that have arrived. Waits for at least one; `None` at the end of the stream. Nothing is lost
    /// if the future is dropped.
    pub(super) async fn next(&mut self) -> io::Result<Option<LineChunk>> {
        loop {
            if let Some(chunk) = self.take() {
                return Ok(Some(chunk));
            }
            self.buffer.reserve(READ_BYTES);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                self.has_ended = true;
                return Ok(self.take());
            }
        }
    }

    /// Waits until a line has arrived, and leaves it. Returns `false` at the end of the stream.
    pub(super) async fn arrived(&mut self) -> bool {
        loop {
            if memchr::memchr(b'\n', &self.buffer).is_some() || self.buffer.len() > self.max_line {
                return true;
            }
            self.buffer.reserve(READ_BYTES);
            match self.reader.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => {
                    self.has_ended = true;
                    return !self.buffer.is_empty();
                }
                Ok(_) => {}
            }
        }
    }

    /// Takes the lines that have arrived. At the end of the stream the last one may lack a line feed.
    pub(super) fn take(&mut self) -> Option<LineChunk> {
        let last = memchr::memrchr(b'\n', &self.buffer[self.n_scanned..]);
        let n_taken = match last {
            Some(at) => self.n_scanned + at + 1,
            None if self.buffer.len() > self.max_line => self.buffer.len(),
            None if self.has_ended && !self.buffer.is_empty() => self.buffer.len(),
            None => {
                self.n_scanned = self.buffer.len();
                return None;
            }
        };
        self.n_scanned = 0;
        let is_continuation = self.is_mid_line;
        if !self.has_ended {
            self.is_mid_line = last.is_none();
        }
        Some(LineChunk { bytes: self.buffer.split_to(n_taken).freeze(), is_continuation })
    }

    /// Returns `true` if a part of a line was taken, and its end has not arrived.
    pub(super) fn is_mid_line(&self) -> bool {
        self.is_mid_line
    }
}

impl LineChunk {
    /// Splits the chunk into the end of a line that began earlier, and the lines that begin in it, each with its line
    /// feed.
    pub(super) fn split(&self) -> (Bytes, impl Iterator<Item = Bytes>) {
        let mut rest = self.bytes.clone();
        let continuation = if self.is_continuation { rest.split_to(line_end(&rest)) } else { Bytes::new() };
        let lines = std::iter::from_fn(move || {
            let end = line_end(&rest);
            (end > 0).then(|| rest.split_to(end))
        });
        (continuation, lines)
    }
}

/// Returns the end of the first line.
fn line_end(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_last_line_without_line_feed_arrives_once() {
        let mut reader = LineReader::new(&b"a\nb"[..], 8);
        assert!(reader.arrived().await);
        let mut taken = Vec::new();
        while reader.arrived().await {
            taken.extend(std::iter::from_fn(|| reader.take()).map(|chunk| chunk.bytes));
        }
        assert_eq!(taken, ["a\n", "b"]);
    }

    #[tokio::test]
    async fn lines_are_taken_whole_and_long_ones_in_parts() {
        let (mut peer, local) = tokio::io::duplex(1024);
        let mut reader = LineReader::new(local, 8);
        let mut taken = Vec::new();
        for (written, n_chunks) in
            [("a\nbc\nd", 1), ("e\n", 1), ("too long ", 1), ("for it\nf\n", 1), ("end", 0)]
        {
            peer.write_all(written.as_bytes()).await.unwrap();
            for _ in 0..n_chunks {
                taken.push(reader.next().await.unwrap().unwrap());
            }
        }
        drop(peer);
        taken.push(reader.next().await.unwrap().unwrap());
        assert_eq!(reader.next().await.unwrap(), None);
        let shown: Vec<String> = taken
            .iter()
            .map(|chunk| {
                let (continuation, lines) = chunk.split();
                format!("{continuation:?} {:?}", lines.collect::<Vec<_>>())
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
        b"" [b"a\n", b"bc\n"]
        b"" [b"de\n"]
        b"" [b"too long "]
        b"for it\n" [b"f\n"]
        b"" [b"end"]
        "#);
    }
}
