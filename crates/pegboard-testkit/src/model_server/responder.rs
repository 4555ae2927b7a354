//! Execution of script actions as HTTP responses.

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

use super::script::{Quirk, ScriptAction, ScriptedError, ScriptedReply};
use super::{ModelApi, anthropic, openai};

/// Pause between chunks.
const CHUNK_DELAY: Duration = Duration::from_millis(2);
/// Chunk size of a stream: small, so that no reader can rely on whole events.
const CHUNK_BYTES: usize = 61;
/// Size of a huge reply.
const HUGE_BYTES: usize = 40 * 1024 * 1024;

/// The properties of a request that determine the form of its answer.
pub(super) struct ReplyContext {
    pub(super) interface: ModelApi,
    pub(super) model: String,
    pub(super) is_streamed: bool,
}

/// An encoded answer.
enum EncodedReply {
    Whole(Value),
    Events(Vec<SseEvent>),
}

/// Executes an action of the script.
pub(super) async fn respond(
    action: ScriptAction,
    context: &ReplyContext,
    number: usize,
    hanging: &watch::Sender<usize>,
) -> Response {
    match action {
        ScriptAction::Answer(answer) => {
            let encoded = encode_reply(&answer, context, number);
            if answer.has(Quirk::KeepsOpen) {
                return send(encoded.bytes(), encoded.content_type(), BodyEnd::Never);
            }
            send(encoded.bytes(), encoded.content_type(), BodyEnd::Clean)
        }
        ScriptAction::Slow(answer) => slow(&encode_reply(&answer, context, number)),
        ScriptAction::Cut(answer) => {
            let encoded = encode_reply(&answer, context, number);
            send(half(&encoded), encoded.content_type(), BodyEnd::Broken)
        }
        ScriptAction::EndEarly(answer) => {
            let encoded = encode_reply(&answer, context, number);
            send(half(&encoded), encoded.content_type(), BodyEnd::Clean)
        }
        ScriptAction::Stall(answer) => {
            let encoded = encode_reply(&answer, context, number);
            send(half(&encoded), encoded.content_type(), BodyEnd::Never)
        }
        ScriptAction::Refuse(refusal) => refuse(&refusal, context),
        ScriptAction::RefuseLate(refusal) => {
            let encoded = refuse_late(&refusal, context);
            send(encoded.bytes(), encoded.content_type(), BodyEnd::Clean)
        }
        ScriptAction::Page => send("<html><p>Hello, person!</p></html>".into(), "text/html", BodyEnd::Clean),
        ScriptAction::Nonsense => {
            let nonsense = json!({"hello": "world"});
            let encoded = if context.is_streamed {
                EncodedReply::Events(vec![SseEvent::message(nonsense.to_string())])
            } else {
                EncodedReply::Whole(nonsense)
            };
            send(encoded.bytes(), encoded.content_type(), BodyEnd::Clean)
        }
        ScriptAction::Garbage if context.is_streamed => {
            send("data: {\"choices\": [}\n\n".into(), "text/event-stream", BodyEnd::Clean)
        }
        ScriptAction::Garbage => send("{\"choices\": [}".into(), "application/json", BodyEnd::Clean),
        ScriptAction::Hang => {
            let _guard = HangGuard::begin(hanging);
            std::future::pending().await
        }
        ScriptAction::Huge => huge(context),
        ScriptAction::Redirect(location) => {
            let location = HeaderValue::from_str(&location).expect("the URL in the script is valid");
            (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, location)]).into_response()
        }
    }
}

fn encode_reply(answer: &ScriptedReply, context: &ReplyContext, number: usize) -> EncodedReply {
    let is_streamed = context.is_streamed && !answer.has(Quirk::NotStreamed);
    match (context.interface, is_streamed) {
        (ModelApi::Chat, true) => EncodedReply::Events(openai::events(answer, &context.model, number)),
        (ModelApi::Chat, false) => EncodedReply::Whole(openai::whole(answer, &context.model, number)),
        (ModelApi::Messages, true) => EncodedReply::Events(anthropic::events(answer, &context.model, number)),
        (ModelApi::Messages, false) => EncodedReply::Whole(anthropic::whole(answer, &context.model, number)),
    }
}

impl EncodedReply {
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

/// Returns the first half, but at least one whole event of a stream.
fn half(encoded: &EncodedReply) -> Bytes {
    match encoded {
        EncodedReply::Whole(_) => {
            let bytes = encoded.bytes();
            bytes.slice(..bytes.len() / 2)
        }
        EncodedReply::Events(events) => {
            EncodedReply::Events(events[..events.len().div_ceil(2)].to_vec()).bytes()
        }
    }
}

fn refuse(refusal: &ScriptedError, context: &ReplyContext) -> Response {
    let body = match context.interface {
        ModelApi::Chat => openai::error(refusal),
        ModelApi::Messages => anthropic::error(refusal),
    };
    let status = StatusCode::from_u16(refusal.status).expect("the status in the script is valid");
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    for (name, value) in &refusal.headers {
        let name: HeaderName = name.parse().expect("the header name in the script is valid");
        response.headers_mut().insert(name, value.parse().expect("the header value in the script is valid"));
    }
    response
}

fn refuse_late(refusal: &ScriptedError, context: &ReplyContext) -> EncodedReply {
    let (error, name) = match context.interface {
        ModelApi::Chat => (openai::error(refusal), None),
        ModelApi::Messages => (anthropic::error(refusal), Some("error".to_owned())),
    };
    if !context.is_streamed {
        return EncodedReply::Whole(error);
    }
    let error = SseEvent { event: name, ..SseEvent::message(error.to_string()) };
    let begun = encode_reply(&ScriptedReply::text("Well, I think"), context, 0);
    let EncodedReply::Events(mut events) = begun else { return EncodedReply::Whole(Value::Null) };
    events.truncate(events.len().div_ceil(2));
    events.push(error);
    EncodedReply::Events(events)
}

/// The end of a response body.
#[derive(Clone, Copy)]
enum BodyEnd {
    Clean,
    /// The connection is cut.
    Broken,
    /// The body never ends.
    Never,
}

/// Returns a response with its body in small chunks.
fn send(bytes: Bytes, content_type: &'static str, body_end: BodyEnd) -> Response {
    let pieces = pieces(bytes).map(Ok::<_, io::Error>);
    let body = match body_end {
        BodyEnd::Clean => Body::from_stream(pieces),
        BodyEnd::Broken => {
            let end = stream::once(async {
                // What is in transit arrives before the connection is cut.
                time::sleep(CHUNK_DELAY).await;
                Err(io::Error::other("cut"))
            });
            Body::from_stream(pieces.chain(end))
        }
        BodyEnd::Never => Body::from_stream(pieces.chain(stream::pending())),
    };
    ([(CONTENT_TYPE, content_type)], body).into_response()
}

fn pieces(bytes: Bytes) -> impl stream::Stream<Item = Bytes> + Send + 'static {
    let n_pieces = bytes.len().div_ceil(CHUNK_BYTES);
    let piece = move |at: usize| {
        let start = at * CHUNK_BYTES;
        bytes.slice(start..(start + CHUNK_BYTES).min(bytes.len()))
    };
    stream::iter((0..n_pieces).map(piece))
}

fn slow(encoded: &EncodedReply) -> Response {
    let pieces = pieces(encoded.bytes()).then(|piece| async move {
        time::sleep(CHUNK_DELAY).await;
        Ok::<_, Infallible>(piece)
    });
    ([(CONTENT_TYPE, encoded.content_type())], Body::from_stream(pieces)).into_response()
}

/// Returns a huge reply, generated while it is read.
fn huge(context: &ReplyContext) -> Response {
    let piece = match (context.is_streamed, context.interface) {
        (true, ModelApi::Chat) => {
            let chunk = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(60_000)}}]});
            encode(&SseEvent::message(chunk.to_string()))
        }
        (true, ModelApi::Messages) => {
            let ping = json!({"type": "ping", "padding": "x".repeat(60_000)});
            encode(&SseEvent::message(ping.to_string()))
        }
        (false, _) => Bytes::from(" ".repeat(60_000)),
    };
    let n_pieces = HUGE_BYTES / piece.len();
    let pieces = stream::iter(std::iter::repeat_n(piece, n_pieces)).map(Ok::<_, Infallible>);
    let content_type = if context.is_streamed { "text/event-stream" } else { "application/json" };
    ([(CONTENT_TYPE, content_type)], Body::from_stream(pieces)).into_response()
}

/// Counts a client that waits for an answer that never comes, until it disconnects.
struct HangGuard<'h>(&'h watch::Sender<usize>);

impl<'h> HangGuard<'h> {
    fn begin(hanging: &'h watch::Sender<usize>) -> Self {
        hanging.send_modify(|n_hanging| *n_hanging += 1);
        Self(hanging)
    }
}

impl Drop for HangGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n_hanging| *n_hanging -= 1);
    }
}
