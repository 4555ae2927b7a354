//! Message pump over a message-oriented socket, shared by both roles of the WebSocket transport.

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::sync::mpsc;

use crate::connection::cancel_notification;
use crate::message::{Message, RpcError, code};
use crate::transport::{
    CancelRequest, IncomingEvent, InputLimits, OutgoingMessage, TransportEnd, TransportError, TransportEvent,
    drain_cancels, input_events,
};

/// Maximum number of messages written between two flushes, and the number of bytes that is flushed before more are taken.
const MAX_UNFLUSHED: usize = 64;
const MAX_UNFLUSHED_BYTES: usize = 64 * 1024;

/// Size of the read buffer. All frames in it are handled at once, and the smallest has two bytes, so that a larger one
/// would let a peer keep the thread from other tasks.
pub(super) const READ_BUFFER_BYTES: usize = 8 * 1024;

/// Maximum number of bytes of the envelope of a message, and of what waits to be written with a message.
const MAX_SMALL_BYTES: usize = 512 * 1024;

/// Returns the maximum size of a message of our own.
fn max_message(limits: InputLimits) -> usize {
    limits.max_bytes.saturating_add(MAX_SMALL_BYTES)
}

/// Returns the maximum number of bytes that wait to be written, after which the connection fails: the library answers
/// every ping, also of a peer that does not read. A message of our own may be as large as one of the peer, and a larger
/// response is replaced by an error.
pub(super) fn max_write_buffer(limits: InputLimits) -> usize {
    max_message(limits).saturating_add(MAX_SMALL_BYTES)
}

/// Moves messages between a socket and a transport until either closes.
///
/// The stream yields one message at a time and ends when the peer closes; it handles pings itself. Closing
/// the sink sends the close frame.
pub(crate) async fn pump<S>(socket: S, end: TransportEnd, limits: InputLimits)
where
    S: Stream<Item = Result<Bytes, TransportError>> + Sink<Bytes, Error = TransportError>,
{
    let TransportEnd { outgoing, cancels, incoming } = end;
    let (sink, stream) = socket.split();
    let (relay, relayed) = mpsc::unbounded_channel();
    let reason = tokio::select! {
        reason = read(stream, &incoming, limits) => reason,
        reason = write(sink, outgoing, relayed, limits) => reason,
        () = drain_cancels(cancels, relay) => TransportError::Closed,
    };
    let _ = incoming.send(IncomingEvent::new(TransportEvent::Closed(reason))).await;
}

async fn read<R>(mut stream: R, incoming: &mpsc::Sender<IncomingEvent>, limits: InputLimits) -> TransportError
where
    R: Stream<Item = Result<Bytes, TransportError>> + Unpin,
{
    while let Some(bytes) = stream.next().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        for event in input_events(&bytes, limits) {
            if incoming.send(IncomingEvent::new(event)).await.is_err() {
                return TransportError::Closed;
            }
        }
    }
    TransportError::Closed
}

async fn write<W>(
    mut sink: W,
    mut outgoing: mpsc::Receiver<OutgoingMessage>,
    mut cancels: mpsc::UnboundedReceiver<CancelRequest>,
    limits: InputLimits,
) -> TransportError
where
    W: Sink<Bytes, Error = TransportError> + Unpin,
{
    loop {
        let message = tokio::select! {
            // A request is cancelled after it was sent, so messages come first.
            biased;
            queued = outgoing.recv() => match queued {
                Some(queued) => queued.message,
                None => break,
            },
            Some(cancel) = cancels.recv() => cancel_notification(&cancel),
        };
        if let Err(error) = write_burst(&mut sink, message, &mut outgoing, limits).await {
            return error;
        }
    }
    while let Some(cancel) = cancels.recv().await {
        if let Err(error) = sink.feed(cancel_notification(&cancel).encode()).await {
            return error;
        }
    }
    sink.close().await.err().unwrap_or(TransportError::Closed)
}

/// Writes a message and those queued after it, then flushes once.
async fn write_burst<W>(
    sink: &mut W,
    first: Message,
    outgoing: &mut mpsc::Receiver<OutgoingMessage>,
    limits: InputLimits,
) -> Result<(), TransportError>
where
    W: Sink<Bytes, Error = TransportError> + Unpin,
{
    let mut n_bytes = 0;
    // Large results count until they are written: their copies do not.
    let mut unwritten = Vec::new();
    let mut message = first;
    for n_messages in 1.. {
        let text = encode(&message, limits);
        n_bytes += text.len();
        if text.len() >= MAX_UNFLUSHED_BYTES {
            unwritten.push(message);
        }
        sink.feed(text).await?;
        if n_messages >= MAX_UNFLUSHED || n_bytes >= MAX_UNFLUSHED_BYTES {
            break;
        }
        let Ok(queued) = outgoing.try_recv() else { break };
        message = queued.message;
    }
    sink.flush().await
}

/// Encodes a message. A response that is too large for the connection becomes an error, so that it costs only its
/// request.
fn encode(message: &Message, limits: InputLimits) -> Bytes {
    let text = message.encode();
    match message {
        Message::Response(response) if text.len() > max_message(limits) => {
            let max_bytes = limits.max_bytes;
            let error =
                format!("the response is larger than {max_bytes} bytes, the limit of this connection");
            Message::response(response.id.clone(), Err(RpcError::new(code::SERVER_ERROR, error))).encode()
        }
        Message::Request(_) | Message::Notification(_) | Message::Response(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_util::FutureExt;

    use super::*;
    use crate::RawJson;
    use crate::message::{Frame, Id};
    use crate::server::ResponseMemory;
    use crate::transport::channels;

    /// A socket whose peer neither speaks nor reads.
    struct Stuck;

    impl Stream for Stuck {
        type Item = Result<Bytes, TransportError>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Pending
        }
    }

    impl Sink<Bytes> for Stuck {
        type Error = TransportError;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
            Poll::Pending
        }

        fn start_send(self: Pin<&mut Self>, _: Bytes) -> Result<(), TransportError> {
            Ok(())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_large_result_counts_until_it_is_written() {
        let memory = ResponseMemory::new(1 << 20);
        let result = memory.hold(RawJson::of(&"x".repeat(100_000))).unwrap();
        let response = Message::response(Some(Id::Number(1)), Ok(result));
        let (_sender, mut queued) = mpsc::channel(1);
        let mut sink = Stuck;
        let mut writing = Box::pin(write_burst(&mut sink, response, &mut queued, InputLimits::client()));
        assert!((&mut writing).now_or_never().is_none());
        assert_eq!(memory.n_bytes(), 100_002);
        drop(writing);
        assert_eq!(memory.n_bytes(), 0);
    }

    #[test]
    fn a_response_that_is_too_large_becomes_an_error() {
        let limits = InputLimits { max_bytes: 300, ..InputLimits::client() };
        for (n_bytes, is_sent) in [(300, true), (300 + MAX_SMALL_BYTES, false)] {
            let result = RawJson::of(&"x".repeat(n_bytes));
            let text = encode(&Message::response(Some(Id::Number(1)), Ok(result)), limits);
            let Ok(Frame::Single(Message::Response(sent))) = Message::decode(text, 8) else {
                panic!("{n_bytes}")
            };
            assert_eq!((sent.id, sent.result.is_ok()), (Some(Id::Number(1)), is_sent), "{n_bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_does_not_keep_the_pump() {
        let (transport, end) = channels();
        transport.outgoing.send(OutgoingMessage::new(Message::notification("a", None))).await.unwrap();
        let pumping = tokio::spawn(pump(Stuck, end, InputLimits::client()));
        tokio::task::yield_now().await;
        drop(transport);
        tokio::time::timeout(2 * crate::transport::CLOSE_TIMEOUT, pumping).await.unwrap().unwrap();
    }
}
