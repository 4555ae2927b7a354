//! HTTP/1.1 on a connection that carries messages to an MCP endpoint.
//!
//! Only what every message of a client needs is read here: a POST with a small body of known length. With the first
//! request that is anything else, or that could be read in two ways, hyper takes over the connection, together with what
//! was read of that request.

mod head;
mod read_ahead;

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::time::{self, Sleep};
use tokio_util::io::poll_read_buf;

use super::client_socket::ClientSocket;
use super::reply::JSON;
use super::sessions::CrowdMember;
use super::timed_stream::TimedStream;
use super::{DirectRoutes, HttpRejection, HttpReply, HttpServerEndpoint, ReplyBody, ServedConnection};
use crate::http::received_headers::ReceivedHeaders;
use crate::server::ArrivingRequest;
use crate::turns::{Turn, take_turn};
use head::{BodyFraming, RequestHead, encode_head, head_length};

pub use read_ahead::ReadAhead;

/// Space for a read, which holds most requests.
const READ_BYTES: usize = 2 * 1024;

/// Minimum space for a read; with less, more is allocated.
const MIN_READ_BYTES: usize = 1024;

/// Maximum size of a head.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Time in which a head must be complete: that of the first request since the client connected, and every other since its
/// first byte. On a connection that hyper has taken over, every other since the response before it, so that an idle one
/// ends: hyper serves the clients without access, too.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a body. Larger ones count against the memory for requests while they arrive.
const MAX_BODY_BYTES: usize = 32 * 1024;

/// Time in which a body must follow its head. After that hyper waits, and the endpoint limits the time.
const BODY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of bytes that are read while a request is in progress: the client may send the next one at once.
const MAX_PIPELINED_BYTES: usize = 8 * 1024;

/// Interval at which the end of a connection is looked for behind more bytes than that.
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of a body, or of a part of one, that is appended to what is before it, so that both are one slice.
const MAX_COPIED_BODY_BYTES: usize = 4 * 1024;

/// Size from which on the parts of a streamed body are written before more are taken.
const MAX_GATHERED_BYTES: usize = 16 * 1024;

/// Serves a connection until it ends, or until a request is to be served by hyper: then the result is the connection
/// as it was before that request.
pub(super) async fn serve<S>(
    stream: TimedStream<S>,
    direct: &dyn DirectRoutes,
    connection: &ServedConnection,
) -> io::Result<Option<ReadAhead<S>>>
where
    S: ClientSocket,
{
    let mut client = ClientStream { stream, input: BytesMut::new(), next_look: None };
    let mut may_wait = false;
    // Nothing is known about the client of the first request: it may be one of a crowd.
    let mut may_be_crowd = true;
    loop {
        let head = match client.read_head(may_wait).await? {
            HeadRead::Complete(head) => head,
            HeadRead::Unusual => return Ok(Some(client.hand_over(Bytes::new()))),
            HeadRead::Closed => return Ok(None),
        };
        let mut turn = None;
        if may_be_crowd {
            turn = Some(Box::pin(take_turn()).await);
        }
        let message = client.read_message(&head, (direct, connection), &mut turn).await?;
        let Some(message) = message else {
            if head::is_ambiguous(&head) {
                drop(turn);
                client.write(ambiguous_framing()).await?;
                return Ok(None);
            }
            return Ok(Some(client.hand_over(head)));
        };
        drop(head);
        let MessageRequest { endpoint, uri, headers, body } = message;
        // Boxed, so that an idle connection needs little memory.
        let mut handling = Box::pin(async move { endpoint.handle_message(uri, headers, body).await });
        let reply = poll_fn(|context| {
            let polled = handling.as_mut().poll(context);
            drop(turn.take());
            match polled {
                Poll::Ready(reply) => Poll::Ready(Some(reply)),
                Poll::Pending => client.poll_closed(context).map(|()| None),
            }
        });
        let Some(reply) = reply.await else { return Ok(None) };
        drop(handling);
        may_be_crowd = reply.extensions().get::<CrowdMember>().is_some();
        client.write(reply).await?;
        may_wait = true;
    }
}

/// The connection to a client, with what was read of its next request.
struct ClientStream<S> {
    stream: TimedStream<S>,
    input: BytesMut,
    /// Time at which a client that has sent too much is looked for again.
    next_look: Option<Pin<Box<Sleep>>>,
}

/// A message to an endpoint.
struct MessageRequest {
    endpoint: HttpServerEndpoint,
    uri: Uri,
    headers: ReceivedHeaders,
    body: Bytes,
}

enum HeadRead {
    Complete(Bytes),
    /// Not for this module.
    Unusual,
    /// The client closed the connection.
    Closed,
}

impl<S: ClientSocket> ClientStream<S> {
    /// Reads up to the end of the next head, and removes it from the input. With `may_wait`, the client may begin it at any
    /// time.
    async fn read_head(&mut self, may_wait: bool) -> io::Result<HeadRead> {
        if may_wait {
            if self.input.is_empty() && self.read(0).await? == 0 {
                return Ok(HeadRead::Closed);
            }
            // Mostly the whole request has arrived.
            if let Some(length) = head_length(&self.input) {
                return Ok(HeadRead::Complete(self.input.split_to(length).freeze()));
            }
        }
        let reading = time::timeout(HEAD_TIMEOUT, Box::pin(self.read_rest_of_head()));
        reading.await.unwrap_or(Ok(HeadRead::Closed))
    }

    async fn read_rest_of_head(&mut self) -> io::Result<HeadRead> {
        loop {
            if let Some(length) = head_length(&self.input) {
                return Ok(HeadRead::Complete(self.input.split_to(length).freeze()));
            }
            if self.input.len() >= MAX_HEAD_BYTES {
                return Ok(HeadRead::Unusual);
            }
            if self.read(0).await? == 0 {
                return Ok(HeadRead::Closed);
            }
        }
    }

    /// Reads the rest of a message to an endpoint; `None` if hyper is to read the request. The turn of the request ends
    /// if the client has not sent all of it.
    async fn read_message(
        &mut self,
        head: &Bytes,
        (direct, connection): (&dyn DirectRoutes, &ServedConnection),
        turn: &mut Option<Turn>,
    ) -> io::Result<Option<MessageRequest>> {
        let Some(RequestHead { uri, headers, n_body }) = RequestHead::parse(head) else { return Ok(None) };
        if n_body > MAX_BODY_BYTES {
            return Ok(None);
        }
        let Some(endpoint) = direct.find(&uri, &headers, connection) else { return Ok(None) };
        if self.input.len() < n_body {
            drop(turn.take());
            let mut arriving = ArrivingRequest::new(endpoint.request_memory());
            if arriving.push(n_body).and_then(|()| arriving.wait()).is_err() {
                // It is refused there.
                return Ok(None);
            }
            match time::timeout(BODY_DELAY, Box::pin(self.read_body(n_body))).await {
                Ok(read) => read?,
                Err(_) => return Ok(None),
            }
        }
        let body = self.input.split_to(n_body).freeze();
        if head.len() + n_body > READ_BYTES && self.input.is_empty() {
            // A connection must not keep the memory of a large request.
            self.input = BytesMut::new();
        }
        Ok(Some(MessageRequest { endpoint, uri, headers, body }))
    }

    /// Reads until the input has this many bytes.
    async fn read_body(&mut self, n_body: usize) -> io::Result<()> {
        while self.input.len() < n_body {
            if self.read(n_body - self.input.len()).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads more input; at least `n_missing` bytes are still to come.
    async fn read(&mut self, n_missing: usize) -> io::Result<usize> {
        if self.input.capacity() - self.input.len() < n_missing.max(MIN_READ_BYTES) {
            self.input.reserve(n_missing.max(READ_BYTES));
        }
        poll_fn(|context| poll_read_buf(Pin::new(&mut self.stream), context, &mut self.input)).await
    }

    /// Waits until the client has closed the connection. What it sends until then is kept.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.input.len() < MAX_PIPELINED_BYTES {
            match ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.input)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        // No more is read, and nothing wakes a task for the end behind what is unread.
        while !self.stream.get_ref().is_closed_by_client() {
            let next_look = self.next_look.get_or_insert_with(|| Box::pin(time::sleep(CLOSE_INTERVAL)));
            ready!(next_look.as_mut().poll(context));
            self.next_look = None;
        }
        Poll::Ready(())
    }

    async fn write(&mut self, reply: HttpReply) -> io::Result<()> {
        let (parts, body) = reply.into_parts();
        let (body, content_type) = match body {
            ReplyBody::Full(body) => (body, None),
            ReplyBody::Json(body) => (body, Some(JSON)),
            ReplyBody::Stream(body) => {
                let head = encode_head(&parts, None, BodyFraming::Chunked);
                return Box::pin(self.write_stream(head, body)).await;
            }
        };
        let n_bytes = body.iter().map(Bytes::len).sum();
        let mut head = encode_head(&parts, content_type, BodyFraming::Length(n_bytes));
        if n_bytes > MAX_COPIED_BODY_BYTES {
            let [first, second, third] = body;
            let mut whole = Bytes::from(head).chain(first).chain(second).chain(third);
            Box::pin(self.stream.write_all_buf(&mut whole)).await?;
        } else {
            for part in &body {
                head.put_slice(part);
            }
            self.stream.write_all(&head).await?;
        }
        self.stream.flush().await
    }

    /// Writes a body as it comes, until the client closes the connection. A large part is not copied, and counts as unread
    /// until it is written.
    async fn write_stream(&mut self, mut output: Vec<u8>, mut body: Body) -> io::Result<()> {
        let mut waited_for = None;
        loop {
            let mut large_part = None;
            let mut has_ended = false;
            // What is there already is written at once.
            while !has_ended
                && large_part.is_none()
                && output.len() < MAX_GATHERED_BYTES
                && let Some(part) = waited_for.take().or_else(|| body.frame().now_or_never())
            {
                if let Some(frame) = part {
                    large_part = put_chunk(&mut output, frame.map_err(io::Error::other)?);
                } else {
                    output.put_slice(b"0\r\n\r\n");
                    has_ended = true;
                }
            }
            if let Some(part) = large_part {
                let mut chunk = Bytes::from(std::mem::take(&mut output)).chain(part).chain(&b"\r\n"[..]);
                self.stream.write_all_buf(&mut chunk).await?;
            } else {
                self.stream.write_all(&output).await?;
                output.clear();
            }
            self.stream.flush().await?;
            if has_ended {
                return Ok(());
            }
            let next = poll_fn(|context| match Pin::new(&mut body).poll_frame(context) {
                Poll::Ready(part) => Poll::Ready(Some(part)),
                Poll::Pending => self.poll_closed(context).map(|()| None),
            });
            waited_for = Some(next.await.ok_or(io::ErrorKind::ConnectionAborted)?);
        }
    }

    /// Returns the connection as it was before the request with this head.
    fn hand_over(self, head: Bytes) -> ReadAhead<S> {
        ReadAhead::new([head, self.input.freeze()], self.stream)
    }
}

/// Returns `true` if the body of a request has a coding other than `chunked`, or several.
pub(super) fn has_other_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some()
}

/// Returns the reply to a request of which the end could be read in two ways. The connection ends after it.
pub(super) fn ambiguous_framing() -> HttpReply {
    let reason = "the body must have either a Content-Length or one Transfer-Encoding: chunked";
    let mut reply = HttpReply::from(HttpRejection(StatusCode::BAD_REQUEST, reason));
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// Appends a part of a streamed body as a chunk. Of a large one it appends only the size, and returns the part.
fn put_chunk(output: &mut Vec<u8>, frame: Frame<Bytes>) -> Option<Bytes> {
    let part = frame.into_data().ok().filter(|part| !part.is_empty())?;
    // Writing to a vector does not fail.
    let _ = write!(output, "{:x}\r\n", part.len());
    if part.len() > MAX_COPIED_BODY_BYTES {
        return Some(part);
    }
    output.put_slice(&part);
    output.put_slice(b"\r\n");
    None
}

#[cfg(test)]
mod tests;
