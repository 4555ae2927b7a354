//! JSON-RPC messages: the envelope is read, what it carries stays as it came.

mod decode;
mod encode;
mod error;
mod id;

use std::sync::Arc;

use bytes::Bytes;

use pegboard_json::RawJson;

pub use error::{RpcError, Unreadable, code};
pub use id::Id;

/// One JSON-RPC message.
///
/// ```
/// use pegboard_wire::{Frame, MAX_DEPTH, Message};
///
/// let line = r#"{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "n": 1e2}}"#;
/// let frame = Message::decode(line.into(), MAX_DEPTH)?;
/// let Frame::One(Message::Request(mut request)) = frame else { panic!("no request") };
/// assert_eq!(&*request.method, "tools/call");
///
/// request.id = pegboard_wire::Id::Number(8);
/// assert_eq!(
///     Message::Request(request).encode(),
///     r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name": "add", "n": 1e2}}"#,
/// );
/// # Ok::<(), pegboard_wire::Unreadable>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Asks for an answer.
    Request(Request),
    /// Tells something.
    Notification(Notification),
    /// Answers a request.
    Response(Response),
}

/// Asks for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What the answer must carry.
    pub id: Id,
    /// What is asked for.
    pub method: Arc<str>,
    /// With what; an object or an array.
    pub params: Option<RawJson>,
    others: Others,
}

/// Tells something.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// What happened.
    pub method: Arc<str>,
    /// With what; an object or an array.
    pub params: Option<RawJson>,
    others: Others,
}

/// Answers a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The request's id; `None` only in an error about a request that could not be read.
    pub id: Option<Id>,
    /// The result, or the error as it came.
    pub result: Result<RawJson, RpcError>,
    others: Others,
}

/// What one piece of input holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// One message.
    One(Message),
    /// Several at once, as revision 2025-03-26 allows; those that cannot be read are errors.
    Batch(Vec<Result<Message, Unreadable>>),
}

impl Request {
    /// A request made here.
    pub fn new(id: Id, method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self { id, method: method.into(), params, others: Others::default() }
    }
}

impl Notification {
    /// A notification made here.
    pub fn new(method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self { method: method.into(), params, others: Others::default() }
    }
}

impl Response {
    /// An answer made here.
    pub fn new(id: Option<Id>, result: Result<RawJson, RpcError>) -> Self {
        Self { id, result, others: Others::default() }
    }
}

impl Message {
    /// A request.
    pub fn request(id: Id, method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self::Request(Request::new(id, method, params))
    }

    /// A notification.
    pub fn notification(method: impl Into<Arc<str>>, params: Option<RawJson>) -> Self {
        Self::Notification(Notification::new(method, params))
    }

    /// An answer.
    pub fn response(id: Option<Id>, result: Result<RawJson, RpcError>) -> Self {
        Self::Response(Response::new(id, result))
    }

    /// Reads one message, or a batch of them.
    ///
    /// Strict about the envelope: exact member names, none of them twice, ids that are strings or integers.
    /// Members that JSON-RPC does not know are kept, and encoded again behind those that it does. An answer
    /// that breaks these rules and has an id is one with an error, so that its request does not wait for ever.
    ///
    /// ```
    /// use pegboard_wire::{Id, MAX_DEPTH, Message, code};
    ///
    /// let line = r#"{"jsonrpc":"2.0","id":"a","method":5}"#;
    /// let unreadable = Message::decode(line.into(), MAX_DEPTH).unwrap_err();
    /// assert_eq!(unreadable.id, Some(Id::Text("a".into())));
    /// assert_eq!(unreadable.error.code, code::INVALID_REQUEST);
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "the messages keep parts of their input alive")]
    pub fn decode(bytes: Bytes, max_depth: usize) -> Result<Frame, Unreadable> {
        decode::frame(&bytes, max_depth)
    }

    /// The message as bytes, without a line break in the parts that are ours.
    pub fn encode(&self) -> Bytes {
        let mut text = Vec::new();
        self.encode_into(&mut text);
        text.into()
    }

    /// Writes the message behind what `text` holds.
    pub fn encode_into(&self, text: &mut Vec<u8>) {
        text.reserve(encode::length(self));
        encode::message(self, text);
    }

    /// Writes the message as one line, with the line feed, behind what `text` holds.
    ///
    /// Line breaks inside what the message carries, which JSON has only between tokens, become spaces.
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
        encode::message(self, &mut encode::Line(text));
        text.push(b'\n');
    }

    /// Several messages as one array, as revision 2025-03-26 allows.
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

/// The members of an envelope that JSON-RPC does not know: their text as it came, each behind a comma.
#[derive(Clone, Debug, Default, PartialEq)]
struct Others(Box<[u8]>);
