//! Heads of requests and responses.

use std::cell::Cell;
use std::io::Write;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes};
use http::{HeaderName, Uri, header, response};
use memchr::memmem::{self, Finder};

use crate::http::received_headers::{HeaderText, ReceivedHeaders};
use crate::message::encode;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Head of a POST with a body of known length, after which the connection stays open.
pub(super) struct RequestHead {
    pub(super) uri: Uri,
    pub(super) headers: ReceivedHeaders,
    pub(super) n_body: usize,
}

/// Returns the length of the head that the input begins with; `None` if it is not complete.
pub(super) fn head_length(input: &[u8]) -> Option<usize> {
    static END: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));
    // Some clients end lines without CR. A head that ends earlier than this is found when it is parsed.
    END.find(input).map(|at| at + 4).or_else(|| memmem::find(input, b"\n\n").map(|at| at + 2))
}

impl RequestHead {
    /// Parses a complete head; `None` for any other request, and for one that two readers could read differently.
    pub(super) fn parse(head: &Bytes) -> Option<Self> {
        let mut space = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(head, &mut space).ok()?;
        let is_message = parsed == httparse::Status::Complete(head.len())
            && request.method == Some("POST")
            && request.version == Some(1);
        if !is_message {
            return None;
        }
        let uri = Uri::from_maybe_shared(head.slice_ref(request.path?.as_bytes())).ok()?;
        let mut fields = Vec::with_capacity(request.headers.len());
        let mut n_body = None;
        for field in &*request.headers {
            let is = |name: HeaderName| field.name.eq_ignore_ascii_case(name.as_str());
            if is(header::CONTENT_LENGTH) {
                let length = length(field.value).filter(|_| n_body.is_none());
                n_body = Some(length?);
            } else if is(header::TRANSFER_ENCODING)
                || is(header::EXPECT)
                || is(header::UPGRADE)
                || is(header::CONNECTION) && !field.value.eq_ignore_ascii_case(b"keep-alive")
            {
                return None;
            }
            let span = |part: &[u8]| {
                let start = part.as_ptr().addr() - head.as_ptr().addr();
                Some(u16::try_from(start).ok()?..u16::try_from(start + part.len()).ok()?)
            };
            fields.push((span(field.name.as_bytes())?, span(field.value)?));
        }
        let headers = HeaderText { text: head.clone(), fields }.into();
        Some(Self { uri, headers, n_body: n_body? })
    }
}

/// Returns `true` for a request of which the end could be read in two ways: with a length and a coding, or with other
/// codings than one `chunked`.
pub(super) fn is_ambiguous(head: &Bytes) -> bool {
    /// More headers than hyper reads.
    const MAX_READ_HEADERS: usize = 128;
    let mut space = [const { std::mem::MaybeUninit::uninit() }; MAX_READ_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    if request.parse_with_uninit_headers(head, &mut space).is_err() {
        // It is refused anyway.
        return false;
    }
    let values = |name: HeaderName| {
        let named =
            request.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name.as_str()));
        named.map(|field| field.value)
    };
    let mut codings = values(header::TRANSFER_ENCODING);
    let Some(coding) = codings.next() else { return false };
    !coding.eq_ignore_ascii_case(b"chunked")
        || codings.next().is_some()
        || values(header::CONTENT_LENGTH).next().is_some()
}

fn length(value: &[u8]) -> Option<usize> {
    let digits =
        std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits?.parse().ok()
}

/// Framing of the body of a response.
#[derive(Clone, Copy)]
pub(super) enum BodyFraming {
    Length(usize),
    Chunked,
}

/// Encodes the head of a response, with space for a small body. `content_type` is one that its headers do not have.
pub(super) fn encode_head(
    parts: &response::Parts,
    content_type: Option<&str>,
    framing: BodyFraming,
) -> Vec<u8> {
    const USUAL_BYTES: usize = 1024;
    let mut head = Vec::with_capacity(USUAL_BYTES);
    head.put_slice(b"HTTP/1.1 ");
    head.put_slice(parts.status.as_str().as_bytes());
    head.put_slice(b" ");
    head.put_slice(parts.status.canonical_reason().unwrap_or_default().as_bytes());
    head.put_slice(b"\r\n");
    for (name, value) in &parts.headers {
        put_field(&mut head, name.as_str(), value.as_bytes());
    }
    if let Some(content_type) = content_type {
        put_field(&mut head, "content-type", content_type.as_bytes());
    }
    match framing {
        BodyFraming::Length(n_bytes) => {
            head.put_slice(b"content-length: ");
            encode::number(i64::try_from(n_bytes).unwrap_or(i64::MAX), &mut head);
            head.put_slice(b"\r\n");
        }
        BodyFraming::Chunked => head.put_slice(b"transfer-encoding: chunked\r\n"),
    }
    put_field(&mut head, "date", &date());
    head.put_slice(b"\r\n");
    head
}

fn put_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        head.put_slice(part);
    }
}

/// Length of a date.
const DATE_BYTES: usize = "Thu, 01 Jan 1970 00:00:00 GMT".len();

/// Returns the date of a response. It is formatted once per second and thread.
fn date() -> [u8; DATE_BYTES] {
    thread_local! {
        static LAST: Cell<(u64, [u8; DATE_BYTES])> = const { Cell::new((u64::MAX, [b' '; DATE_BYTES])) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with(|last| {
        let (formatted_for, mut text) = last.get();
        if formatted_for != second {
            // A date before year 10,000 fits.
            let _ = write!(&mut text[..], "{}", httpdate::HttpDate::from(now));
            last.set((second, text));
        }
        text
    })
}
