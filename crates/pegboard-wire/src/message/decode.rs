//! Message decoding: one pass validates the input and locates the envelope members.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{ExtraMembers, Frame, Id, InvalidMessage, Message, Notification, Request, Response, RpcError};
use pegboard_json::RawJson;
use pegboard_json::scan::{self, Malformed, MemberSpans, Scanner};

/// Maximum number of messages in a batch: each one, however small, costs an error response.
const MAX_BATCH: usize = 1000;

/// Decodes one message or a batch.
pub(super) fn frame(bytes: &Bytes, max_depth: usize) -> Result<Frame, InvalidMessage> {
    match scan_frame(bytes, max_depth) {
        Ok(ScannedFrame::Object(envelope)) => envelope.message(bytes).map(Frame::Single),
        Ok(ScannedFrame::Other(span)) => batch(&bytes.slice(span)).map(Frame::Batch),
        Err(problem @ Malformed::TooDeep { .. }) => too_deep(bytes, problem).map(Frame::Single),
        Err(problem) => Err(InvalidMessage::malformed(problem)),
    }
}

enum ScannedFrame {
    Object(Envelope),
    Other(Range<usize>),
}

fn scan_frame(bytes: &[u8], max_depth: usize) -> Result<ScannedFrame, Malformed> {
    let mut scanner = Scanner::new(bytes, max_depth)?;
    let found = if scanner.peek() == Some(b'{') {
        let mut envelope = Envelope::default();
        scanner.object(|key, value, members| envelope.record(bytes, key, value, members))?;
        ScannedFrame::Object(envelope)
    } else {
        ScannedFrame::Other(scanner.value()?)
    };
    scanner.finish()?;
    Ok(found)
}

fn batch(array: &Bytes) -> Result<Vec<Result<Message, InvalidMessage>>, InvalidMessage> {
    if array.first() != Some(&b'[') {
        return Err(InvalidMessage::invalid("a message must be an object"));
    }
    let messages: Vec<_> = scan::items(array)
        .take(MAX_BATCH + 1)
        .map(|span| match array[span.start] {
            b'{' => Envelope::of(&array[span.clone()]).message(&array.slice(span)),
            b'[' => Err(InvalidMessage::invalid("nested batch")),
            _ => Err(InvalidMessage::invalid("a message must be an object")),
        })
        .collect();
    match messages.len() {
        0 => Err(InvalidMessage::invalid("empty batch")),
        1..=MAX_BATCH => Ok(messages),
        _ => Err(InvalidMessage::invalid(format_args!("batch of more than {MAX_BATCH} messages"))),
    }
}

/// Rejects a message that nests too deeply, by its id if possible, so that its request can fail.
fn too_deep(bytes: &Bytes, problem: Malformed) -> Result<Message, InvalidMessage> {
    match scan_frame(bytes, usize::MAX) {
        Ok(ScannedFrame::Object(envelope)) => envelope.reject(bytes, problem),
        Ok(ScannedFrame::Other(_)) => Err(InvalidMessage::malformed(problem)),
        Err(worse) => Err(InvalidMessage::malformed(worse)),
    }
}

/// The members defined by JSON-RPC.
#[derive(Clone, Copy)]
enum EnvelopeMember {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
}

const MEMBERS: [(&str, EnvelopeMember); 6] = [
    ("jsonrpc", EnvelopeMember::Version),
    ("id", EnvelopeMember::Id),
    ("method", EnvelopeMember::Method),
    ("params", EnvelopeMember::Params),
    ("result", EnvelopeMember::Result),
    ("error", EnvelopeMember::Error),
];

/// Positions of the members of one message.
#[derive(Default)]
struct Envelope {
    known: [Option<Range<usize>>; 6],
    /// Raw text of unknown members, each after a comma.
    extra: Vec<u8>,
    params_members: Option<Arc<MemberSpans>>,
    result_members: Option<Arc<MemberSpans>>,
    /// Name of a duplicate member.
    duplicate: Option<&'static str>,
}

/// The parsed `id` member of a message.
enum IdMember {
    Absent,
    Null,
    Valid(Id),
    Invalid,
}

impl Envelope {
    /// Locates the members of an object that is known to be well-formed.
    fn of(object: &[u8]) -> Self {
        let mut envelope = Self::default();
        for (key, value) in scan::members(object) {
            envelope.record(object, key, value, None);
        }
        envelope
    }

    fn record(
        &mut self,
        bytes: &[u8],
        key: Range<usize>,
        value: Range<usize>,
        members: Option<&MemberSpans>,
    ) {
        let Some(&(name, member)) =
            MEMBERS.iter().find(|(name, _)| scan::string_equals(&bytes[key.clone()], name))
        else {
            self.keep_extra(&bytes[key], &bytes[value]);
            return;
        };
        match member {
            EnvelopeMember::Params => self.params_members = members.cloned().map(Arc::new),
            EnvelopeMember::Result => self.result_members = members.cloned().map(Arc::new),
            _ => {}
        }
        // A duplicate id takes precedence over other duplicates.
        if self.known[member as usize].replace(value).is_some() && self.duplicate != Some("id") {
            self.duplicate = Some(name);
        }
    }

    fn keep_extra(&mut self, key: &[u8], value: &[u8]) {
        for part in [b",", key, b":", value] {
            self.extra.extend_from_slice(part);
        }
    }

    fn has(&self, member: EnvelopeMember) -> bool {
        self.known[member as usize].is_some()
    }

    fn peek<'a>(&self, bytes: &'a [u8], member: EnvelopeMember) -> Option<&'a [u8]> {
        self.known[member as usize].clone().map(|span| &bytes[span])
    }

    fn get(&self, bytes: &Bytes, member: EnvelopeMember) -> Option<RawJson> {
        let span = self.known[member as usize].clone()?;
        let members = match member {
            EnvelopeMember::Params => self.params_members.clone(),
            EnvelopeMember::Result => self.result_members.clone(),
            _ => None,
        };
        Some(RawJson::scanned(bytes.slice(span), members))
    }

    /// Builds the message.
    fn message(self, bytes: &Bytes) -> Result<Message, InvalidMessage> {
        if let Some(name) = self.duplicate {
            return self.reject(bytes, format_args!("duplicate `{name}`"));
        }
        if !self
            .peek(bytes, EnvelopeMember::Version)
            .is_some_and(|version| scan::string_equals(version, "2.0"))
        {
            return self.reject(bytes, "`jsonrpc` must be \"2.0\"");
        }
        if self.has(EnvelopeMember::Method) { self.parse_call(bytes) } else { self.parse_response(bytes) }
    }

    fn parse_call(self, bytes: &Bytes) -> Result<Message, InvalidMessage> {
        if self.has(EnvelopeMember::Result) || self.has(EnvelopeMember::Error) {
            return self.reject(bytes, "both a call and a response");
        }
        let Some(method) =
            self.peek(bytes, EnvelopeMember::Method).and_then(scan::decode_string).map(Arc::from)
        else {
            return self.reject(bytes, "`method` must be a string");
        };
        // JSON-RPC has no null here, but some clients send it in place of absent parameters.
        let params = self.get(bytes, EnvelopeMember::Params).filter(|params| params.as_bytes() != b"null");
        if params.as_ref().is_some_and(|params| !matches!(params.as_bytes(), [b'{' | b'[', ..])) {
            return self.reject(bytes, "`params` must be an object or an array");
        }
        let id = match self.id(bytes) {
            IdMember::Valid(id) => Some(id),
            IdMember::Absent => None,
            IdMember::Null | IdMember::Invalid => {
                return self.reject(bytes, "`id` must be a string or an integer");
            }
        };
        let extra = ExtraMembers(self.extra.into());
        Ok(match id {
            Some(id) => Message::Request(Request { id, method, params, extra }),
            None => Message::Notification(Notification { method, params, extra }),
        })
    }

    fn parse_response(mut self, bytes: &Bytes) -> Result<Message, InvalidMessage> {
        let result = match (self.get(bytes, EnvelopeMember::Result), self.get(bytes, EnvelopeMember::Error)) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(RpcError::from_peer(error)),
            (Some(_), Some(_)) => return self.reject(bytes, "both a result and an error"),
            (None, None) => return self.reject(bytes, "neither a call nor a response"),
        };
        let id = match self.id(bytes) {
            IdMember::Valid(id) => Some(id),
            IdMember::Null if result.is_err() => None,
            IdMember::Null | IdMember::Absent | IdMember::Invalid => {
                return self.reject(bytes, "a response needs the `id` of its request");
            }
        };
        // `params` is not part of a response; it is kept like any unknown member.
        if let Some(params) = self.peek(bytes, EnvelopeMember::Params) {
            self.keep_extra(br#""params""#, params);
        }
        Ok(Message::Response(Response { id, result, extra: ExtraMembers(self.extra.into()) }))
    }

    /// Rejects a malformed message.
    ///
    /// If it was meant as a response, it becomes an error response: it must not be answered, and the request
    /// it belongs to has ended.
    fn reject(&self, bytes: &Bytes, problem: impl fmt::Display) -> Result<Message, InvalidMessage> {
        let id = match self.id(bytes) {
            // A duplicate id cannot be trusted.
            IdMember::Valid(id) if self.duplicate != Some("id") => Some(id),
            _ => None,
        };
        let is_answer = !self.has(EnvelopeMember::Method)
            && (self.has(EnvelopeMember::Result) || self.has(EnvelopeMember::Error));
        if is_answer && id.is_some() {
            return Ok(Message::response(id, Err(RpcError::invalid_response(problem))));
        }
        Err(InvalidMessage {
            id,
            has_method: self.has(EnvelopeMember::Method),
            ..InvalidMessage::invalid(problem)
        })
    }

    fn id(&self, bytes: &[u8]) -> IdMember {
        match self.peek(bytes, EnvelopeMember::Id) {
            None => IdMember::Absent,
            Some(b"null") => IdMember::Null,
            Some(id) => Id::parse(id).map_or(IdMember::Invalid, IdMember::Valid),
        }
    }
}
