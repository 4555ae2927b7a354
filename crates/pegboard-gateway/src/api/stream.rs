//! Answers: one document, or several things as they come.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use pegboard_json::RawJson;
use pegboard_wire::http::sse::{KEEP_ALIVE, SseEvent, encode};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use super::question::Form;

/// How many things may wait for a reader that is slow to take them.
pub(super) const MAX_WAITING: usize = 256;

/// One JSON document as the whole answer.
pub(super) fn document(document: impl Into<RawJson>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, document.into().into_bytes()).into_response()
}

/// One of several things that come one after another.
pub(super) struct Item {
    /// What sort of thing it is.
    pub(super) event: &'static str,
    /// What there is to say.
    pub(super) data: RawJson,
}

impl Item {
    pub(super) fn new(event: &'static str, data: Value) -> Self {
        Self { event, data: data.into() }
    }

    fn written(&self, form: Form) -> Bytes {
        match form {
            Form::Events => encode(&SseEvent {
                event: Some(self.event.to_owned()),
                ..SseEvent::message(self.data.clone().into_bytes())
            }),
            Form::Lines | Form::Document => {
                let mut line = BytesMut::from(self.data.as_bytes());
                line.put_u8(b'\n');
                line.freeze()
            }
        }
    }
}

/// Several things as they come, until there are no more. When their reader goes away, so does the work behind them.
pub(super) fn items(
    form: Form,
    items: mpsc::Receiver<Item>,
    work: AbortOnDropHandle<()>,
    keep_alive: Duration,
) -> Response {
    let next = move |(mut items, work): (mpsc::Receiver<Item>, AbortOnDropHandle<()>)| async move {
        let written = loop {
            match time::timeout(keep_alive, items.recv()).await {
                Ok(item) => break item?.written(form),
                Err(_quiet) if form == Form::Events => break Bytes::from_static(KEEP_ALIVE),
                // A line that says nothing would be a mistake there.
                Err(_quiet) => {}
            }
        };
        Some((Ok::<_, Infallible>(written), (items, work)))
    };
    let mut response = Response::new(Body::from_stream(stream::unfold((items, work), next)));
    let content_type = match form {
        Form::Events => "text/event-stream",
        Form::Lines | Form::Document => "application/x-ndjson",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in milliseconds, with microseconds as its fraction.
pub(super) fn in_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}
