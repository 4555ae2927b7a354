//! Replies of the HTTP server, with bodies that need no allocation if they are complete.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::{Frame, SizeHint};

/// A reply to an HTTP request.
pub type HttpReply = Response<ReplyBody>;

/// The body of a reply.
#[derive(Debug)]
pub enum ReplyBody {
    /// The parts of a complete body that are left; written ones are empty.
    Full([Bytes; 3]),
    /// The parts of a complete body of JSON, of which the headers do not have the content type yet: most replies have no
    /// other header, and need no map without it.
    Json([Bytes; 3]),
    /// Any other body, such as an event stream.
    Stream(Body),
}

impl ReplyBody {
    /// Returns a body without bytes.
    pub fn empty() -> Self {
        Self::Full(Default::default())
    }
}

/// Content type of JSON.
pub(super) const JSON: &str = "application/json";

/// Adds the content type to the headers of a reply, where they do not have it yet.
pub(super) fn complete_headers(reply: &mut HttpReply) {
    if let ReplyBody::Json(parts) = reply.body_mut() {
        let parts = std::mem::take(parts);
        *reply.body_mut() = ReplyBody::Full(parts);
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        Self::Full([bytes, Bytes::new(), Bytes::new()])
    }
}

impl From<[Bytes; 3]> for ReplyBody {
    fn from(parts: [Bytes; 3]) -> Self {
        Self::Full(parts)
    }
}

impl From<&'static str> for ReplyBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<Body> for ReplyBody {
    fn from(body: Body) -> Self {
        Self::Stream(body)
    }
}

impl http_body::Body for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Full(parts) | Self::Json(parts) => {
                let part = parts.iter_mut().find(|part| !part.is_empty()).map(std::mem::take);
                Poll::Ready(part.map(|part| Ok(Frame::data(part))))
            }
            Self::Stream(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(parts) | Self::Json(parts) => parts.iter().all(Bytes::is_empty),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(parts) | Self::Json(parts) => {
                SizeHint::with_exact(parts.iter().map(Bytes::len).sum::<usize>() as u64)
            }
            Self::Stream(body) => body.size_hint(),
        }
    }
}
