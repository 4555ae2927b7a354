//! Input of a WebSocket server: every message is counted while it arrives, and must be complete in time.
//!
//! The library buffers frames as large as a message and keeps their memory, so that it gets large frames in parts, as
//! fragments.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{self, Sleep};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_util::io::poll_read_buf;

use crate::http::server::BODY_TIMEOUT;
use crate::server::{ArrivingRequest, ResponseMemory};
use crate::websocket::pump::READ_BUFFER_BYTES;

/// Maximum size of a frame that the library gets. A multiple of the length of a mask, which applies to each part anew.
const MAX_PART_BYTES: u64 = 16 * 1024;

/// Minimum space for a read.
const MIN_READ_BYTES: usize = 1024;

/// Maximum payload of a control frame.
const MAX_CONTROL_BYTES: u64 = 125;

/// A stream with WebSocket frames as its input.
pub(super) struct MessageInput<S> {
    stream: S,
    memory: ResponseMemory,
    max_message: u64,
    /// Bytes that were read and not yet passed on.
    input: BytesMut,
    /// Header to be passed on before more of the input.
    header: BytesMut,
    frame: Option<FrameInProgress>,
    message: Option<MessageInProgress>,
    rejection: Option<CloseFrame>,
}

/// A frame of which the header was read.
struct FrameInProgress {
    header: FrameHeader,
    /// Bytes of the current part, and of all parts, that are to be passed on.
    n_part: u64,
    n_rest: u64,
}

/// A message from its first frame on.
struct MessageInProgress {
    arriving: ArrivingRequest,
    n_bytes: u64,
    /// Exists once the message was waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> MessageInput<S> {
    /// Creates the input for messages of at most `max_message` bytes.
    pub(super) fn new(stream: S, memory: ResponseMemory, max_message: usize) -> Self {
        Self {
            stream,
            memory,
            max_message: max_message as u64,
            input: BytesMut::new(),
            header: BytesMut::new(),
            frame: None,
            message: None,
            rejection: None,
        }
    }

    /// Returns a message that has arrived. A large one counts until its last copy is dropped.
    pub(super) fn complete(&mut self, message: Bytes) -> Bytes {
        match self.message.take() {
            Some(MessageInProgress { arriving, .. }) => arriving.complete(message),
            None => message,
        }
    }

    /// Returns why reading has failed, for the peer.
    pub(super) fn take_rejection(&mut self) -> Option<CloseFrame> {
        self.rejection.take()
    }

    fn reject(&mut self, code: CloseCode, reason: &'static str) -> io::Error {
        self.rejection = Some(CloseFrame { code, reason: reason.into() });
        io::Error::other(reason)
    }

    /// Passes on what was read, up to the end of a frame. Returns `true` if nothing is left of the input.
    fn pass_on(&mut self, output: &mut ReadBuf<'_>) -> io::Result<bool> {
        while output.remaining() > 0 {
            if !self.header.is_empty() {
                move_bytes(&mut self.header, output, u64::MAX);
                continue;
            }
            let Some(frame) = &mut self.frame else {
                if !self.begin_frame()? {
                    return Ok(true);
                }
                continue;
            };
            if frame.n_rest == 0 {
                self.frame = None;
                return Ok(false);
            }
            if frame.n_part == 0 {
                frame.begin_part(OpCode::Data(Data::Continue), &mut self.header);
                continue;
            }
            if self.input.is_empty() {
                return Ok(true);
            }
            let n_bytes = move_bytes(&mut self.input, output, frame.n_part);
            frame.n_part -= n_bytes as u64;
            frame.n_rest -= n_bytes as u64;
            let is_data = matches!(frame.header.opcode, OpCode::Data(_));
            if is_data
                && let Some(message) = &mut self.message
                && message.arriving.push(n_bytes).is_err()
            {
                return Err(self.memory_is_full());
            }
        }
        Ok(false)
    }

    /// Parses the header of the next frame. Returns `false` if it is not complete.
    fn begin_frame(&mut self) -> io::Result<bool> {
        let mut cursor = Cursor::new(&self.input[..]);
        let parsed = FrameHeader::parse(&mut cursor);
        let n_header = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        let (header, n_rest) = match parsed {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(false),
            Err(_) => return Err(self.reject(CloseCode::Protocol, "a frame is malformed")),
        };
        self.input.advance(n_header);
        let opcode = header.opcode;
        if let OpCode::Control(_) = opcode {
            if n_rest > MAX_CONTROL_BYTES {
                return Err(self.reject(CloseCode::Protocol, "a control frame is too large"));
            }
        } else {
            let memory = &self.memory;
            let message = self.message.get_or_insert_with(|| MessageInProgress::new(memory));
            message.n_bytes = message.n_bytes.saturating_add(n_rest);
            if message.n_bytes > self.max_message {
                return Err(self.reject(CloseCode::Size, "the message is too large"));
            }
        }
        let frame = self.frame.insert(FrameInProgress { header, n_part: 0, n_rest });
        frame.begin_part(opcode, &mut self.header);
        Ok(true)
    }

    fn memory_is_full(&mut self) -> io::Error {
        self.reject(CloseCode::Again, "other large requests are in progress")
    }

    /// Counts a message that is waited for, and fails when it is late.
    fn wait(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(message) = &mut self.message else { return Ok(()) };
        if message.arriving.wait().is_err() {
            return Err(self.memory_is_full());
        }
        let deadline = message.deadline.get_or_insert_with(|| Box::pin(time::sleep(BODY_TIMEOUT)));
        if deadline.as_mut().poll(context).is_ready() {
            return Err(self.reject(CloseCode::Policy, "timed out reading the message"));
        }
        Ok(())
    }
}

impl FrameInProgress {
    /// Writes the header of the next part.
    fn begin_part(&mut self, opcode: OpCode, output: &mut BytesMut) {
        self.n_part = self.n_rest.min(MAX_PART_BYTES);
        let is_first = opcode == self.header.opcode;
        let header = FrameHeader {
            is_final: self.header.is_final && self.n_part == self.n_rest,
            rsv1: self.header.rsv1 && is_first,
            rsv2: self.header.rsv2 && is_first,
            rsv3: self.header.rsv3 && is_first,
            opcode,
            mask: self.header.mask,
        };
        header.format(self.n_part, &mut output.writer()).expect("memory takes every header");
    }
}

impl MessageInProgress {
    fn new(memory: &ResponseMemory) -> Self {
        Self { arriving: ArrivingRequest::new(memory), n_bytes: 0, deadline: None }
    }
}

/// Moves at most `n_max` bytes, and returns their number.
fn move_bytes(from: &mut BytesMut, to: &mut ReadBuf<'_>, n_max: u64) -> usize {
    let n_max = usize::try_from(n_max).unwrap_or(usize::MAX);
    let n_bytes = from.len().min(to.remaining()).min(n_max);
    to.put_slice(&from[..n_bytes]);
    from.advance(n_bytes);
    n_bytes
}

impl<S: AsyncRead + Unpin> AsyncRead for MessageInput<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let n_before = output.filled().len();
        loop {
            let is_exhausted = this.pass_on(output)?;
            if output.filled().len() > n_before {
                return Poll::Ready(Ok(()));
            }
            if !is_exhausted {
                continue;
            }
            // At most the beginning of a header is left, and the space before it is used again.
            if this.input.capacity() - this.input.len() < MIN_READ_BYTES {
                this.input.reserve(READ_BUFFER_BYTES - this.input.len());
            }
            match poll_read_buf(Pin::new(&mut this.stream), context, &mut this.input) {
                // The peer has closed the connection.
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(read) => drop(read?),
                Poll::Pending => {
                    this.wait(context)?;
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MessageInput<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
