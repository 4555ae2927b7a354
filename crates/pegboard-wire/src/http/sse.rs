//! Server-Sent Events: encoding, and incremental decoding.

use std::mem;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::message::outline::{AnsweredRequest, OversizedMessage};
use crate::transport::too_large;

/// An empty comment that keeps an idle stream alive.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event id, for resumption.
    pub id: Option<String>,
    /// The event name; `message` if absent.
    pub event: Option<String>,
    /// The payload; empty in an event that only carries an id or a retry time.
    pub data: Bytes,
    /// The reconnect delay for the client.
    pub retry: Option<Duration>,
}

impl SseEvent {
    /// Creates an event that carries a message.
    pub fn message(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// Returns `true` if this is a `message` event with data.
    pub fn is_message(&self) -> bool {
        !self.data.is_empty() && self.event.as_deref().is_none_or(|name| name == "message")
    }
}

/// Encodes an event as it is written to a stream.
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
        put_field(&mut text, b"id", &strip_line_breaks(id));
    }
    if let Some(name) = &event.event {
        put_field(&mut text, b"event", &strip_line_breaks(name));
    }
    if let Some(retry) = event.retry {
        put_field(&mut text, b"retry", retry.as_millis().to_string().as_bytes());
    }
    if !event.data.is_empty() || event.id.is_some() || event.event.is_some() {
        put_data_lines(&mut text, &event.data);
    }
    text.push(b'\n');
    text.into()
}

fn put_field(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend_from_slice(name);
    text.push(b':');
    if !value.is_empty() {
        text.push(b' ');
        text.extend_from_slice(value);
    }
    text.push(b'\n');
}

/// Any line break ends a line for readers, so each line becomes a `data` field.
fn put_data_lines(text: &mut Vec<u8>, mut data: &[u8]) {
    while let Some(end) = memchr::memchr2(b'\r', b'\n', data) {
        put_field(text, b"data", &data[..end]);
        let is_pair = data[end..].starts_with(b"\r\n");
        data = &data[end + 1 + usize::from(is_pair)..];
    }
    put_field(text, b"data", data);
}

/// A line break would end the field, and readers ignore an id with a NUL.
fn strip_line_breaks(value: &str) -> Vec<u8> {
    value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)).collect()
}

/// The error for an event that exceeds the decoder's limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", too_large(*limit))]
pub struct EventTooLarge {
    /// Size limit in bytes.
    pub limit: usize,
    /// Requests that the event answers; empty if that is not known yet.
    pub(crate) answered: Vec<AnsweredRequest>,
    /// The event is a notification, as far as it has been read.
    pub(crate) is_notification: bool,
}

/// Beginning of a line of data.
const DATA_PREFIX: &[u8] = b"data:";

/// Incremental decoder of Server-Sent Events.
///
/// It buffers at most one event of maximum size and the last chunk pushed. An oversized event is reported at
/// once, then the rest of it is skipped. If it turns out only later to be the response to a request, it is reported
/// again.
///
/// ```
/// use pegboard_wire::http::sse::{SseDecoder, SseEvent};
///
/// let mut decoder = SseDecoder::new(1024);
/// decoder.push(b": hello\ndata: o");
/// assert_eq!(decoder.next_event(), None);
/// decoder.push(b"ne\r\n\r\n");
/// assert_eq!(decoder.next_event(), Some(Ok(SseEvent::message("one"))));
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    buffer: BytesMut,
    /// Number of buffered bytes known to contain no line break.
    searched: usize,
    builder: EventBuilder,
    max_bytes: usize,
    mode: DecoderMode,
    /// The oversized event that is skipped.
    oversized: Option<OversizedMessage>,
    /// `true` if the line that is being skipped is one of data.
    is_data_line: bool,
    /// `true` if the last line ended with a carriage return, so that an immediately following line feed
    /// belongs to it.
    after_return: bool,
}

/// Treatment of the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderMode {
    /// The first line, which may start with a byte-order mark.
    First,
    /// The line is parsed.
    Read,
    /// The line is skipped as part of an oversized event.
    Skip,
    /// The rest of a partially skipped line.
    SkipRest,
}

impl SseDecoder {
    /// Creates a decoder of events with at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            builder: EventBuilder::default(),
            max_bytes,
            mode: DecoderMode::First,
            oversized: None,
            is_data_line: false,
            after_return: false,
        }
    }

    /// Appends a chunk of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next complete event; `None` if more bytes are needed.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, EventTooLarge>> {
        if self.mode == DecoderMode::First && !self.skip_byte_order_mark() {
            return None;
        }
        while let Some(line) = self.next_line() {
            match self.mode {
                DecoderMode::Skip if line.is_empty() => {
                    self.mode = DecoderMode::Read;
                    let answered = self.oversized.take().map(OversizedMessage::finish).unwrap_or_default();
                    if !answered.is_empty() {
                        return Some(Err(self.too_large(answered)));
                    }
                }
                DecoderMode::Skip | DecoderMode::SkipRest => {
                    let answered = self.scan_skipped(&line);
                    self.mode = DecoderMode::Skip;
                    if answered.is_some() {
                        return Some(Err(self.too_large(answered)));
                    }
                }
                DecoderMode::First | DecoderMode::Read if line.is_empty() => {
                    if let Some(event) = self.builder.finish() {
                        return Some(Ok(event));
                    }
                }
                DecoderMode::First | DecoderMode::Read if self.builder.len + line.len() > self.max_bytes => {
                    let answered = self.skip().or(self.scan_skipped(&line));
                    return Some(Err(self.too_large(answered)));
                }
                DecoderMode::First | DecoderMode::Read => self.builder.add_line(&line),
            }
        }
        self.enforce_limit()
    }

    /// Skips a byte-order mark; returns `false` if more bytes are needed.
    fn skip_byte_order_mark(&mut self) -> bool {
        if self.buffer.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.buffer) {
            return false;
        }
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
        }
        self.mode = DecoderMode::Read;
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

    /// Enforces the size limit on an incomplete line.
    fn enforce_limit(&mut self) -> Option<Result<SseEvent, EventTooLarge>> {
        let is_read = matches!(self.mode, DecoderMode::First | DecoderMode::Read);
        if is_read && self.builder.len + self.buffer.len() <= self.max_bytes {
            return None;
        }
        let mut answered = if is_read { self.skip() } else { None };
        // The beginning of a line stays until it shows what the line is.
        if self.mode == DecoderMode::SkipRest || self.buffer.len() >= DATA_PREFIX.len() {
            let part = self.buffer.split();
            answered = answered.or(self.scan_skipped(&part));
            (self.mode, self.searched) = (DecoderMode::SkipRest, 0);
        }
        (is_read || answered.is_some()).then(|| Err(self.too_large(answered)))
    }

    /// Skips the current event. Returns the request that it answers, if that is known.
    fn skip(&mut self) -> Option<AnsweredRequest> {
        let data = mem::take(&mut self.builder).data;
        self.mode = DecoderMode::Skip;
        self.oversized.insert(OversizedMessage::default()).push(data.as_bytes())
    }

    /// Scans a line, or a part of one, of the event that is skipped.
    fn scan_skipped(&mut self, part: &[u8]) -> Option<AnsweredRequest> {
        let is_rest = self.mode == DecoderMode::SkipRest;
        let data = part.strip_prefix(DATA_PREFIX).filter(|_| !is_rest);
        if !is_rest {
            self.is_data_line = data.is_some();
        }
        self.oversized.as_mut().filter(|_| self.is_data_line)?.push(data.unwrap_or(part))
    }

    fn too_large(&self, answered: impl IntoIterator<Item = AnsweredRequest>) -> EventTooLarge {
        let is_notification = self.oversized.as_ref().is_some_and(OversizedMessage::is_notification);
        EventTooLarge { limit: self.max_bytes, answered: answered.into_iter().collect(), is_notification }
    }
}

/// The event under construction.
#[derive(Debug, Default)]
struct EventBuilder {
    event: SseEvent,
    data: EventData,
    has_fields: bool,
    len: usize,
}

/// The data of an event: a slice of the input while it is a single line.
#[derive(Debug, Default)]
enum EventData {
    #[default]
    None,
    Line(Bytes),
    Lines(BytesMut),
}

impl EventBuilder {
    fn add_line(&mut self, line: &Bytes) {
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
            EventData::None => Bytes::new(),
            EventData::Line(line) => line,
            EventData::Lines(lines) => lines.freeze(),
        };
        has_fields.then_some(event)
    }
}

impl EventData {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Line(line) => line,
            Self::Lines(lines) => lines,
        }
    }

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
