//! Replies of the HTTP server, with bodies that need no allocation if they are complete.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

/// A reply to an HTTP request.
pub type HttpReply = Response<ReplyBody>;

/// The body of a reply.
#[derive(Debug)]
pub enum ReplyBody {
    /// The rest of a complete body.
    Full(Option<Bytes>),
    /// Any other body, such as an event stream.
    Stream(Body),
}

impl ReplyBody {
    /// Returns a body without bytes.
    pub fn empty() -> Self {
        Self::Full(None)
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|bytes| !bytes.is_empty()))
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
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(body) => body.size_hint(),
        }
    }
}
