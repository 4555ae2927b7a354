//! Server-Sent Events: how they are written, and how they are read from bytes that come in pieces.

use std::mem;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

/// A comment that says nothing, to keep a quiet stream alive.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Where in the stream it is, for a reader that wants to go on after it.
    pub id: Option<String>,
    /// Its name; without one it is a `message`.
    pub event: Option<String>,
    /// What it carries; empty in an event that only says where the stream is, or when to come back.
    pub data: Bytes,
    /// How long a reader waits before it comes back.
    pub retry: Option<Duration>,
}

impl SseEvent {
    /// An event that carries a message.
    pub fn message(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// Whether it is a `message` that carries something.
    pub fn is_message(&self) -> bool {
        !self.data.is_empty() && self.event.as_deref().is_none_or(|name| name == "message")
    }
}

/// The event as it is written to a stream.
///
/// ```
/// use pegboard_wire::http::sse::{SseEvent, encode};
///
/// assert_eq!(encode(&SseEvent::message("a\nb")), "data: a\ndata: b\n\n");
/// assert_eq!(encode(&SseEvent { id: Some("7".into()), ..SseEvent::default() }), "id: 7\ndata:\n\n");
/// ```
pub fn encode(event: &SseEvent) -> Bytes {
    let mut text = Vec::with_capacity(event.data.len() + 64);
    if let Some(id) = &event.id {
        put(&mut text, b"id", &on_one_line(id));
    }
    if let Some(name) = &event.event {
        put(&mut text, b"event", &on_one_line(name));
    }
    if let Some(retry) = event.retry {
        put(&mut text, b"retry", retry.as_millis().to_string().as_bytes());
    }
    if !event.data.is_empty() || event.id.is_some() || event.event.is_some() {
        put_data(&mut text, &event.data);
    }
    text.push(b'\n');
    text.into()
}

fn put(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend_from_slice(name);
    text.push(b':');
    if !value.is_empty() {
        text.push(b' ');
        text.extend_from_slice(value);
    }
    text.push(b'\n');
}

/// Readers take any line end for one, so each becomes a line of its own.
fn put_data(text: &mut Vec<u8>, mut data: &[u8]) {
    while let Some(end) = memchr::memchr2(b'\r', b'\n', data) {
        put(text, b"data", &data[..end]);
        let is_pair = data[end..].starts_with(b"\r\n");
        data = &data[end + 1 + usize::from(is_pair)..];
    }
    put(text, b"data", data);
}

/// A line break in an id or a name would end it, and a reader ignores an id with a NUL.
fn on_one_line(value: &str) -> Vec<u8> {
    value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)).collect()
}

/// An event is larger than the reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct TooLarge {
    /// What the reader takes.
    pub limit: usize,
}

/// Reads events from bytes that come in pieces.
///
/// It holds at most one event of the largest size and what was pushed last. An event that is too large is an error
/// once, then the rest of it is passed over.
///
/// ```
/// use pegboard_wire::http::sse::{Decoder, SseEvent};
///
/// let mut decoder = Decoder::new(1024);
/// decoder.push(b": hello\ndata: o");
/// assert_eq!(decoder.next_event(), None);
/// decoder.push(b"ne\r\n\r\n");
/// assert_eq!(decoder.next_event(), Some(Ok(SseEvent::message("one"))));
/// ```
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    draft: Draft,
    max_bytes: usize,
    mode: Mode,
    /// Whether the last line ended with `\r`, so that a `\n` right after it is part of that end.
    after_return: bool,
}

/// What happens to the line at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It is the first, so that a byte-order mark may come before it.
    First,
    /// It is read.
    Read,
    /// It is passed over with the rest of an event that was too large.
    Skip,
    /// It is passed over, and its beginning has been already.
    SkipRest,
}

impl Decoder {
    /// A decoder of events with at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            draft: Draft::default(),
            max_bytes,
            mode: Mode::First,
            after_return: false,
        }
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next event that is complete; `None` if more bytes are needed.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, TooLarge>> {
        if self.mode == Mode::First && !self.pass_byte_order_mark() {
            return None;
        }
        while let Some(line) = self.next_line() {
            match self.mode {
                Mode::SkipRest => self.mode = Mode::Skip,
                Mode::Skip if line.is_empty() => self.mode = Mode::Read,
                Mode::Skip => {}
                Mode::First | Mode::Read if line.is_empty() => {
                    if let Some(event) = self.draft.finish() {
                        return Some(Ok(event));
                    }
                }
                Mode::First | Mode::Read if self.draft.len + line.len() > self.max_bytes => {
                    return Some(Err(self.skip()));
                }
                Mode::First | Mode::Read => self.draft.take(&line),
            }
        }
        self.bound_the_rest()
    }

    /// Passes over a byte-order mark; `false` if more bytes are needed to tell.
    fn pass_byte_order_mark(&mut self) -> bool {
        if self.buffer.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.buffer) {
            return false;
        }
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
        }
        self.mode = Mode::Read;
        true
    }

    fn next_line(&mut self) -> Option<Bytes> {
        if self.after_return && !self.buffer.is_empty() {
            self.after_return = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
        }
        let Some(end) = memchr::memchr2(b'\r', b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end).freeze();
        self.after_return = self.buffer[0] == b'\r';
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    /// Sees to it that a line without an end does not grow for ever.
    fn bound_the_rest(&mut self) -> Option<Result<SseEvent, TooLarge>> {
        let is_read = matches!(self.mode, Mode::First | Mode::Read);
        if is_read && self.draft.len + self.buffer.len() <= self.max_bytes {
            return None;
        }
        let problem = is_read.then(|| self.skip());
        if !self.buffer.is_empty() {
            self.mode = Mode::SkipRest;
            self.buffer.clear();
            self.searched = 0;
        }
        problem.map(Err)
    }

    fn skip(&mut self) -> TooLarge {
        self.draft = Draft::default();
        self.mode = Mode::Skip;
        TooLarge { limit: self.max_bytes }
    }
}

/// The event whose lines are being read.
#[derive(Debug, Default)]
struct Draft {
    event: SseEvent,
    data: Data,
    has_fields: bool,
    len: usize,
}

/// The data of an event: a slice of what came as long as it is one line.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    Line(Bytes),
    Lines(BytesMut),
}

impl Draft {
    fn take(&mut self, line: &Bytes) {
        let (name, value) = match memchr::memchr(b':', line) {
            // A comment.
            Some(0) => return,
            Some(colon) => (&line[..colon], line.slice(colon + 1..)),
            None => (&line[..], Bytes::new()),
        };
        let value = if value.first() == Some(&b' ') { value.slice(1..) } else { value };
        match name {
            b"data" => self.data.add(value),
            b"event" => self.event.event = Some(text(&value)),
            b"id" if !value.contains(&0) => self.event.id = Some(text(&value)),
            b"retry" => match milliseconds(&value) {
                Some(retry) => self.event.retry = Some(retry),
                None => return,
            },
            _ => return,
        }
        self.has_fields = true;
        self.len += line.len() + 1;
    }

    fn finish(&mut self) -> Option<SseEvent> {
        let Self { mut event, data, has_fields, .. } = mem::take(self);
        event.data = match data {
            Data::None => Bytes::new(),
            Data::Line(line) => line,
            Data::Lines(lines) => lines.freeze(),
        };
        has_fields.then_some(event)
    }
}

impl Data {
    fn add(&mut self, line: Bytes) {
        *self = match mem::take(self) {
            Self::None => Self::Line(line),
            Self::Line(first) => Self::Lines(join(BytesMut::from(first), &line)),
            Self::Lines(lines) => Self::Lines(join(lines, &line)),
        };
    }
}

fn join(mut lines: BytesMut, line: &[u8]) -> BytesMut {
    lines.extend_from_slice(b"\n");
    lines.extend_from_slice(line);
    lines
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = is_number.then(|| text(value).parse().ok())??;
    Some(Duration::from_millis(number))
}
