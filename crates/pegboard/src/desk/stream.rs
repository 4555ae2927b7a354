//! Answers that come in pieces: lines, and events made of lines.

use std::collections::VecDeque;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;

use super::gone;
use crate::cli::Failure;

/// How long a line may be.
const MAX_LINE: usize = 1024 * 1024 * 1024;

/// The lines of an answer, as they come.
pub(crate) struct Lines {
    body: Body,
    ready: VecDeque<Bytes>,
    begun: Vec<u8>,
    has_ended: bool,
}

impl Lines {
    /// The lines of a body.
    pub(super) fn of(body: Body) -> Self {
        Self { body, ready: VecDeque::new(), begun: Vec::new(), has_ended: false }
    }

    /// The next line without its end; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
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
                        self.take(&data)?;
                    }
                }
                Some(Err(_)) => return Err(gone()),
                None => {
                    self.has_ended = true;
                    if !self.begun.is_empty() {
                        self.ready.push_back(std::mem::take(&mut self.begun).into());
                    }
                }
            }
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), Failure> {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            self.begun.extend_from_slice(line.unwrap_or(piece));
            if line.is_some() {
                if self.begun.last() == Some(&b'\r') {
                    self.begun.pop();
                }
                self.ready.push_back(std::mem::take(&mut self.begun).into());
            }
        }
        if self.begun.len() > MAX_LINE {
            return Err(Failure::of_kind(ErrorKind::LimitExceeded, "a line of the answer is too long"));
        }
        Ok(())
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// What.
    pub(crate) name: String,
    /// The particulars.
    pub(crate) data: RawJson,
}

/// What happens, as it does.
pub(crate) struct Events(Lines);

impl Events {
    /// The events of a body.
    pub(super) fn of(body: Body) -> Self {
        Self(Lines::of(body))
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        let (mut name, mut data) = (String::new(), Vec::new());
        while let Some(line) = self.0.next().await? {
            if line.is_empty() {
                if data.is_empty() {
                    name.clear();
                    continue;
                }
                let malformed = |error| {
                    Failure::of_kind(ErrorKind::InternalError, format!("the gateway tells no JSON: {error}"))
                };
                let data = RawJson::parse(Bytes::from(data)).map_err(malformed)?;
                return Ok(Some(Event { name, data }));
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
                // What is said to keep the line open, and what only those need who come back.
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

    /// A body that comes in these pieces.
    fn body(pieces: &[&'static str]) -> Body {
        let pieces: Vec<Result<&'static str, std::io::Error>> =
            pieces.iter().map(|piece| Ok(*piece)).collect();
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::of(body(&["{\"a\"", ":1}\n{\"b\":2}\r\n\n", "{\"c\"", ":3}"]));
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(all, ["{\"a\":1}", "{\"b\":2}", "", "{\"c\":3}"]);
    }

    #[tokio::test]
    async fn events_are_told_from_what_keeps_the_line_open() {
        let text = body(&[
            ": hello\n\n",
            "event: progress\nid: 7\ndata: {\"done\":\ndata: 1}\n",
            "\nevent:result\ndata:{}\n\n: bye",
        ]);
        let mut events = Events::of(text);
        let mut all = Vec::new();
        while let Some(Event { name, data }) = events.next().await.unwrap() {
            all.push(format!("{name} {}", data.to_value()));
        }
        assert_eq!(all, ["progress {\"done\":1}", "result {}"]);
    }
}
