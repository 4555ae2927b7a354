//! Server-sent events of a streamed response.

use axum::body::Body;
use http_body_util::BodyExt;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use pegboard::wire::http::sse::SseDecoder;

use super::{gateway_gone, invalid_json};
use crate::cli::CliError;

/// Maximum size of an event.
const MAX_EVENT_BYTES: usize = 1024 * 1024 * 1024;

/// A server-sent event with JSON data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiEvent {
    /// Name of the event.
    pub(crate) name: String,
    /// Data of the event.
    pub(crate) data: RawJson,
}

/// Server-sent events of a response body.
pub(crate) struct ApiEvents {
    body: Body,
    decoder: SseDecoder,
}

impl ApiEvents {
    /// Reads the events of a body.
    pub(super) fn new(body: Body) -> Self {
        Self { body, decoder: SseDecoder::new(MAX_EVENT_BYTES) }
    }

    /// Next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<ApiEvent>, CliError> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                let event = event
                    .map_err(|error| CliError::from_kind(ErrorKind::LimitExceeded, error.to_string()))?;
                let data = RawJson::parse(event.data).map_err(invalid_json)?;
                return Ok(Some(ApiEvent { name: event.event.unwrap_or_default(), data }));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.push(&data);
                    }
                }
                Some(Err(_)) => return Err(gateway_gone()),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    /// Returns a body that arrives in these chunks.
    fn body(pieces: &[&'static str]) -> Body {
        let pieces: Vec<Result<&'static str, std::io::Error>> =
            pieces.iter().map(|piece| Ok(*piece)).collect();
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn keep_alive_comments_are_not_events() {
        let text = body(&[
            ": hello\n\n",
            "event: prog",
            "ress\nid: 7\ndata: {\"done\":\ndata: 1}\n",
            "\nevent:result\ndata:{}\n\n: bye",
        ]);
        let mut events = ApiEvents::new(text);
        let mut all = Vec::new();
        while let Some(ApiEvent { name, data }) = events.next().await.unwrap() {
            all.push(format!("{name} {}", data.to_value()));
        }
        assert_eq!(all, ["progress {\"done\":1}", "result {}"]);
    }
}
