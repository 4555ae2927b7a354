//! Streamed responses: lines, and server-sent events.

use std::collections::VecDeque;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;

use super::gateway_gone;
use crate::cli::CliError;

/// Maximum length of a line.
const MAX_LINE: usize = 1024 * 1024 * 1024;

/// Lines of a response body.
pub(crate) struct ApiLines {
    body: Body,
    ready: VecDeque<Bytes>,
    partial: Vec<u8>,
    has_ended: bool,
}

impl ApiLines {
    /// Reads the lines of a body.
    pub(super) fn new(body: Body) -> Self {
        Self { body, ready: VecDeque::new(), partial: Vec::new(), has_ended: false }
    }

    /// Next line without its line ending; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CliError> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.push(&data)?;
                    }
                }
                Some(Err(_)) => return Err(gateway_gone()),
                None => {
                    self.has_ended = true;
                    if !self.partial.is_empty() {
                        self.ready.push_back(std::mem::take(&mut self.partial).into());
                    }
                }
            }
        }
    }

    fn push(&mut self, data: &[u8]) -> Result<(), CliError> {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            self.partial.extend_from_slice(line.unwrap_or(piece));
            if line.is_some() {
                if self.partial.last() == Some(&b'\r') {
                    self.partial.pop();
                }
                self.ready.push_back(std::mem::take(&mut self.partial).into());
            }
        }
        if self.partial.len() > MAX_LINE {
            return Err(CliError::from_kind(ErrorKind::LimitExceeded, "a line of the response is too long"));
        }
        Ok(())
    }
}

/// A server-sent event with JSON data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiEvent {
    /// Name of the event.
    pub(crate) name: String,
    /// Data of the event.
    pub(crate) data: RawJson,
}

/// Server-sent events of a response body.
pub(crate) struct ApiEvents(ApiLines);

impl ApiEvents {
    /// Reads the events of a body.
    pub(super) fn new(body: Body) -> Self {
        Self(ApiLines::new(body))
    }

    /// Next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<ApiEvent>, CliError> {
        let (mut name, mut data) = (String::new(), Vec::new());
        while let Some(line) = self.0.next().await? {
            if line.is_empty() {
                if data.is_empty() {
                    name.clear();
                    continue;
                }
                let malformed = |error| {
                    CliError::from_kind(
                        ErrorKind::InternalError,
                        format!("invalid JSON from the gateway: {error}"),
                    )
                };
                let data = RawJson::parse(Bytes::from(data)).map_err(malformed)?;
                return Ok(Some(ApiEvent { name, data }));
            }
            let (field, value) =
                line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"event" => name = String::from_utf8_lossy(value).into_owned(),
                b"data" => {
                    if !data.is_empty() {
                        data.push(b'\n');
                    }
                    data.extend_from_slice(value);
                }
                // Comments (keep-alive) and ids (for resumption) are ignored.
                _ => {}
            }
        }
        Ok(None)
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
    async fn lines_are_reassembled_from_chunks() {
        let mut lines = ApiLines::new(body(&["{\"a\"", ":1}\n{\"b\":2}\r\n\n", "{\"c\"", ":3}"]));
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(all, ["{\"a\":1}", "{\"b\":2}", "", "{\"c\":3}"]);
    }

    #[tokio::test]
    async fn keep_alive_comments_are_not_events() {
        let text = body(&[
            ": hello\n\n",
            "event: progress\nid: 7\ndata: {\"done\":\ndata: 1}\n",
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
