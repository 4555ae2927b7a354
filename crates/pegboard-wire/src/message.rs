//! JSON-RPC messages: the envelope is parsed, the payload stays raw.

mod decode;
pub(crate) mod encode;
mod error;
mod id;
pub(crate) mod outgoing;
pub(crate) mod outline;

use std::sync::Arc;

use bytes::Bytes;

use pegboard_json::RawJson;

pub use error::{InvalidMessage, RpcError, code};
pub use id::Id;

/// One JSON-RPC message.
///
/// ```
/// use pegboard_wire::{Frame, MAX_DEPTH, Message};
///
/// let line = r#"{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "n": 1e2}}"#;
/// let frame = Message::decode(line.into(), MAX_DEPTH)?;
/// let Frame::Single(Message::Request(mut request)) = frame else { panic!("no request") };
/// assert_eq!(&*request.method, "tools/call");
///
/// request.id = pegboard_wire::Id::Number(8);
/// assert_eq!(
///     Message::Request(request).encode(),
///     r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name": "add", "n": 1e2}}"#,
/// );
/// # Ok::<(), pegboard_wire::InvalidMessage>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A request.
    Request(Request),
    /// A notification.
    Notification(Notification),
    /// A response.
    Response(Response),
}

/// A JSON-RPC request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The id, which the response repeats.
    pub id: Id,
    /// The method name.
    pub method: Arc<str>,
    /// The parameters: an object or an array.
    pub params: Option<RawJson>,
    extra: ExtraMembers,
}

/// A JSON-RPC notification.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// The method name.
    pub method: Arc<str>,
    /// The parameters: an object or an array.
    pub params: Option<RawJson>,
    extra: ExtraMembers,
}

/// A JSON-RPC response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The id of the request; `None` only in an error about an unreadable request.
    pub id: Option<Id>,
    /// The result, or the error as received.
    pub result: Result<RawJson, RpcError>,
    extra: ExtraMembers,
}

/// The content of one unit of input.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// One message.
    Single(Message),
    /// A batch, as in revision 2025-03-26; unreadable messages are errors.
    Batch(Vec<Result<Message, InvalidMessage>>),
}

impl Request {
    /// Creates a request.
    pub fn new(id: Id, method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self { id, method: method.into(), params, extra: ExtraMembers::default() }
    }
}

impl Notification {
    /// Creates a notification.
    pub fn new(method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self { method: method.into(), params, extra: ExtraMembers::default() }
    }
}

impl Response {
    /// Creates a response.
    pub fn new(id: Option<Id>, result: Result<RawJson, RpcError>) -> Self {
        Self { id, result, extra: ExtraMembers::default() }
    }
}

impl Message {
    /// Creates a request.
    pub fn request(id: Id, method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self::Request(Request::new(id, method, params))
    }

    /// Creates a notification.
    pub fn notification(method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self::Notification(Notification::new(method, params))
    }

    /// Creates a response.
    pub fn response(id: Option<Id>, result: Result<RawJson, RpcError>) -> Self {
        Self::Response(Response::new(id, result))
    }

    /// Decodes one message or a batch.
    ///
    /// Strict about the envelope: exact member names, no duplicates, ids that are strings or integers.
    /// Unknown members are kept, and encoded after the known ones. An invalid response with an id becomes an
    /// error response, so that its request does not wait for ever.
    ///
    /// ```
    /// use pegboard_wire::{Id, MAX_DEPTH, Message, code};
    ///
    /// let line = r#"{"jsonrpc":"2.0","id":"a","method":5}"#;
    /// let invalid = Message::decode(line.into(), MAX_DEPTH).unwrap_err();
    /// assert_eq!(invalid.id, Some(Id::Text("a".into())));
    /// assert_eq!(invalid.error.code, code::INVALID_REQUEST);
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "the messages keep parts of their input alive")]
    pub fn decode(bytes: Bytes, max_depth: usize) -> Result<Frame, InvalidMessage> {
        Self::decode_shared(&bytes, max_depth)
    }

    /// Decodes one message or a batch, without taking the input.
    pub(crate) fn decode_shared(bytes: &Bytes, max_depth: usize) -> Result<Frame, InvalidMessage> {
        decode::frame(bytes, max_depth)
    }

    /// Encodes the message, without line breaks outside the payload.
    pub fn encode(&self) -> Bytes {
        let mut text = Vec::new();
        self.encode_into(&mut text);
        text.into()
    }

    /// Encodes a response as the parts of its text: a large result is not copied.
    pub(crate) fn encode_response(id: &Id, result: Result<RawJson, RpcError>) -> [Bytes; 3] {
        match result {
            Ok(result) if result.as_bytes().len() >= MIN_PART_BYTES => {
                let mut start = Vec::with_capacity(64);
                encode::before_result(id, &mut start);
                [start.into(), result.into_bytes(), Bytes::from_static(b"}")]
            }
            result => [Self::response(Some(id.clone()), result).encode(), Bytes::new(), Bytes::new()],
        }
    }

    /// Appends the encoded message to `text`.
    pub fn encode_into(&self, text: &mut Vec<u8>) {
        text.reserve(encode::length(self));
        encode::message(self, text);
    }

    /// Appends the message to `text` as a single line with a line feed.
    ///
    /// Line breaks inside the payload, which JSON has only between tokens, become spaces.
    ///
    /// ```
    /// use pegboard_wire::{Message, RawJson};
    ///
    /// let pretty = RawJson::parse("{\n  \"a\": \"x\\n\"\r\n}".into()).unwrap();
    /// let mut line = Vec::new();
    /// Message::notification("note", Some(pretty)).encode_line(&mut line);
    /// assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"method\":\"note\",\"params\":{   \"a\": \"x\\n\"  }}\n");
    /// ```
    pub fn encode_line(&self, text: &mut Vec<u8>) {
        text.reserve(encode::length(self) + 1);
        encode::message(self, &mut encode::SingleLine(text));
        text.push(b'\n');
    }

    /// Encodes several messages as an array, as in revision 2025-03-26.
    ///
    /// ```
    /// use pegboard_wire::Message;
    ///
    /// let messages = [Message::notification("a", None), Message::notification("b", None)];
    /// let batch = Message::encode_batch(&messages);
    /// assert_eq!(batch, r#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]"#);
    /// ```
    pub fn encode_batch(messages: &[Self]) -> Bytes {
        let commas = messages.len().saturating_sub(1);
        let mut text = Vec::with_capacity(messages.iter().map(encode::length).sum::<usize>() + commas + 2);
        encode::batch(messages, &mut text);
        text.into()
    }
}

/// Minimum size of a result that is a part of its own: a smaller one is copied in less time than it takes to
/// write three parts.
const MIN_PART_BYTES: usize = 4 * 1024;

/// Envelope members unknown to JSON-RPC: their raw text, each after a comma.
#[derive(Clone, Debug, Default, PartialEq)]
struct ExtraMembers(Box<[u8]>);
