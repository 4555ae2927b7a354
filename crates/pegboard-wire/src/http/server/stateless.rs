//! One POST, one request, one answer: as JSON, or as a stream if something is said before it.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tokio::time;

use super::{error_response, events, json, status_of};
use crate::era::claimed_revision;
use crate::http::headers;
use crate::http::sse::{self, SseEvent};
use crate::message::{Id, Message, Notification, Request, RpcError, code};
use crate::server::{Peer, Server, stateless};
use pegboard_json::RawJson;

/// Answers a request. Whoever drops the answer cancels the request.
pub(super) async fn answer(
    server: &Server,
    request: Request,
    headers: HeaderMap,
    keep_alive: Duration,
) -> Response {
    let id = request.id.clone();
    // A request that does not name its revision cannot be compared with its headers.
    let is_named = claimed_revision(request.params.as_ref()).is_some();
    let compared = if is_named { check_headers(server, &headers, &request) } else { Ok(()) };
    if let Err(error) = compared.and_then(|()| stateless::check(&request)) {
        return error_response(StatusCode::BAD_REQUEST, Some(id), error);
    }
    let (notices, heard) = mpsc::channel(64);
    let work = Box::pin(stateless::call(server, request, headers, Peer::stream(notices)));
    let mut call = Call { id, work, heard, state: State::Running };
    match call.next().await {
        Some(Said::Answer(Err(error))) => error_response(status_of(&error), Some(call.id), error),
        Some(Said::Answer(Ok(result))) => {
            json(StatusCode::OK, Message::response(Some(call.id), Ok(result)).encode())
        }
        Some(Said::Notice(first)) => events(Body::from_stream(stream::unfold(
            (call, Some(Said::Notice(first))),
            move |(mut call, first)| async move {
                let said = match first {
                    Some(said) => Some(said),
                    None => call.next_or_silence(keep_alive).await,
                };
                said.map(|said| (Ok::<_, std::convert::Infallible>(call.event(said)), (call, None)))
            },
        ))),
        Some(Said::Nothing) | None => {
            let error = RpcError::new(code::INTERNAL_ERROR, "The request ended without an answer");
            error_response(StatusCode::OK, Some(call.id), error)
        }
    }
}

fn check_headers(server: &Server, headers: &HeaderMap, request: &Request) -> Result<(), RpcError> {
    let tool = match &*request.method {
        "tools/call" => request.params.as_ref().and_then(|params| params.get("name")),
        _ => None,
    };
    let parameters = match tool.as_ref().and_then(RawJson::text) {
        Some(tool) => server.service.header_parameters(&tool),
        None => Vec::new(),
    };
    headers::check(headers, request, &parameters)
}

/// A request under way, and what is said about it.
struct Call {
    id: Id,
    work: Pin<Box<dyn Future<Output = Result<RawJson, RpcError>> + Send>>,
    heard: mpsc::Receiver<Notification>,
    state: State,
}

enum State {
    Running,
    /// The answer is there, and waits for the notices before it to be told.
    Ending(Result<RawJson, RpcError>),
    Ended,
}

enum Said {
    Notice(Notification),
    Answer(Result<RawJson, RpcError>),
    /// Nothing, for a while.
    Nothing,
}

impl Call {
    async fn next(&mut self) -> Option<Said> {
        if matches!(self.state, State::Running) {
            tokio::select! {
                biased;
                Some(notice) = self.heard.recv() => return Some(Said::Notice(notice)),
                result = &mut self.work => self.state = State::Ending(result),
            }
        }
        // All notices were sent before the work ended, so they are all here.
        if let Ok(notice) = self.heard.try_recv() {
            return Some(Said::Notice(notice));
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ending(result) => Some(Said::Answer(result)),
            State::Running | State::Ended => None,
        }
    }

    async fn next_or_silence(&mut self, keep_alive: Duration) -> Option<Said> {
        time::timeout(keep_alive, self.next()).await.unwrap_or(Some(Said::Nothing))
    }

    fn event(&self, said: Said) -> Bytes {
        let message = match said {
            Said::Nothing => return Bytes::from_static(sse::KEEP_ALIVE),
            Said::Notice(notification) => Message::Notification(notification),
            Said::Answer(result) => Message::response(Some(self.id.clone()), result),
        };
        sse::encode(&SseEvent::message(message.encode()))
    }
}
