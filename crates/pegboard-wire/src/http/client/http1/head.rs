//! Head of a response: status, headers, and the framing of the body that follows from them.

use std::io;

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::body::BodyReader;

/// Maximum size of a head in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum number of headers.
const MAX_HEADERS: usize = 100;

/// Maximum number of interim responses before the final one.
const MAX_INTERIM: usize = 16;

/// Content type of a body that is delivered in parts.
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Content type of most responses, as it is usually written.
const JSON: &[u8] = b"application/json";

/// Head of a final response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// Status line and headers, as they arrived.
    text: Bytes,
    pub(crate) body: BodyReader,
    /// `true` if the connection closes after this response.
    pub(crate) is_last: bool,
    /// `true` if the body is JSON, and not encoded.
    pub(crate) is_plain_json: bool,
}

impl ResponseHead {
    /// Removes a head from the input; `None` if it is not complete. `n_interim` counts the interim responses to the
    /// request so far.
    pub(super) fn take(input: &mut BytesMut, n_interim: &mut usize) -> io::Result<Option<Self>> {
        while !input.is_empty() {
            let Some((fields, n_bytes)) = HeadFields::parse(input)? else { return Ok(None) };
            let text = input.split_to(n_bytes);
            if fields.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(invalid("the server switched to another protocol"));
            }
            if !fields.status.is_informational() {
                let body = fields.body()?;
                return Ok(Some(Self {
                    status: fields.status,
                    text: text.freeze(),
                    is_last: !fields.is_kept_alive(&body),
                    is_plain_json: fields.is_json == Some(true) && !fields.is_encoded,
                    body,
                }));
            }
            *n_interim += 1;
            if *n_interim > MAX_INTERIM {
                return Err(invalid("the server sent too many interim responses"));
            }
        }
        Ok(None)
    }

    /// Returns the values of a header. `name` is in lower case.
    pub(crate) fn header_values<'h, 'n>(
        &'h self,
        name: &'n str,
    ) -> impl Iterator<Item = &'h [u8]> + use<'h, 'n> {
        // The parser has accepted it: each line is a name, a colon and a value.
        let mut rest = &self.text[..];
        let lines = std::iter::from_fn(move || {
            let (line, behind) = rest.split_at(memchr::memchr(b'\n', rest)?);
            rest = &behind[1..];
            Some(line)
        });
        lines.skip(1).filter_map(move |line| {
            let (field, value) = (line.get(..name.len())?, line.get(name.len()..)?);
            let value = value.strip_prefix(b":")?;
            field.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
        })
    }
}

/// Parts of a head that decide where the body ends.
#[expect(clippy::struct_excessive_bools, reason = "independent statements of one head")]
struct HeadFields {
    status: StatusCode,
    is_http_1_0: bool,
    content_length: Option<u64>,
    is_chunked: bool,
    is_event_stream: bool,
    /// `None` without a content type.
    is_json: Option<bool>,
    /// `true` if there is a content encoding.
    is_encoded: bool,
    says_close: bool,
    says_keep_alive: bool,
}

impl HeadFields {
    /// Parses a head; returns its size, too. `None` if it is not complete.
    fn parse(input: &[u8]) -> io::Result<Option<(Self, usize)>> {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            &input[..input.len().min(MAX_HEAD_BYTES)],
            &mut headers,
        );
        let n_bytes = match parsed.map_err(|error| invalid(&format!("invalid HTTP response: {error}")))? {
            httparse::Status::Complete(n_bytes) => n_bytes,
            httparse::Status::Partial if input.len() >= MAX_HEAD_BYTES => {
                return Err(invalid("the head of the response is too large"));
            }
            httparse::Status::Partial => return Ok(None),
        };
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
        let mut fields = Self {
            status: status.ok_or_else(|| invalid("the response has an invalid status"))?,
            is_http_1_0: response.version == Some(0),
            content_length: None,
            is_chunked: false,
            is_event_stream: false,
            is_json: None,
            is_encoded: false,
            says_close: false,
            says_keep_alive: false,
        };
        for header in &*response.headers {
            fields.record(header.name, header.value)?;
        }
        Ok(Some((fields, n_bytes)))
    }

    fn record(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        if name.eq_ignore_ascii_case("content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length =
                std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
            let length = length.ok_or_else(|| invalid("the response has an invalid content length"))?;
            if self.content_length.is_some_and(|other| other != length) {
                return Err(invalid("the response has two content lengths"));
            }
            self.content_length = Some(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(invalid("the response has an unknown transfer encoding"));
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case("content-type") {
            let kind = value.get(..EVENT_STREAM.len()).unwrap_or_default();
            self.is_event_stream = kind.eq_ignore_ascii_case(EVENT_STREAM);
            self.is_json = Some(self.is_json.is_none() && value == JSON);
        } else if name.eq_ignore_ascii_case("content-encoding") {
            self.is_encoded = true;
        } else if name.eq_ignore_ascii_case("connection") {
            for option in value.split(|byte| *byte == b',') {
                self.says_close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                self.says_keep_alive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    /// Returns the reader of the body.
    fn body(&self) -> io::Result<BodyReader> {
        if self.is_chunked && self.is_http_1_0 {
            return Err(invalid("the length of the response is ambiguous"));
        }
        Ok(match self.content_length {
            _ if matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => {
                BodyReader::with_length(0, true)
            }
            _ if self.is_chunked => BodyReader::chunked(),
            // An event must not wait for those that follow it.
            Some(length) => BodyReader::with_length(length, !self.is_event_stream),
            None => BodyReader::until_close(),
        })
    }

    fn is_kept_alive(&self, body: &BodyReader) -> bool {
        // With two lengths the chunks count, but a proxy in between may have counted otherwise.
        let has_one_length = !(self.is_chunked && self.content_length.is_some());
        !self.says_close
            && (!self.is_http_1_0 || self.says_keep_alive)
            && has_one_length
            && !body.is_until_close()
    }
}

pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
