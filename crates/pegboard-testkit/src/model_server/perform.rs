//! How a turn of the script becomes an answer.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use pegboard_wire::http::sse::{SseEvent, encode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time;

use super::script::{Act, Answer, Quirk, Refusal};
use super::{Interface, anthropic, openai};

/// A pause between pieces.
const PAUSE: Duration = Duration::from_millis(2);
/// How many bytes of a stream come at once: few, so that no reader can count on whole events.
const PIECE_BYTES: usize = 61;
/// How large a huge reply is.
const HUGE_BYTES: usize = 40 * 1024 * 1024;

/// What of a request matters for the form of the answer.
pub(super) struct Asked {
    pub(super) interface: Interface,
    pub(super) model: String,
    pub(super) is_streamed: bool,
}

/// An answer in one form or the other.
enum Written {
    Whole(Value),
    Events(Vec<SseEvent>),
}

/// Does what the script says.
pub(super) async fn perform(
    act: Act,
    asked: &Asked,
    number: usize,
    hanging: &watch::Sender<usize>,
) -> Response {
    match act {
        Act::Answer(answer) => {
            let written = write(&answer, asked, number);
            if answer.has(Quirk::KeepsOpen) {
                return send(written.bytes(), written.content_type(), Ending::Never);
            }
            send(written.bytes(), written.content_type(), Ending::Clean)
        }
        Act::Slow(answer) => slow(&write(&answer, asked, number)),
        Act::Cut(answer) => {
            let written = write(&answer, asked, number);
            send(half(&written), written.content_type(), Ending::Broken)
        }
        Act::EndEarly(answer) => {
            let written = write(&answer, asked, number);
            send(half(&written), written.content_type(), Ending::Clean)
        }
        Act::Stall(answer) => {
            let written = write(&answer, asked, number);
            send(half(&written), written.content_type(), Ending::Never)
        }
        Act::Refuse(refusal) => refuse(&refusal, asked),
        Act::RefuseLate(refusal) => {
            let written = refuse_late(&refusal, asked);
            send(written.bytes(), written.content_type(), Ending::Clean)
        }
        Act::Page => send("<html><p>Hello, person!</p></html>".into(), "text/html", Ending::Clean),
        Act::Nonsense => {
            let nonsense = json!({"hello": "world"});
            let written = if asked.is_streamed {
                Written::Events(vec![SseEvent::message(nonsense.to_string())])
            } else {
                Written::Whole(nonsense)
            };
            send(written.bytes(), written.content_type(), Ending::Clean)
        }
        Act::Garbage if asked.is_streamed => {
            send("data: {\"choices\": [}\n\n".into(), "text/event-stream", Ending::Clean)
        }
        Act::Garbage => send("{\"choices\": [}".into(), "application/json", Ending::Clean),
        Act::Hang => {
            let _guard = Hanging::begin(hanging);
            std::future::pending().await
        }
        Act::Huge => huge(asked),
        Act::Redirect(location) => {
            let location = HeaderValue::from_str(&location).expect("a script names an address");
            (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, location)]).into_response()
        }
    }
}

fn write(answer: &Answer, asked: &Asked, number: usize) -> Written {
    let is_streamed = asked.is_streamed && !answer.has(Quirk::NotStreamed);
    match (asked.interface, is_streamed) {
        (Interface::Chat, true) => Written::Events(openai::events(answer, &asked.model, number)),
        (Interface::Chat, false) => Written::Whole(openai::whole(answer, &asked.model, number)),
        (Interface::Messages, true) => Written::Events(anthropic::events(answer, &asked.model, number)),
        (Interface::Messages, false) => Written::Whole(anthropic::whole(answer, &asked.model, number)),
    }
}

impl Written {
    fn bytes(&self) -> Bytes {
        match self {
            Self::Whole(value) => value.to_string().into(),
            Self::Events(events) => events.iter().map(encode).collect::<Vec<_>>().concat().into(),
        }
    }

    fn content_type(&self) -> &'static str {
        match self {
            Self::Whole(_) => "application/json",
            Self::Events(_) => "text/event-stream; charset=utf-8",
        }
    }
}

/// The first half, but at least one whole event of a stream.
fn half(written: &Written) -> Bytes {
    match written {
        Written::Whole(_) => {
            let bytes = written.bytes();
            bytes.slice(..bytes.len() / 2)
        }
        Written::Events(events) => Written::Events(events[..events.len().div_ceil(2)].to_vec()).bytes(),
    }
}

fn refuse(refusal: &Refusal, asked: &Asked) -> Response {
    let body = match asked.interface {
        Interface::Chat => openai::error(refusal),
        Interface::Messages => anthropic::error(refusal),
    };
    let status = StatusCode::from_u16(refusal.status).expect("a script has a status that exists");
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    for (name, value) in &refusal.headers {
        let name: HeaderName = name.parse().expect("a script names headers");
        response.headers_mut().insert(name, value.parse().expect("a script has values of headers"));
    }
    response
}

fn refuse_late(refusal: &Refusal, asked: &Asked) -> Written {
    let (error, name) = match asked.interface {
        Interface::Chat => (openai::error(refusal), None),
        Interface::Messages => (anthropic::error(refusal), Some("error".to_owned())),
    };
    if !asked.is_streamed {
        return Written::Whole(error);
    }
    let error = SseEvent { event: name, ..SseEvent::message(error.to_string()) };
    let begun = write(&Answer::text("Well, I think"), asked, 0);
    let Written::Events(mut events) = begun else { return Written::Whole(Value::Null) };
    events.truncate(events.len().div_ceil(2));
    events.push(error);
    Written::Events(events)
}

/// How a body ends.
#[derive(Clone, Copy)]
enum Ending {
    Clean,
    /// The line is cut.
    Broken,
    /// It does not.
    Never,
}

/// A body in small pieces.
fn send(bytes: Bytes, content_type: &'static str, ending: Ending) -> Response {
    let pieces = pieces(bytes).map(Ok::<_, io::Error>);
    let body = match ending {
        Ending::Clean => Body::from_stream(pieces),
        Ending::Broken => {
            let end = stream::once(async {
                // What is on its way arrives before the line is cut.
                time::sleep(PAUSE).await;
                Err(io::Error::other("cut"))
            });
            Body::from_stream(pieces.chain(end))
        }
        Ending::Never => Body::from_stream(pieces.chain(stream::pending())),
    };
    ([(CONTENT_TYPE, content_type)], body).into_response()
}

fn pieces(bytes: Bytes) -> impl stream::Stream<Item = Bytes> + Send + 'static {
    let n_pieces = bytes.len().div_ceil(PIECE_BYTES);
    let piece = move |at: usize| {
        let start = at * PIECE_BYTES;
        bytes.slice(start..(start + PIECE_BYTES).min(bytes.len()))
    };
    stream::iter((0..n_pieces).map(piece))
}

fn slow(written: &Written) -> Response {
    let pieces = pieces(written.bytes()).then(|piece| async move {
        time::sleep(PAUSE).await;
        Ok::<_, Infallible>(piece)
    });
    ([(CONTENT_TYPE, written.content_type())], Body::from_stream(pieces)).into_response()
}

/// A reply that goes on and on, made as it is read.
fn huge(asked: &Asked) -> Response {
    let piece = match (asked.is_streamed, asked.interface) {
        (true, Interface::Chat) => {
            let chunk = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(60_000)}}]});
            encode(&SseEvent::message(chunk.to_string()))
        }
        (true, Interface::Messages) => {
            let ping = json!({"type": "ping", "padding": "x".repeat(60_000)});
            encode(&SseEvent::message(ping.to_string()))
        }
        (false, _) => Bytes::from(" ".repeat(60_000)),
    };
    let n_pieces = HUGE_BYTES / piece.len();
    let pieces = stream::iter(std::iter::repeat_n(piece, n_pieces)).map(Ok::<_, Infallible>);
    let content_type = if asked.is_streamed { "text/event-stream" } else { "application/json" };
    ([(CONTENT_TYPE, content_type)], Body::from_stream(pieces)).into_response()
}

/// Counts a client that waits in vain, until it gives up.
struct Hanging<'h>(&'h watch::Sender<usize>);

impl<'h> Hanging<'h> {
    fn begin(hanging: &'h watch::Sender<usize>) -> Self {
        hanging.send_modify(|n_hanging| *n_hanging += 1);
        Self(hanging)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n_hanging| *n_hanging -= 1);
    }
}
