//! JSON responses and event streams.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use pegboard_json::RawJson;
use pegboard_wire::http::sse::{KEEP_ALIVE, SseEvent, encode};
use tokio::sync::mpsc;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use super::extract::ResponseFormat;

/// Number of items buffered for a slow reader.
pub(super) const STREAM_BUFFER: usize = 256;

/// Responds with one JSON document.
pub(super) fn json_response(document: impl Into<RawJson>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, document.into().into_bytes()).into_response()
}

/// One item of an event stream.
pub(super) struct StreamItem {
    /// Event name.
    pub(super) event: &'static str,
    /// Payload.
    pub(super) data: RawJson,
}

impl StreamItem {
    pub(super) fn new(event: &'static str, data: impl Into<RawJson>) -> Self {
        Self { event, data: data.into() }
    }

    fn encoded(&self, format: ResponseFormat) -> Bytes {
        match format {
            ResponseFormat::Events => encode(&SseEvent {
                event: Some(self.event.to_owned()),
                ..SseEvent::message(self.data.clone().into_bytes())
            }),
            ResponseFormat::Lines | ResponseFormat::Document => {
                Bytes::from(format!("{}\n", self.data.single_line()))
            }
        }
    }
}

/// Streams items until the channel closes. If the reader disconnects, the work is aborted.
pub(super) fn stream_response(
    format: ResponseFormat,
    items: mpsc::Receiver<StreamItem>,
    work: AbortOnDropHandle<()>,
    keep_alive: Duration,
) -> Response {
    let next = move |(mut items, work): (mpsc::Receiver<StreamItem>, AbortOnDropHandle<()>)| async move {
        let encoded = loop {
            match time::timeout(keep_alive, items.recv()).await {
                Ok(item) => break item?.encoded(format),
                Err(_idle) if format == ResponseFormat::Events => break Bytes::from_static(KEEP_ALIVE),
                // NDJSON has no comment syntax for a keep-alive.
                Err(_idle) => {}
            }
        };
        Some((Ok::<_, Infallible>(encoded), (items, work)))
    };
    let mut response = Response::new(Body::from_stream(stream::unfold((items, work), next)));
    let content_type = match format {
        ResponseFormat::Events => "text/event-stream",
        ResponseFormat::Lines | ResponseFormat::Document => "application/x-ndjson",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Milliseconds since the Unix epoch.
pub(super) fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in milliseconds, rounded to microseconds.
pub(super) fn duration_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_item_is_one_line_however_its_server_wrote_it() {
        let pretty = RawJson::parse("{\r\n  \"a\":\r[1,\n2, \"x\u{2028}y\"]\n}".into()).unwrap();
        let value = pretty.to_value();
        let line = StreamItem::new("answer", pretty).encoded(ResponseFormat::Lines);
        let line = std::str::from_utf8(&line).unwrap().strip_suffix('\n').unwrap();
        assert!(!line.contains(['\n', '\r', '\u{2028}']), "{line:?}");
        assert_eq!(serde_json::from_str::<Value>(line).unwrap(), value);
    }
}
