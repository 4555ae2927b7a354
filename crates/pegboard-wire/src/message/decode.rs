//! From bytes to messages: one pass that checks them all and notes where the envelope's members are.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{Frame, Id, Message, Notification, Others, Request, Response, RpcError, Unreadable};
use pegboard_json::RawJson;
use pegboard_json::scan::{self, Malformed, Scanner};

/// How many messages a batch may have: every one of them, however small, costs an error that answers it.
const MAX_BATCH: usize = 1000;

/// Reads one message, or a batch of them.
pub(super) fn frame(bytes: &Bytes, max_depth: usize) -> Result<Frame, Unreadable> {
    match scan_frame(bytes, max_depth) {
        Ok(Scanned::Object(envelope)) => envelope.message(bytes).map(Frame::One),
        Ok(Scanned::Other(span)) => batch(&bytes.slice(span)).map(Frame::Batch),
        Err(problem @ Malformed::TooDeep { .. }) => too_deep(bytes, problem).map(Frame::One),
        Err(problem) => Err(Unreadable::malformed(problem)),
    }
}

enum Scanned {
    Object(Envelope),
    Other(Range<usize>),
}

fn scan_frame(bytes: &[u8], max_depth: usize) -> Result<Scanned, Malformed> {
    let mut scanner = Scanner::new(bytes, max_depth)?;
    let found = if scanner.peek() == Some(b'{') {
        let mut envelope = Envelope::default();
        scanner.object(|key, value| envelope.note(bytes, key, value))?;
        Scanned::Object(envelope)
    } else {
        Scanned::Other(scanner.value()?)
    };
    scanner.finish()?;
    Ok(found)
}

fn batch(array: &Bytes) -> Result<Vec<Result<Message, Unreadable>>, Unreadable> {
    if array.first() != Some(&b'[') {
        return Err(Unreadable::invalid("a message is an object"));
    }
    let messages: Vec<_> = scan::items(array)
        .take(MAX_BATCH + 1)
        .map(|span| match array[span.start] {
            b'{' => Envelope::of(&array[span.clone()]).message(&array.slice(span)),
            b'[' => Err(Unreadable::invalid("a batch inside a batch")),
            _ => Err(Unreadable::invalid("a message is an object")),
        })
        .collect();
    match messages.len() {
        0 => Err(Unreadable::invalid("an empty batch")),
        1..=MAX_BATCH => Ok(messages),
        _ => Err(Unreadable::invalid(format_args!("a batch of more than {MAX_BATCH} messages"))),
    }
}

/// Refuses a message that nests too deep, by its id all the same, so that whoever waits for it can stop.
fn too_deep(bytes: &Bytes, problem: Malformed) -> Result<Message, Unreadable> {
    match scan_frame(bytes, usize::MAX) {
        Ok(Scanned::Object(envelope)) => envelope.refuse(bytes, problem),
        Ok(Scanned::Other(_)) => Err(Unreadable::malformed(problem)),
        Err(worse) => Err(Unreadable::malformed(worse)),
    }
}

/// The members that JSON-RPC knows.
#[derive(Clone, Copy)]
enum Member {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
}

const MEMBERS: [(&str, Member); 6] = [
    ("jsonrpc", Member::Version),
    ("id", Member::Id),
    ("method", Member::Method),
    ("params", Member::Params),
    ("result", Member::Result),
    ("error", Member::Error),
];

/// Where the members of one message are.
#[derive(Default)]
struct Envelope {
    known: [Option<Range<usize>>; 6],
    /// The text of those that JSON-RPC does not know, each behind a comma.
    others: Vec<u8>,
    /// A member that is there twice.
    twice: Option<&'static str>,
}

/// What a message has as its id.
enum IdMember {
    Absent,
    Null,
    Valid(Id),
    Invalid,
}

impl Envelope {
    /// The envelope of an object that is known to be well-formed.
    fn of(object: &[u8]) -> Self {
        let mut envelope = Self::default();
        for (key, value) in scan::members(object) {
            envelope.note(object, key, value);
        }
        envelope
    }

    fn note(&mut self, bytes: &[u8], key: Range<usize>, value: Range<usize>) {
        let Some(&(name, member)) = MEMBERS.iter().find(|(name, _)| scan::spells(&bytes[key.clone()], name))
        else {
            self.keep(&bytes[key], &bytes[value]);
            return;
        };
        // Two ids are worse than anything else that is there twice.
        if self.known[member as usize].replace(value).is_some() && self.twice != Some("id") {
            self.twice = Some(name);
        }
    }

    fn keep(&mut self, key: &[u8], value: &[u8]) {
        for part in [b",", key, b":", value] {
            self.others.extend_from_slice(part);
        }
    }

    fn has(&self, member: Member) -> bool {
        self.known[member as usize].is_some()
    }

    fn peek<'a>(&self, bytes: &'a [u8], member: Member) -> Option<&'a [u8]> {
        self.known[member as usize].clone().map(|span| &bytes[span])
    }

    fn get(&self, bytes: &Bytes, member: Member) -> Option<RawJson> {
        self.known[member as usize].clone().map(|span| RawJson::trusted(bytes.slice(span)))
    }

    /// The message that it is.
    fn message(self, bytes: &Bytes) -> Result<Message, Unreadable> {
        if let Some(name) = self.twice {
            return self.refuse(bytes, format_args!("`{name}` is there twice"));
        }
        if !self.peek(bytes, Member::Version).is_some_and(|version| scan::spells(version, "2.0")) {
            return self.refuse(bytes, "`jsonrpc` must be \"2.0\"");
        }
        if self.has(Member::Method) { self.call(bytes) } else { self.answer(bytes) }
    }

    fn call(self, bytes: &Bytes) -> Result<Message, Unreadable> {
        if self.has(Member::Result) || self.has(Member::Error) {
            return self.refuse(bytes, "both a call and an answer");
        }
        let Some(method) = self.peek(bytes, Member::Method).and_then(scan::said).map(Arc::from) else {
            return self.refuse(bytes, "`method` must be a string");
        };
        // JSON-RPC has no null here, but some clients send it when they have nothing to say.
        let params = self.get(bytes, Member::Params).filter(|params| params.as_bytes() != b"null");
        if params.as_ref().is_some_and(|params| !matches!(params.as_bytes(), [b'{' | b'[', ..])) {
            return self.refuse(bytes, "`params` must be an object or an array");
        }
        let id = match self.id(bytes) {
            IdMember::Valid(id) => Some(id),
            IdMember::Absent => None,
            IdMember::Null | IdMember::Invalid => {
                return self.refuse(bytes, "`id` must be a string or an integer");
            }
        };
        let others = Others(self.others.into());
        Ok(match id {
            Some(id) => Message::Request(Request { id, method, params, others }),
            None => Message::Notification(Notification { method, params, others }),
        })
    }

    fn answer(mut self, bytes: &Bytes) -> Result<Message, Unreadable> {
        let result = match (self.get(bytes, Member::Result), self.get(bytes, Member::Error)) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(RpcError::of_peer(error)),
            (Some(_), Some(_)) => return self.refuse(bytes, "both a result and an error"),
            (None, None) => return self.refuse(bytes, "neither a call nor an answer"),
        };
        let id = match self.id(bytes) {
            IdMember::Valid(id) => Some(id),
            IdMember::Null if result.is_err() => None,
            IdMember::Null | IdMember::Absent | IdMember::Invalid => {
                return self.refuse(bytes, "an answer needs the `id` of its request");
            }
        };
        // Parameters are nothing that an answer has; they pass like any other member.
        if let Some(params) = self.peek(bytes, Member::Params) {
            self.keep(br#""params""#, params);
        }
        Ok(Message::Response(Response { id, result, others: Others(self.others.into()) }))
    }

    /// What becomes of a message that is none.
    ///
    /// If it was meant as an answer, it is one, namely an error: it must not be answered, and the request
    /// that it belongs to has ended.
    fn refuse(&self, bytes: &Bytes, problem: impl fmt::Display) -> Result<Message, Unreadable> {
        let id = match self.id(bytes) {
            // Of two ids neither can be trusted.
            IdMember::Valid(id) if self.twice != Some("id") => Some(id),
            _ => None,
        };
        let is_answer = !self.has(Member::Method) && (self.has(Member::Result) || self.has(Member::Error));
        if is_answer && id.is_some() {
            return Ok(Message::response(id, Err(RpcError::invalid_answer(problem))));
        }
        Err(Unreadable { id, has_method: self.has(Member::Method), ..Unreadable::invalid(problem) })
    }

    fn id(&self, bytes: &[u8]) -> IdMember {
        match self.peek(bytes, Member::Id) {
            None => IdMember::Absent,
            Some(b"null") => IdMember::Null,
            Some(id) => Id::of(id).map_or(IdMember::Invalid, IdMember::Valid),
        }
    }
}
