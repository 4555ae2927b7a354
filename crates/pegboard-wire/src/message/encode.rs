//! Message encoding: written once, into a buffer of exactly the right size.

use super::{Id, Message, Request, RpcError};
use pegboard_json::RawJson;

/// A destination of encoded bytes.
pub(crate) trait ByteSink {
    /// Appends bytes.
    fn put(&mut self, text: &[u8]);
}

impl ByteSink for Vec<u8> {
    fn put(&mut self, text: &[u8]) {
        for part in text.chunks(COPY_CHUNK_BYTES) {
            self.extend_from_slice(part);
        }
    }
}

/// Maximum number of bytes copied at once.
///
/// For more than 2 KB the C library uses `rep movsb`, which Zen 3 is slow at if the target lies a little further
/// in its page than the source: 215 KB then took 73 µs in one piece, and 5 µs in parts.
const COPY_CHUNK_BYTES: usize = 1024;

/// Counts bytes without storing them.
#[derive(Default)]
pub(super) struct LengthCounter(pub(super) usize);

impl ByteSink for LengthCounter {
    fn put(&mut self, text: &[u8]) {
        self.0 += text.len();
    }
}

/// Writes line breaks as spaces.
pub(super) struct SingleLine<'a>(pub(super) &'a mut Vec<u8>);

impl ByteSink for SingleLine<'_> {
    fn put(&mut self, text: &[u8]) {
        let space = |&byte: &u8| if byte == b'\n' || byte == b'\r' { b' ' } else { byte };
        self.0.extend(text.iter().map(space));
    }
}

/// Beginning of every message.
const START: &[u8] = br#"{"jsonrpc":"2.0""#;

/// Text before the result of a response.
const RESULT: &[u8] = br#","result":"#;

/// Returns the encoded length of a message.
pub(super) fn length(message: &Message) -> usize {
    let mut length = LengthCounter::default();
    self::message(message, &mut length);
    length.0
}

/// Encodes one message.
pub(super) fn message(message: &Message, sink: &mut impl ByteSink) {
    if let Message::Request(request) = message {
        return self::request(request, sink);
    }
    sink.put(START);
    let extra = match message {
        Message::Request(request) => &request.extra,
        Message::Notification(notification) => {
            call(&notification.method, notification.params.as_ref(), sink);
            &notification.extra
        }
        Message::Response(response) => {
            id(response.id.as_ref(), sink);
            match &response.result {
                Ok(result) => {
                    sink.put(RESULT);
                    sink.put(result.as_bytes());
                }
                Err(problem) => {
                    sink.put(br#","error":"#);
                    error(problem, sink);
                }
            }
            &response.extra
        }
    };
    sink.put(&extra.0);
    sink.put(b"}");
}

/// Encodes the text of a response before its result. Behind the result it is closed by a brace.
pub(super) fn before_result(request_id: &Id, sink: &mut impl ByteSink) {
    sink.put(START);
    id(Some(request_id), sink);
    sink.put(RESULT);
}

/// Encodes the text of a request before its parameters.
pub(super) fn before_params(request_id: i64, method: &str, sink: &mut impl ByteSink) {
    sink.put(START);
    id(Some(&Id::Number(request_id)), sink);
    call(method, None, sink);
}

/// Encodes a request.
pub(super) fn request(request: &Request, sink: &mut impl ByteSink) {
    sink.put(START);
    id(Some(&request.id), sink);
    call(&request.method, request.params.as_ref(), sink);
    sink.put(&request.extra.0);
    sink.put(b"}");
}

/// Encodes several messages as an array.
pub(super) fn batch(messages: &[Message], sink: &mut impl ByteSink) {
    sink.put(b"[");
    for (index, message) in messages.iter().enumerate() {
        if index > 0 {
            sink.put(b",");
        }
        self::message(message, sink);
    }
    sink.put(b"]");
}

/// Encodes an error object.
pub(super) fn error(error: &RpcError, sink: &mut impl ByteSink) {
    if let Some(raw) = error.unchanged_raw() {
        return sink.put(raw.as_bytes());
    }
    sink.put(br#"{"code":"#);
    number(error.code, sink);
    sink.put(br#","message":"#);
    string(&error.message, sink);
    if let Some(data) = &error.data {
        sink.put(br#","data":"#);
        sink.put(data.as_bytes());
    }
    sink.put(b"}");
}

fn id(id: Option<&Id>, sink: &mut impl ByteSink) {
    sink.put(br#","id":"#);
    match id {
        None => sink.put(b"null"),
        Some(Id::Number(id)) => number(*id, sink),
        Some(Id::Text(id)) => string(id, sink),
    }
}

fn call(method: &str, params: Option<&RawJson>, sink: &mut impl ByteSink) {
    sink.put(br#","method":"#);
    string(method, sink);
    if let Some(params) = params {
        sink.put(br#","params":"#);
        sink.put(params.as_bytes());
    }
}

/// All pairs of digits, in order.
const DIGIT_PAIRS: &[u8; 200] = b"\
    0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
    5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/// Encodes a number.
pub(crate) fn number(number: i64, sink: &mut impl ByteSink) {
    if number < 0 {
        sink.put(b"-");
    }
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number.unsigned_abs();
    // Two at a time: a division costs more than all else.
    while rest >= 100 {
        first -= 2;
        let pair = (rest % 100) as usize;
        digits[first..first + 2].copy_from_slice(&DIGIT_PAIRS[2 * pair..2 * pair + 2]);
        rest /= 100;
    }
    let pair = 2 * (rest % 100) as usize;
    if rest >= 10 {
        first -= 1;
        digits[first] = DIGIT_PAIRS[pair + 1];
    }
    first -= 1;
    digits[first] = DIGIT_PAIRS[if rest >= 10 { pair } else { pair + 1 }];
    sink.put(&digits[first..]);
}

fn string(text: &str, sink: &mut impl ByteSink) {
    sink.put(b"\"");
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20)) {
        sink.put(&rest[..at]);
        escape(rest[at], sink);
        rest = &rest[at + 1..];
    }
    sink.put(rest);
    sink.put(b"\"");
}

fn escape(byte: u8, sink: &mut impl ByteSink) {
    let hex = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    match byte {
        b'"' => sink.put(br#"\""#),
        b'\\' => sink.put(br"\\"),
        b'\n' => sink.put(br"\n"),
        b'\r' => sink.put(br"\r"),
        b'\t' => sink.put(br"\t"),
        _ => sink.put(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 0xf)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_written_in_decimal() {
        let powers = (0..19).map(|exponent| 10_i64.pow(exponent));
        let around = powers.flat_map(|power| [power - 1, power, power + 1, 7 * (power / 3)]);
        for value in around.chain([i64::MAX, i64::MIN]).flat_map(|value| [value, value.wrapping_neg()]) {
            let mut text = Vec::new();
            number(value, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), value.to_string());
        }
    }
}
