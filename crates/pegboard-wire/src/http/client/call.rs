//! One request over streamable HTTP: its POST, its event stream, and resumption after a broken stream.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::task::coop;

use crate::connection::{ConnectionShared, OutgoingRequest};
use crate::era::Era;
use crate::http::client::HttpTransport;
use crate::http::client::endpoint::{self, ErrorResponse, ResponseBodyKind, SseStream, SseStreamError};
use crate::http::client::listen::StreamCursor;
use crate::http::client::response::HttpResponse;
use crate::http::client::send_order::SendTurn;
use crate::http::client::session::without_mirrored_headers;
use crate::http::headers::{MirroredHeaders, SESSION_ID};
use crate::http::received_headers::ReceivedHeaders;
use crate::http::resend::ResendSafety;
use crate::message::outgoing::EncodedRequest;
use crate::message::{Frame, Id, Message, Response};
use crate::transport::TransportError;

/// Maximum number of consecutive resumptions that deliver no event.
const MAX_EMPTY_RESUMES: usize = 10;

/// A request in flight, driven by the future that [`HttpCall::run`] returns.
pub(crate) struct HttpCall {
    connection: Arc<ConnectionShared>,
    server: Arc<HttpTransport>,
    id: Id,
    kind: HttpCallKind,
    encoded: EncodedRequest,
    headers: HeaderMap,
    mirrored_headers: Option<MirroredHeaders>,
    resend: ResendSafety,
}

/// The relation of a request to the session of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpCallKind {
    /// Starts a session. Must not be cancelled.
    Initialize,
    /// Asks which eras the server supports. Not cancelled either.
    Discover(Era),
    /// Belongs to the session, and is cancelled by a message.
    InSession,
    /// Belongs to no session, and is cancelled by closing its stream.
    Stateless,
}

impl HttpCallKind {
    fn new(era: Era, method: &str) -> Self {
        match (era, method) {
            (era, "server/discover") => Self::Discover(era),
            (Era::Session, "initialize") => Self::Initialize,
            (Era::Session, _) => Self::InSession,
            (Era::Stateless, _) => Self::Stateless,
        }
    }

    /// Returns `true` if the server may keep the stream of the request.
    fn is_resumable(self) -> bool {
        !matches!(self, Self::Stateless | Self::Discover(Era::Stateless))
    }

    /// Returns `true` if the request is sent with the headers of the session.
    fn is_in_session(self) -> bool {
        matches!(self, Self::InSession | Self::Discover(Era::Session))
    }
}

/// Outcome of reading a stream.
enum StreamEnd {
    Answered(Response),
    Unanswered(TransportError),
}

impl HttpCall {
    pub(crate) fn new(
        connection: Arc<ConnectionShared>,
        server: Arc<HttpTransport>,
        request: OutgoingRequest<'_>,
    ) -> Self {
        let OutgoingRequest { id, method, encoded, era, headers, mirrored_headers, resend, .. } = request;
        let kind = HttpCallKind::new(era, method);
        Self { connection, server, id: Id::Number(id), kind, encoded, headers, mirrored_headers, resend }
    }

    /// Returns the headers of the message that cancels the request, if a message does.
    pub(crate) fn cancel_headers(&self) -> Option<HeaderMap> {
        (self.kind == HttpCallKind::InSession).then(|| without_mirrored_headers(self.headers.clone()))
    }

    /// Sends the request and passes on everything up to its response, or the error that ends it.
    pub(crate) async fn run(self, turn: SendTurn) {
        turn.wait().await;
        let response = self.send().await;
        self.connection.finish_request(&self.id, response);
    }

    async fn send(&self) -> Result<Response, TransportError> {
        let Ok(permit) = self.server.permits.acquire().await else {
            return Err(TransportError::Closed);
        };
        let body = self.encoded.text().clone();
        let headers = match &self.mirrored_headers {
            _ if self.kind.is_in_session() => self.server.session_headers(&self.headers),
            Some(mirrored) => self.server.stateless_headers(mirrored, &self.headers),
            None => self.server.endpoint.message_headers(&self.headers),
        };
        let has_session_id = self.headers.contains_key(SESSION_ID)
            || (self.kind.is_in_session() && self.server.session.has_id());
        let response = self.server.endpoint.post(&headers, body, self.resend).await?;
        if !response.status().is_success() {
            // Boxed like all that a call rarely needs, so that its future stays small.
            let error_response = Box::pin(self.server.endpoint.error_response(response)).await;
            return self.error_result(error_response, has_session_id);
        }
        if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            let what = format!(
                "the server answered a request with HTTP status {} and no response",
                response.status()
            );
            return Err(TransportError::protocol(what));
        }
        if self.kind == HttpCallKind::Initialize {
            let id = response.header(&SESSION_ID).and_then(|id| HeaderValue::from_bytes(id).ok());
            self.server.session.begin(id, &self.headers);
        }
        match endpoint::response_body_kind(&response)? {
            ResponseBodyKind::Json => self.read_json_body(response).await,
            ResponseBodyKind::Events => {
                let (response, events) = Box::pin(self.read_stream(response)).await?;
                drop(permit);
                let mut draining = Box::pin(events.drain());
                // Usually the end has arrived with the response.
                if (&mut draining).now_or_never().is_none() {
                    // The task ends with the stream, at most after the drain timeout.
                    tokio::spawn(draining);
                }
                Ok(response)
            }
        }
    }

    async fn read_json_body(&self, response: HttpResponse) -> Result<Response, TransportError> {
        let body = self.server.endpoint.body(response).await?;
        if let Some(response) = self.receive(body).await? {
            return Ok(response);
        }
        self.server.endpoint.close_idle();
        Err(TransportError::protocol("the response has the id of another request"))
    }

    /// Reads the stream, resuming it after a break, until the response has arrived.
    async fn read_stream(&self, response: HttpResponse) -> Result<(Response, SseStream), TransportError> {
        let mut cursor = StreamCursor::default();
        let mut events = self.server.endpoint.events(response);
        loop {
            match self.read_events(&mut events, &mut cursor).await? {
                StreamEnd::Answered(response) => return Ok((response, events)),
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
            // A flood of events must not keep other tasks of the thread waiting.
            coop::consume_budget().await;
            match events.next().await {
                Ok(event) => {
                    cursor.record(&event);
                    if event.is_message()
                        && let Some(response) = self.receive(event.data).await?
                    {
                        return Ok(StreamEnd::Answered(response));
                    }
                }
                Err(SseStreamError::TooLarge(problem)) if problem.is_notification => {
                    tracing::debug!(%problem, "Skipping an oversized event.");
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
            if !self.kind.is_resumable()
                || cursor.last_event_id().is_none()
                || cursor.n_empty() >= MAX_EMPTY_RESUMES
            {
                return Err(why);
            }
            cursor.backoff().await;
            let own = without_mirrored_headers(self.headers.clone());
            let headers = self.server.session.headers_with(own);
            let response = match self.server.endpoint.get(&headers, cursor.last_event_id()).await {
                Ok(response) => response,
                Err(error) => {
                    why = error.after_sending();
                    continue;
                }
            };
            if response.status().is_success()
                && endpoint::response_body_kind(&response)? == ResponseBodyKind::Events
            {
                return Ok(self.server.endpoint.events(response));
            }
            // The request itself was accepted, and may have run: its status is not that of this one.
            let status = response.status();
            why = TransportError::failed(format_args!(
                "the event stream broke, and resuming it was answered with HTTP status {}",
                status.as_u16()
            ));
            if !status.is_server_error() {
                return Err(why);
            }
        }
    }

    /// Returns the result of an error status. A JSON-RPC error in the body is the response, unless the status
    /// carries more information.
    fn error_result(
        &self,
        error_response: ErrorResponse,
        has_session_id: bool,
    ) -> Result<Response, TransportError> {
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
            && response.result.is_err()
            // An error without a request id concerns the session, if there is one.
            && response.id.as_ref().map_or(!has_session_id, |id| *id == self.id)
        {
            return Ok(response);
        }
        Err(error_response.into_error())
    }

    /// Passes on the messages in a body or event; returns the response to this request, if it is among them.
    async fn receive(&self, bytes: Bytes) -> Result<Option<Response>, TransportError> {
        let mut answer = None;
        let messages = match Message::decode(bytes, self.server.endpoint.max_depth) {
            // Nearly always there is just the response.
            Ok(Frame::Single(Message::Response(response))) if self.is_answered_by(&response) => {
                self.note_revision(&response);
                return Ok(Some(response));
            }
            Ok(Frame::Single(message)) => vec![Ok(message)],
            Ok(Frame::Batch(messages)) => messages,
            Err(invalid) => vec![Err(invalid)],
        };
        for message in messages {
            match message {
                Ok(Message::Response(response)) => {
                    if answer.is_none() && self.is_answered_by(&response) {
                        self.note_revision(&response);
                        answer = Some(response);
                    } else {
                        tracing::debug!("Ignoring a response to another request.");
                    }
                }
                Ok(message) => {
                    let related_request = Some(self.id.clone());
                    Box::pin(self.connection.receive(message, related_request, ReceivedHeaders::default()))
                        .await;
                }
                Err(problem) if answer.is_some() || problem.id.as_ref().is_some_and(|id| *id != self.id) => {
                    tracing::debug!(%problem, "Skipping a malformed message.");
                }
                Err(problem) => return Err(TransportError::protocol(problem)),
            }
        }
        Ok(answer)
    }

    fn is_answered_by(&self, response: &Response) -> bool {
        match &response.id {
            Some(id) => *id == self.id,
            None => response.result.is_err(),
        }
    }

    /// Records the protocol version if the response starts a session.
    fn note_revision(&self, response: &Response) {
        if self.kind == HttpCallKind::Initialize
            && let Ok(result) = &response.result
        {
            self.server.session.set_protocol_version(result);
        }
    }
}
