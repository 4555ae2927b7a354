//! Messages as lines, over any two byte streams: the stdio transport of both roles.

use std::pin::pin;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::cancelled;
use crate::link::{
    Arrival, Cancel, Event, Garbage, InputLimits, Letter, Link, Port, TransportError, events_of, link,
    outlast,
};
use crate::message::{Id, Message, RpcError, Unreadable, code};

/// A link over two byte streams, one message a line, and the task that moves the lines.
///
/// The task ends when writing fails, or when the link is dropped and everything is written or will not be.
pub fn lines<R, W>(reader: R, writer: W, limits: InputLimits) -> (Link, JoinHandle<()>)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (link, Port { letters, cancels, arrivals }) = link();
    let pump = tokio::spawn(async move {
        let (relay, relayed) = mpsc::unbounded_channel();
        let mut writing = pin!(write(writer, letters, relayed));
        let mut outlasting = pin!(outlast(cancels, relay));
        tokio::select! {
            () = read(reader, arrivals, limits) => {}
            () = &mut writing => return,
            () = &mut outlasting => return,
        }
        // The peer has said all; there may still be answers for it.
        tokio::select! {
            () = writing => {}
            () = outlasting => {}
        }
    });
    (link, pump)
}

async fn read(mut reader: impl AsyncRead + Unpin, arrivals: mpsc::Sender<Arrival>, limits: InputLimits) {
    let mut lines = Lines::new(limits.max_bytes);
    let reason = loop {
        while let Some(line) = lines.next() {
            if !deliver(line, &arrivals, limits).await {
                return;
            }
        }
        match reader.read_buf(&mut lines.buffer).await {
            Ok(0) => {
                // The last line may lack its end.
                if let Some(line) = lines.rest() {
                    deliver(line, &arrivals, limits).await;
                }
                let _ = arrivals.send(Arrival::new(Event::Ended)).await;
                break TransportError::Closed;
            }
            Ok(_) => {}
            Err(error) => break TransportError::failed(error),
        }
    };
    let _ = arrivals.send(Arrival::new(Event::Closed(reason))).await;
}

/// Hands on what a line holds; `false` if nobody takes it any more.
async fn deliver(line: Line, arrivals: &mpsc::Sender<Arrival>, limits: InputLimits) -> bool {
    let frame = match line {
        Line::Whole(bytes) => Message::decode(bytes, limits.max_depth),
        Line::TooLong { head } if limits.garbage == Garbage::Skip => {
            // Whoever waits for it is told, if it says early enough whom it answers.
            let error =
                TransportError::protocol(format!("an answer is longer than {} bytes", limits.max_bytes));
            let event = id_in(&head).map_or(Event::Skipped, |id| Event::Lost { id, error });
            return arrivals.send(Arrival::new(event)).await.is_ok();
        }
        Line::TooLong { .. } => Err(Unreadable {
            id: None,
            has_method: false,
            error: Box::new(RpcError::new(
                code::INVALID_REQUEST,
                format!("Invalid request: a line is longer than {} bytes", limits.max_bytes),
            )),
        }),
    };
    for event in events_of(frame, limits.garbage) {
        if arrivals.send(Arrival::new(event)).await.is_err() {
            return false;
        }
    }
    true
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut letters: mpsc::Receiver<Letter>,
    mut cancels: mpsc::UnboundedReceiver<Cancel>,
) {
    /// Above this the lines so far are written before more are taken.
    const FLUSH_BYTES: usize = 64 * 1024;
    let mut text = Vec::new();
    loop {
        tokio::select! {
            // A request is cancelled after it was sent, so letters come first.
            biased;
            letter = letters.recv() => match letter {
                Some(letter) => letter.message.encode_line(&mut text),
                None => break,
            },
            Some(cancel) = cancels.recv() => cancelled(&cancel).encode_line(&mut text),
        }
        while text.len() < FLUSH_BYTES
            && let Ok(letter) = letters.try_recv()
        {
            letter.message.encode_line(&mut text);
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

/// Bytes cut into lines, with bounded memory whatever comes.
struct Lines {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    max_line: usize,
    /// Whether the rest of a line that was too long is being thrown away.
    skipping: bool,
}

enum Line {
    Whole(Bytes),
    TooLong {
        /// How it begins.
        head: Bytes,
    },
}

/// How much of a line that is too long is looked at.
const HEAD_BYTES: usize = 256;

/// The number behind the first `"id":` of a text.
fn id_in(head: &[u8]) -> Option<Id> {
    let at = memchr::memmem::find(head, br#""id":"#)? + br#""id":"#.len();
    let digits = head[at..].trim_ascii_start();
    let n_digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&digits[..n_digits]).ok()?.parse().ok().map(Id::Number)
}

impl Lines {
    fn new(max_line: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(8 * 1024), searched: 0, max_line, skipping: false }
    }

    /// The next line that is complete. Empty lines are none.
    fn next(&mut self) -> Option<Line> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return self.drop_what_is_too_long();
            };
            let line = self.buffer.split_to(self.searched + end).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.max_line {
                return Some(Line::TooLong { head: line.slice(..HEAD_BYTES.min(line.len())) });
            }
            if let Some(line) = trimmed(&line) {
                return Some(Line::Whole(line));
            }
        }
    }

    fn drop_what_is_too_long(&mut self) -> Option<Line> {
        if !self.skipping && self.buffer.len() <= self.max_line {
            return None;
        }
        let head = Bytes::copy_from_slice(&self.buffer[..HEAD_BYTES.min(self.buffer.len())]);
        self.buffer.clear();
        self.searched = 0;
        let is_news = !std::mem::replace(&mut self.skipping, true);
        is_news.then_some(Line::TooLong { head })
    }

    /// What stands after the last line end.
    fn rest(&mut self) -> Option<Line> {
        let rest = self.buffer.split().freeze();
        if self.skipping { None } else { trimmed(&rest).map(Line::Whole) }
    }
}

/// The line without white space and byte-order mark around it; `None` if nothing is left.
fn trimmed(line: &Bytes) -> Option<Bytes> {
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    (!text.is_empty()).then(|| line.slice_ref(text))
}
