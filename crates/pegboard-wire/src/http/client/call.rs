//! One request over streamable HTTP: its POST, its event stream, and resumption after a broken stream.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use reqwest::Response;

use crate::era::Era;
use crate::http::client::HttpTransport;
use crate::http::client::endpoint::{self, ErrorResponse, ResponseBodyKind, SseStream, SseStreamError};
use crate::http::client::listen::StreamCursor;
use crate::http::client::session::without_mirrored_headers;
use crate::http::headers::SESSION_ID;
use crate::link::{Arrival, TransportError, TransportEvent};
use crate::message::{Id, Message, Request};

/// Maximum number of consecutive resumptions that deliver no event.
const MAX_EMPTY_RESUMES: usize = 10;

/// A request in flight.
pub(super) struct HttpCall {
    server: Arc<HttpTransport>,
    request: Request,
    era: Era,
    headers: HeaderMap,
}

/// Outcome of reading a stream.
enum StreamEnd {
    Answered,
    Unanswered(TransportError),
}

impl HttpCall {
    pub(super) fn new(server: Arc<HttpTransport>, request: Request, headers: HeaderMap) -> Self {
        let era = Era::claimed(request.params.as_ref());
        Self { server, request, era, headers }
    }

    /// Returns `true` if the request starts a session.
    fn starts_session(&self) -> bool {
        self.era == Era::Session && &*self.request.method == "initialize"
    }

    /// Returns `true` if the request is sent with the headers of the session.
    fn is_in_session(&self) -> bool {
        self.era == Era::Session && !self.starts_session()
    }

    /// Returns the headers of the message that cancels the request. There is no such message for a stateless
    /// request, which is cancelled by closing its stream, nor for `initialize`, which must not be cancelled.
    pub(super) fn cancel_headers(&self) -> Option<HeaderMap> {
        self.is_in_session().then(|| without_mirrored_headers(self.headers.clone()))
    }

    /// Sends the request and forwards everything up to its response, or the error that ends it.
    pub(super) async fn run(self) -> Id {
        if let Err(error) = self.send().await {
            let event = TransportEvent::RequestFailed { id: self.request.id.clone(), error };
            self.deliver(event).await;
        }
        self.request.id
    }

    async fn send(&self) -> Result<(), TransportError> {
        let Ok(permit) = self.server.permits.acquire().await else {
            return Err(TransportError::Closed);
        };
        let own = self.headers.clone();
        let headers = if self.is_in_session() { self.server.session.headers_with(own) } else { own };
        let has_session_id = headers.contains_key(SESSION_ID);
        let body = Message::Request(self.request.clone()).encode();
        let response = self.server.endpoint.post(headers, body).await?;
        if !response.status().is_success() {
            let error_response = self.server.endpoint.error_response(response).await;
            return self.handle_error_response(error_response, has_session_id).await;
        }
        if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            let what = format!(
                "the server answered a request with HTTP status {} and no response",
                response.status()
            );
            return Err(TransportError::protocol(what));
        }
        if self.starts_session() {
            self.server.session.begin(response.headers().get(SESSION_ID).cloned(), &self.headers);
        }
        match endpoint::response_body_kind(&response)? {
            ResponseBodyKind::Json => self.read_json_body(response).await,
            ResponseBodyKind::Events => {
                let events = self.read_stream(response).await?;
                drop(permit);
                events.drain().await;
                Ok(())
            }
        }
    }

    async fn read_json_body(&self, response: Response) -> Result<(), TransportError> {
        let body = self.server.endpoint.body(response).await?;
        if self.deliver_messages(body).await? {
            return Ok(());
        }
        Err(TransportError::protocol("the response has the id of another request"))
    }

    /// Reads the stream, resuming it after a break, until the response has arrived.
    async fn read_stream(&self, response: Response) -> Result<SseStream, TransportError> {
        let mut cursor = StreamCursor::default();
        let mut events = self.server.endpoint.events(response);
        loop {
            match self.read_events(&mut events, &mut cursor).await? {
                StreamEnd::Answered => return Ok(events),
                StreamEnd::Unanswered(why) => events = self.resume(&mut cursor, why).await?,
            }
        }
    }

    async fn read_events(
        &self,
        events: &mut SseStream,
        cursor: &mut StreamCursor,
    ) -> Result<StreamEnd, TransportError> {
        loop {
            match events.next().await {
                Ok(event) => {
                    cursor.record(&event);
                    if event.is_message() && self.deliver_messages(event.data).await? {
                        return Ok(StreamEnd::Answered);
                    }
                }
                Err(SseStreamError::TooLarge(problem)) => return Err(TransportError::protocol(problem)),
                Err(SseStreamError::Broken(error)) => return Ok(StreamEnd::Unanswered(error)),
                Err(SseStreamError::End) => {
                    return Ok(StreamEnd::Unanswered(TransportError::protocol(
                        "the event stream ended without a response",
                    )));
                }
            }
        }
    }

    /// Resumes the stream after the last event with an id, if any.
    async fn resume(
        &self,
        cursor: &mut StreamCursor,
        mut why: TransportError,
    ) -> Result<SseStream, TransportError> {
        loop {
            if self.era == Era::Stateless
                || cursor.last_event_id().is_none()
                || cursor.n_empty() >= MAX_EMPTY_RESUMES
            {
                return Err(why);
            }
            cursor.backoff().await;
            let own = without_mirrored_headers(self.headers.clone());
            let headers = self.server.session.headers_with(own);
            let response = match self.server.endpoint.get(headers, cursor.last_event_id()).await {
                Ok(response) => response,
                Err(error) => {
                    why = error;
                    continue;
                }
            };
            if response.status().is_success()
                && endpoint::response_body_kind(&response)? == ResponseBodyKind::Events
            {
                return Ok(self.server.endpoint.events(response));
            }
            let is_final = !response.status().is_server_error();
            why = self.server.endpoint.error_response(response).await.into_error();
            if is_final {
                return Err(why);
            }
        }
    }

    /// Handles an error status. A JSON-RPC error in the body is the response, unless the status carries more
    /// information.
    async fn handle_error_response(
        &self,
        error_response: ErrorResponse,
        has_session_id: bool,
    ) -> Result<(), TransportError> {
        let says_more = match error_response.status {
            StatusCode::UNAUTHORIZED => true,
            StatusCode::FORBIDDEN => error_response.authenticate.is_some(),
            // The session is gone.
            StatusCode::NOT_FOUND => has_session_id,
            _ => false,
        };
        if !says_more
            && let Ok([Ok(Message::Response(response))]) =
                <[_; 1]>::try_from(self.server.endpoint.messages(error_response.body.clone()))
            && let Err(error) = response.result
        {
            // An error without a request id concerns the session, if there is one.
            let is_ours = response.id.as_ref().map_or(!has_session_id, |id| *id == self.request.id);
            if is_ours {
                let answer = Message::response(Some(self.request.id.clone()), Err(error));
                self.deliver(TransportEvent::Message(answer)).await;
                return Ok(());
            }
        }
        Err(error_response.into_error())
    }

    /// Forwards messages; returns `true` if the response to this request was among them.
    async fn deliver_messages(&self, bytes: Bytes) -> Result<bool, TransportError> {
        let mut is_answered = false;
        for message in self.server.endpoint.messages(bytes) {
            match message {
                Ok(Message::Response(mut response)) => {
                    let is_ours = match &response.id {
                        Some(id) => *id == self.request.id,
                        None => response.result.is_err(),
                    };
                    if !is_ours || is_answered {
                        tracing::debug!("Ignoring a response to another request.");
                        continue;
                    }
                    if self.starts_session()
                        && let Ok(result) = &response.result
                    {
                        self.server.session.set_protocol_version(result);
                    }
                    is_answered = true;
                    response.id = Some(self.request.id.clone());
                    self.deliver(TransportEvent::Message(Message::Response(response))).await;
                }
                Ok(message) => self.deliver(TransportEvent::Message(message)).await,
                Err(problem)
                    if is_answered || problem.id.as_ref().is_some_and(|id| *id != self.request.id) =>
                {
                    tracing::debug!(%problem, "Skipping a malformed message.");
                }
                Err(problem) => return Err(TransportError::protocol(problem)),
            }
        }
        Ok(is_answered)
    }

    async fn deliver(&self, event: TransportEvent) {
        self.server.deliver(Arrival::new(event).about(Some(self.request.id.clone()))).await;
    }
}
