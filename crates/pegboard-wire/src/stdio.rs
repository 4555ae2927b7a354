//! The stdio transport of both roles: one message per line, over any two byte streams.

use std::pin::pin;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::cancel_notification;
use crate::message::{InvalidMessage, RpcError, code};
use crate::transport::{
    CancelRequest, IncomingEvent, InputLimits, MalformedPolicy, OutgoingMessage, TransportEnd,
    TransportError, TransportEvent, TransportHandle, channels, drain_cancels, input_events,
    oversized_response,
};

mod endable_input;
mod process_streams;

pub use endable_input::EndableInput;
pub use process_streams::{InputStream, OutputStream, standard_input, standard_output};

/// Creates a transport over two byte streams, one message per line, and the task that drives it.
///
/// The task ends when writing fails, or when the transport is dropped and all lines are written or the close
/// timeout has passed.
pub fn line_transport<R, W>(reader: R, writer: W, limits: InputLimits) -> (TransportHandle, JoinHandle<()>)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (transport, TransportEnd { outgoing, cancels, incoming }) = channels();
    let pump = tokio::spawn(async move {
        let (relay, relayed) = mpsc::unbounded_channel();
        let mut writing = pin!(write(writer, outgoing, relayed));
        let mut draining = pin!(drain_cancels(cancels, relay));
        tokio::select! {
            () = read(reader, incoming, limits) => {}
            () = &mut writing => return,
            () = &mut draining => return,
        }
        // The peer has closed its sending side; there may still be responses to write.
        tokio::select! {
            () = writing => {}
            () = draining => {}
        }
    });
    (transport, pump)
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    incoming: mpsc::Sender<IncomingEvent>,
    limits: InputLimits,
) {
    let mut lines = LineSplitter::new(limits.max_bytes);
    let reason = loop {
        while let Some(line) = lines.next() {
            if !deliver(line, &incoming, limits).await {
                return;
            }
        }
        match reader.read_buf(&mut lines.buffer).await {
            Ok(0) => {
                // The last line may lack a line feed.
                if let Some(line) = lines.finish() {
                    deliver(line, &incoming, limits).await;
                }
                let _ = incoming.send(IncomingEvent::new(TransportEvent::EndOfInput)).await;
                break TransportError::Closed;
            }
            Ok(_) => {}
            Err(error) => break TransportError::failed(error),
        }
    };
    let _ = incoming.send(IncomingEvent::new(TransportEvent::Closed(reason))).await;
}

/// Forwards the messages of a line; returns `false` if the receiver is gone.
async fn deliver(line: InputLine, incoming: &mpsc::Sender<IncomingEvent>, limits: InputLimits) -> bool {
    let events = match (line, limits.on_malformed) {
        (InputLine::Complete(bytes), _) => input_events(&bytes, limits),
        (InputLine::TooLong { head }, MalformedPolicy::Skip) => {
            vec![oversized_response(&head, limits.max_bytes)]
        }
        (InputLine::TooLong { .. }, MalformedPolicy::Reply) => {
            vec![TransportEvent::Malformed(InvalidMessage {
                id: None,
                has_method: false,
                error: Box::new(RpcError::new(
                    code::INVALID_REQUEST,
                    format!("Invalid request: a line exceeds {} bytes", limits.max_bytes),
                )),
            })]
        }
    };
    for event in events {
        if incoming.send(IncomingEvent::new(event)).await.is_err() {
            return false;
        }
    }
    true
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<OutgoingMessage>,
    mut cancels: mpsc::UnboundedReceiver<CancelRequest>,
) {
    /// Buffered bytes above which lines are written before more are taken.
    const FLUSH_BYTES: usize = 64 * 1024;
    let mut text = Vec::new();
    loop {
        tokio::select! {
            // A request is cancelled after it was sent, so messages come first.
            biased;
            queued = outgoing.recv() => match queued {
                Some(queued) => queued.message.encode_line(&mut text),
                None => break,
            },
            Some(cancel) = cancels.recv() => cancel_notification(&cancel).encode_line(&mut text),
        }
        while text.len() < FLUSH_BYTES
            && let Ok(queued) = outgoing.try_recv()
        {
            queued.message.encode_line(&mut text);
        }
        let written = async {
            writer.write_all(&text).await?;
            writer.flush().await
        };
        if written.await.is_err() {
            return;
        }
        text.clear();
        text.shrink_to(FLUSH_BYTES);
    }
    let _ = writer.shutdown().await;
}

/// Splits input into lines, with bounded memory.
struct LineSplitter {
    buffer: BytesMut,
    /// Number of buffered bytes known to contain no line feed.
    searched: usize,
    max_line: usize,
    /// `true` while the rest of an oversized line is discarded.
    skipping: bool,
}

enum InputLine {
    Complete(Bytes),
    TooLong {
        /// The beginning of the line.
        head: Bytes,
    },
}

/// Number of bytes kept of an oversized line.
const LINE_PREFIX_BYTES: usize = 256;

impl LineSplitter {
    fn new(max_line: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(8 * 1024), searched: 0, max_line, skipping: false }
    }

    /// Returns the next complete line. Empty lines are skipped.
    fn next(&mut self) -> Option<InputLine> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return self.discard_oversized();
            };
            let line = self.buffer.split_to(self.searched + end).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.max_line {
                return Some(InputLine::TooLong { head: line.slice(..LINE_PREFIX_BYTES.min(line.len())) });
            }
            if let Some(line) = trim_line(&line) {
                return Some(InputLine::Complete(line));
            }
        }
    }

    fn discard_oversized(&mut self) -> Option<InputLine> {
        if !self.skipping && self.buffer.len() <= self.max_line {
            return None;
        }
        let head = Bytes::copy_from_slice(&self.buffer[..LINE_PREFIX_BYTES.min(self.buffer.len())]);
        self.buffer.clear();
        self.searched = 0;
        let is_first = !std::mem::replace(&mut self.skipping, true);
        is_first.then_some(InputLine::TooLong { head })
    }

    /// Returns the text after the last line feed.
    fn finish(&mut self) -> Option<InputLine> {
        let rest = self.buffer.split().freeze();
        if self.skipping { None } else { trim_line(&rest).map(InputLine::Complete) }
    }
}

/// Trims white space and a byte-order mark; `None` if nothing is left.
fn trim_line(line: &Bytes) -> Option<Bytes> {
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    (!text.is_empty()).then(|| line.slice_ref(text))
}
