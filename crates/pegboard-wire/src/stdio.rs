//! The stdio transport of both roles: one message per line, over any two byte streams.

use std::pin::pin;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::cancel_notification;
use crate::message::outline::OversizedMessage;
use crate::message::{InvalidMessage, Message, RpcError, code};
use crate::transport::{
    CancelRequest, IncomingEvent, InputLimits, MalformedPolicy, OutgoingMessage, TransportEnd,
    TransportError, TransportEvent, TransportHandle, channels, drain_cancels, input_events, too_large,
    unreadable_responses,
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
    let mut decoder = LineDecoder { limits, oversized: None };
    let reason = loop {
        while let Some(line) = lines.next() {
            if !deliver(decoder.decode(line), &incoming).await {
                return;
            }
        }
        match reader.read_buf(&mut lines.buffer).await {
            Ok(0) => {
                // The last line may lack a line feed.
                if let Some(line) = lines.finish() {
                    deliver(decoder.decode(line), &incoming).await;
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

/// Forwards events; returns `false` if the receiver is gone.
async fn deliver(events: Vec<TransportEvent>, incoming: &mpsc::Sender<IncomingEvent>) -> bool {
    for event in events {
        if incoming.send(IncomingEvent::new(event)).await.is_err() {
            return false;
        }
    }
    true
}

/// Decodes lines into events.
struct LineDecoder {
    limits: InputLimits,
    /// The oversized line that is being read.
    oversized: Option<OversizedMessage>,
}

impl LineDecoder {
    fn decode(&mut self, line: InputLine) -> Vec<TransportEvent> {
        match (line, self.limits.on_malformed) {
            (InputLine::Complete(bytes), _) => input_events(&bytes, self.limits),
            (InputLine::Oversized { part, is_last }, MalformedPolicy::Skip) => {
                let mut message = self.oversized.take().unwrap_or_default();
                let mut answered = Vec::from_iter(message.push(&part));
                if is_last {
                    let at_end = message.finish();
                    answered.extend(at_end);
                } else {
                    self.oversized = Some(message);
                }
                if answered.is_empty() && !is_last {
                    return Vec::new();
                }
                unreadable_responses(answered, &too_large(self.limits.max_bytes))
            }
            (InputLine::Oversized { is_last, .. }, MalformedPolicy::Reply) => {
                let is_first = self.oversized.is_none();
                self.oversized = (!is_last).then(OversizedMessage::default);
                let rejection = is_first.then(|| {
                    TransportEvent::Malformed(InvalidMessage {
                        id: None,
                        has_method: false,
                        error: Box::new(RpcError::new(
                            code::INVALID_REQUEST,
                            format!("Invalid request: a line exceeds {} bytes", self.limits.max_bytes),
                        )),
                    })
                });
                Vec::from_iter(rejection)
            }
        }
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<OutgoingMessage>,
    mut cancels: mpsc::UnboundedReceiver<CancelRequest>,
) {
    /// Buffered bytes above which lines are written before more are taken.
    const FLUSH_BYTES: usize = 64 * 1024;
    let mut text = Vec::new();
    // A large result counts until it is written: its copy does not.
    let mut unwritten = Vec::new();
    let put = |message: Message, text: &mut Vec<u8>| {
        let n_before = text.len();
        message.encode_line(text);
        (text.len() - n_before >= FLUSH_BYTES).then_some(message)
    };
    loop {
        tokio::select! {
            // A request is cancelled after it was sent, so messages come first.
            biased;
            queued = outgoing.recv() => match queued {
                Some(queued) => unwritten.extend(put(queued.message, &mut text)),
                None => break,
            },
            Some(cancel) = cancels.recv() => cancel_notification(&cancel).encode_line(&mut text),
        }
        while text.len() < FLUSH_BYTES
            && let Ok(queued) = outgoing.try_recv()
        {
            unwritten.extend(put(queued.message, &mut text));
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
        unwritten.clear();
    }
    // Requests that were dropped together with the transport. The relay ends with it.
    while let Some(cancel) = cancels.recv().await {
        cancel_notification(&cancel).encode_line(&mut text);
        if writer.write_all(&text).await.is_err() {
            return;
        }
        text.clear();
    }
    let _ = writer.shutdown().await;
}

/// Splits input into lines, with bounded memory.
struct LineSplitter {
    buffer: BytesMut,
    /// Number of buffered bytes known to contain no line feed.
    searched: usize,
    max_line: usize,
    /// `true` while the rest of an oversized line arrives.
    is_oversized: bool,
}

enum InputLine {
    Complete(Bytes),
    /// A part of a line that is too long.
    Oversized {
        part: Bytes,
        is_last: bool,
    },
}

impl LineSplitter {
    fn new(max_line: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(8 * 1024), searched: 0, max_line, is_oversized: false }
    }

    /// Returns the next complete line, or part of an oversized one. Empty lines are skipped.
    fn next(&mut self) -> Option<InputLine> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return self.take_oversized();
            };
            let line = self.buffer.split_to(self.searched + end).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if std::mem::take(&mut self.is_oversized) || line.len() > self.max_line {
                return Some(InputLine::Oversized { part: line, is_last: true });
            }
            if let Some(line) = trim_line(&line) {
                return Some(InputLine::Complete(line));
            }
        }
    }

    fn take_oversized(&mut self) -> Option<InputLine> {
        if self.buffer.is_empty() || !self.is_oversized && self.buffer.len() <= self.max_line {
            return None;
        }
        (self.searched, self.is_oversized) = (0, true);
        Some(InputLine::Oversized { part: self.buffer.split().freeze(), is_last: false })
    }

    /// Returns the text after the last line feed.
    fn finish(&mut self) -> Option<InputLine> {
        let rest = self.buffer.split().freeze();
        if self.is_oversized {
            return Some(InputLine::Oversized { part: rest, is_last: true });
        }
        trim_line(&rest).map(InputLine::Complete)
    }
}

/// Trims white space and a byte-order mark; `None` if nothing is left.
fn trim_line(line: &Bytes) -> Option<Bytes> {
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    (!text.is_empty()).then(|| line.slice_ref(text))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::RawJson;
    use crate::message::Id;
    use crate::server::ResponseMemory;

    /// Reads pieces of input within a limit of 40 bytes; returns the requests that fail.
    async fn failed_requests(input: &str, n_bytes: usize) -> Vec<Option<Id>> {
        let (incoming, mut events) = mpsc::channel(1_000);
        let (mut writer, reader) = tokio::io::duplex(n_bytes);
        let writing = async {
            writer.write_all(input.as_bytes()).await.unwrap();
            drop(writer);
        };
        tokio::join!(writing, read(reader, incoming, InputLimits { max_bytes: 40, ..InputLimits::client() }));
        let mut failed = Vec::new();
        while let Ok(IncomingEvent { event, .. }) = events.try_recv() {
            match event {
                TransportEvent::RequestFailed { id, .. } => failed.push(Some(id)),
                TransportEvent::UnreadableResponse { .. } => failed.push(None),
                _ => {}
            }
        }
        failed
    }

    #[tokio::test]
    async fn an_oversized_line_fails_the_request_that_it_answers() {
        let check = async |line: &str, expected: &[Option<Id>]| {
            let input = format!("{line}\n{{\"id\":1,\"result\":{{}}}}\n");
            for n_bytes in [1, 16, input.len()] {
                assert_eq!(
                    failed_requests(&input, n_bytes).await,
                    expected,
                    "in pieces of {n_bytes}: {line}"
                );
            }
        };
        let long = "x".repeat(60);
        let id = |id| Some(Id::Number(id));
        check(&format!(r#"{{"id":7,"result":"{long}"}}"#), &[id(7)]).await;
        check(&format!(r#"{{"result":{{"id":3,"text":"{long}"}},"id":71}}"#), &[id(71)]).await;
        check(&format!(r#"[{{"id":7,"result":{{}}}},{{"result":"{long}","id":8}}]"#), &[id(7), id(8)]).await;
        check(&format!(r#"{{"result":"{long}"}}"#), &[None]).await;
        check(&format!(r#"{{"method":"a","params":"{long}","id":7}}"#), &[]).await;
        check(&long, &[]).await;
    }

    #[tokio::test]
    async fn a_large_result_counts_until_it_is_written() {
        let memory = ResponseMemory::new(1 << 20);
        let (near, mut far) = tokio::io::duplex(1_024);
        let (outgoing, queued) = mpsc::channel(1);
        let (cancels, cancelled) = mpsc::unbounded_channel();
        let writing = tokio::spawn(write(near, queued, cancelled));
        let result = memory.hold(RawJson::of(&"x".repeat(100_000))).unwrap();
        outgoing
            .send(OutgoingMessage::new(Message::response(Some(Id::Number(1)), Ok(result))))
            .await
            .unwrap();
        far.read_u8().await.unwrap();
        assert_eq!(memory.n_bytes(), 100_002);
        drop(outgoing);
        drop(cancels);
        far.read_to_end(&mut Vec::new()).await.unwrap();
        writing.await.unwrap();
        assert_eq!(memory.n_bytes(), 0);
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_with_the_transport_is_cancelled() {
        let (near, far) = tokio::io::duplex(1_024);
        let (mut input, _output) = tokio::io::split(far);
        let (reader, writer) = tokio::io::split(near);
        let (transport, _pump) = line_transport(reader, writer, InputLimits::client());
        transport
            .outgoing
            .send(OutgoingMessage::new(Message::request(Id::Number(1), "a", None)))
            .await
            .unwrap();
        let cancel = CancelRequest { id: Id::Number(1), reason: None, headers: http::HeaderMap::new() };
        transport.cancels.send(cancel).unwrap();
        drop(transport);
        let mut written = Vec::new();
        while !written.ends_with(b"}}\n") {
            assert!(input.read_buf(&mut written).await.unwrap() > 0, "the end");
        }
        let written = String::from_utf8(written).unwrap();
        let methods = [r#""method":"a""#, r#""method":"notifications/cancelled""#];
        assert!(written.lines().zip(methods).all(|(line, method)| line.contains(method)), "{written}");
        assert_eq!(written.lines().count(), 2);
    }
}
