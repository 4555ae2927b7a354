//! A stream of which the beginning was read before.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::server::timed_stream::TimedStream;

/// A stream, and what was read from it ahead of its reader. An upgraded connection consists of one.
pub struct ReadAhead<S> {
    ahead: Chain<Bytes, Bytes>,
    stream: TimedStream<S>,
}

impl<S> ReadAhead<S> {
    pub(in crate::http::server) fn new(ahead: [Bytes; 2], stream: TimedStream<S>) -> Self {
        let [first, second] = ahead;
        Self { ahead: first.chain(second), stream }
    }

    /// Returns what was read ahead, and the stream.
    pub fn into_parts(mut self) -> (Bytes, S) {
        (self.ahead.copy_to_bytes(self.ahead.remaining()), self.stream.into_inner())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.has_remaining() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        while self.ahead.has_remaining() && buffer.remaining() > 0 {
            let chunk = self.ahead.chunk();
            let n_bytes = chunk.len().min(buffer.remaining());
            buffer.put_slice(&chunk[..n_bytes]);
            self.ahead.advance(n_bytes);
        }
        if !self.ahead.has_remaining() {
            // The connection must not keep its memory.
            self.ahead = Bytes::new().chain(Bytes::new());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
