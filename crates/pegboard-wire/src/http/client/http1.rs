//! The client side of HTTP/1.1 on one connection, polled by its request.
//!
//! A request is one write of prepared bytes, and a response usually one read. Framing is strict: a response that two
//! readers could delimit differently is an error, or at least the last one of its connection.

mod body;
mod head;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use crate::http::client::request_headers::RequestHeaders;
use crate::message::encode;

pub(super) use body::BodyReader;
pub(super) use head::ResponseHead;

/// Space for a read, which holds several small responses.
const READ_BYTES: usize = 8 * 1024;

/// Maximum space for a read of a long body of unknown length.
const MAX_READ_BYTES: usize = 256 * 1024;

/// Minimum space for a read; with less, more is allocated.
const MIN_READ_BYTES: usize = 1024;

/// Maximum size of a body that is appended to the head of its request, so that both are one slice.
const MAX_COPIED_BODY_BYTES: usize = 4 * 1024;

/// A request as it is sent.
#[derive(Clone, Debug)]
pub(super) struct RequestBytes {
    /// Head, and a small body.
    head: Vec<u8>,
    /// A large body.
    body: Bytes,
}

impl RequestBytes {
    /// Encodes a request in origin form. The target and the headers are valid on the wire.
    pub(super) fn new(method: &Method, target: &str, headers: &RequestHeaders<'_>, body: Bytes) -> Self {
        const LENGTH_BYTES: usize = 64;
        let n_copied = if body.len() <= MAX_COPIED_BODY_BYTES { body.len() } else { 0 };
        let mut head = Vec::with_capacity(target.len() + headers.n_bytes() + LENGTH_BYTES + n_copied);
        head.put_slice(method.as_str().as_bytes());
        head.put_slice(b" ");
        head.put_slice(target.as_bytes());
        head.put_slice(b" HTTP/1.1\r\n");
        headers.encode(&mut head);
        if !body.is_empty() {
            put_content_length(body.len(), &mut head);
        }
        head.put_slice(b"\r\n");
        if n_copied == 0 {
            return Self { head, body };
        }
        head.put_slice(&body);
        Self { head, body: Bytes::new() }
    }

    fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Writes what is left after `n_written` bytes.
    fn poll_write(
        &self,
        n_written: usize,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(stream);
        match self.head.get(n_written..) {
            Some(head) if self.body.is_empty() => stream.poll_write(context, head),
            Some(head) => {
                stream.poll_write_vectored(context, &[IoSlice::new(head), IoSlice::new(&self.body)])
            }
            None => stream.poll_write(context, &self.body[n_written - self.head.len()..]),
        }
    }
}

/// A request without a response.
#[derive(Debug)]
pub(super) struct ExchangeError {
    pub(super) error: io::Error,
    /// `true` if no byte of the request was accepted for sending.
    pub(super) is_unsent: bool,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Http1Connection {
    stream: TcpStream,
    /// Bytes that were read and belong to no finished response.
    input: BytesMut,
    /// Space for the next read.
    read_bytes: usize,
    /// `true` if the input shares memory with a long body.
    is_large: bool,
}

impl Http1Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, input: BytesMut::new(), read_bytes: READ_BYTES, is_large: false }
    }

    /// Returns `true` if nothing has arrived since the last response, not even the end of the connection. Usually this
    /// takes no system call, because the socket would have reported that it is readable.
    pub(super) fn is_idle(&mut self, context: &mut Context<'_>) -> bool {
        while self.input.is_empty() {
            match self.stream.poll_read_ready(context) {
                Poll::Pending => return true,
                Poll::Ready(Err(_)) => return false,
                // Readiness may be left from the last read; if so, this clears it.
                Poll::Ready(Ok(())) => match self.stream.try_read(&mut [0]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return false,
                },
            }
        }
        false
    }

    /// Sends a request and reads the head of its response.
    pub(super) async fn exchange(&mut self, request: &RequestBytes) -> Result<ResponseHead, ExchangeError> {
        let (mut n_written, mut n_interim) = (0, 0);
        poll_fn(|context| self.poll_exchange(request, &mut n_written, &mut n_interim, context))
            .await
            .map_err(|error| ExchangeError { error, is_unsent: n_written == 0 })
    }

    fn poll_exchange(
        &mut self,
        request: &RequestBytes,
        n_written: &mut usize,
        n_interim: &mut usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<ResponseHead>> {
        while *n_written < request.len() {
            match request.poll_write(*n_written, &mut self.stream, context) {
                Poll::Ready(Ok(n_bytes)) if n_bytes > 0 => *n_written += n_bytes,
                Poll::Ready(Ok(_)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Err(error)) if *n_written == 0 => return Poll::Ready(Err(error)),
                // A server may reject a request before it has read all of it.
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        loop {
            if let Some(mut head) = ResponseHead::take(&mut self.input, n_interim)? {
                head.is_last |= *n_written < request.len();
                return Poll::Ready(Ok(head));
            }
            if ready!(self.poll_read(context))? == 0 {
                return Poll::Ready(Err(io::Error::other("the connection was closed before the response")));
            }
        }
    }

    /// Reads the next part of a body; `None` at its end. A body with a length comes as a whole, unless it is very
    /// long or a stream of events.
    pub(super) fn poll_body(
        &mut self,
        body: &mut BodyReader,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(part) = body.next_part(&mut self.input)? {
                return Poll::Ready(Ok(Some(part)));
            }
            if body.is_finished() {
                return Poll::Ready(Ok(None));
            }
            let n_missing = body.missing_bytes(&self.input);
            self.is_large |= n_missing > READ_BYTES;
            self.input.reserve(n_missing);
            if ready!(self.poll_read(context))? == 0 {
                body.end_of_input()?;
            }
        }
    }

    /// Returns `true` if the connection can take another request after a response that has been read.
    pub(super) fn is_reusable(&mut self) -> bool {
        let is_reusable = self.input.is_empty();
        if self.is_large || self.read_bytes > READ_BYTES {
            // An idle connection must not keep the memory of its last response.
            (self.input, self.read_bytes, self.is_large) = (BytesMut::new(), READ_BYTES, false);
        }
        is_reusable
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < MIN_READ_BYTES {
            self.input.reserve(self.read_bytes);
        }
        let space = self.input.capacity() - self.input.len();
        let n_read = ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.input))?;
        if n_read == space {
            self.read_bytes = (2 * self.read_bytes).min(MAX_READ_BYTES);
        }
        Poll::Ready(Ok(n_read))
    }
}

fn put_content_length(length: usize, head: &mut Vec<u8>) {
    head.put_slice(b"content-length: ");
    encode::number(i64::try_from(length).unwrap_or(i64::MAX), head);
    head.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
