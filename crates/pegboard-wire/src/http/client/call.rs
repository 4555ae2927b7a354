//! One request over streamable HTTP: its POST, its stream, and how it goes on when the stream breaks off.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use reqwest::Response;

use crate::http::client::Server;
use crate::http::client::endpoint::{self, Events, Format, NoEvent, Refusal};
use crate::http::client::listen::Cursor;
use crate::http::client::session::{SESSION_ID, without_own_headers};
use crate::link::{Arrival, Event, TransportError};
use crate::message::{Id, Message, Request};

/// How often a stream may be taken up again without bringing anything.
const MAX_QUIET: usize = 10;

/// What tells a request of the stateless era.
const STATELESS: [&str; 2] = ["_meta", "io.modelcontextprotocol/protocolVersion"];

/// To which era a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// It stands alone.
    Stateless,
    /// It begins a session.
    Beginning,
    /// It is part of a session, or of the era that has them.
    Session,
}

impl Era {
    pub(super) fn of(request: &Request) -> Self {
        if request.params.as_ref().is_some_and(|params| params.at(&STATELESS).is_some()) {
            Self::Stateless
        } else if &*request.method == "initialize" {
            Self::Beginning
        } else {
            Self::Session
        }
    }
}

/// A request on its way.
pub(super) struct Call {
    server: Arc<Server>,
    request: Request,
    era: Era,
    headers: HeaderMap,
}

/// How a stream ended.
enum End {
    Answered,
    Unanswered(TransportError),
}

impl Call {
    pub(super) fn new(server: Arc<Server>, request: Request, era: Era, headers: HeaderMap) -> Self {
        Self { server, request, era, headers }
    }

    /// Asks, and hands on all that comes until the answer, or why none will come.
    pub(super) async fn run(self) -> Id {
        if let Err(error) = self.ask().await {
            let event = Event::Lost { id: self.request.id.clone(), error };
            self.arrive(event).await;
        }
        self.request.id
    }

    async fn ask(&self) -> Result<(), TransportError> {
        let Ok(permit) = self.server.permits.acquire().await else {
            return Err(TransportError::Closed);
        };
        let headers = self.headers_of(self.headers.clone());
        let is_in_session = headers.contains_key(SESSION_ID);
        let body = Message::Request(self.request.clone()).encode();
        let response = self.server.endpoint.post(headers, body).await?;
        if !response.status().is_success() {
            let refusal = self.server.endpoint.refusal(response).await;
            return self.take_refusal(refusal, is_in_session).await;
        }
        if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            let what = format!(
                "the server took a request with HTTP status {} instead of an answer",
                response.status()
            );
            return Err(TransportError::protocol(what));
        }
        if self.era == Era::Beginning {
            self.server.session.begin(response.headers().get(SESSION_ID).cloned(), &self.headers);
        }
        match endpoint::format(&response)? {
            Format::Json => self.take_body(response).await,
            Format::Events => {
                let events = self.take_stream(response).await?;
                drop(permit);
                events.drain().await;
                Ok(())
            }
        }
    }

    /// A letter's headers as this request sends them.
    fn headers_of(&self, own: HeaderMap) -> HeaderMap {
        match self.era {
            Era::Stateless | Era::Beginning => own,
            Era::Session => self.server.session.headers_with(own),
        }
    }

    async fn take_body(&self, response: Response) -> Result<(), TransportError> {
        let body = self.server.endpoint.body(response).await?;
        if self.hand_on(body).await? {
            return Ok(());
        }
        Err(TransportError::protocol("the server answered another request than the one it was asked"))
    }

    /// Reads a stream, and the streams that go on where it breaks off, until the answer has come.
    async fn take_stream(&self, response: Response) -> Result<Events, TransportError> {
        let mut cursor = Cursor::default();
        let mut events = self.server.endpoint.events(response);
        loop {
            match self.read(&mut events, &mut cursor).await? {
                End::Answered => return Ok(events),
                End::Unanswered(why) => events = self.resume(&mut cursor, why).await?,
            }
        }
    }

    async fn read(&self, events: &mut Events, cursor: &mut Cursor) -> Result<End, TransportError> {
        loop {
            match events.next().await {
                Ok(event) => {
                    cursor.pass(&event);
                    if event.is_message() && self.hand_on(event.data).await? {
                        return Ok(End::Answered);
                    }
                }
                Err(NoEvent::TooLarge(problem)) => return Err(TransportError::protocol(problem)),
                Err(NoEvent::Broken(error)) => return Ok(End::Unanswered(error)),
                Err(NoEvent::End) => {
                    return Ok(End::Unanswered(TransportError::protocol("a stream ended without an answer")));
                }
            }
        }
    }

    /// Goes on with a stream after the last event that has an id, if there is one.
    async fn resume(&self, cursor: &mut Cursor, mut why: TransportError) -> Result<Events, TransportError> {
        loop {
            if self.era == Era::Stateless || cursor.last().is_none() || cursor.n_quiet() >= MAX_QUIET {
                return Err(why);
            }
            cursor.pause().await;
            let own = without_own_headers(self.headers.clone());
            let headers = self.server.session.headers_with(own);
            let response = match self.server.endpoint.get(headers, cursor.last()).await {
                Ok(response) => response,
                Err(error) => {
                    why = error;
                    continue;
                }
            };
            if response.status().is_success() && endpoint::format(&response)? == Format::Events {
                return Ok(self.server.endpoint.events(response));
            }
            let is_final = !response.status().is_server_error();
            why = self.server.endpoint.refusal(response).await.into_error();
            if is_final {
                return Err(why);
            }
        }
    }

    /// A refusal is an answer if it is a JSON-RPC error, unless its status says more than that.
    async fn take_refusal(&self, refusal: Refusal, is_in_session: bool) -> Result<(), TransportError> {
        let says_more = match refusal.status {
            StatusCode::UNAUTHORIZED => true,
            StatusCode::FORBIDDEN => refusal.authenticate.is_some(),
            // The session is gone.
            StatusCode::NOT_FOUND => is_in_session,
            _ => false,
        };
        if !says_more
            && let Ok([Ok(Message::Response(response))]) =
                <[_; 1]>::try_from(self.server.endpoint.messages(refusal.body.clone()))
            && let Err(error) = response.result
        {
            // An error about no request in particular is about the session, if there is one.
            let is_ours = response.id.as_ref().map_or(!is_in_session, |id| *id == self.request.id);
            if is_ours {
                let answer = Message::response(Some(self.request.id.clone()), Err(error));
                self.arrive(Event::Message(answer)).await;
                return Ok(());
            }
        }
        Err(refusal.into_error())
    }

    /// Hands on what the server said; whether our answer was part of it.
    async fn hand_on(&self, bytes: Bytes) -> Result<bool, TransportError> {
        let mut is_answered = false;
        for message in self.server.endpoint.messages(bytes) {
            match message {
                Ok(Message::Response(mut response)) => {
                    let is_ours = match &response.id {
                        Some(id) => *id == self.request.id,
                        None => response.result.is_err(),
                    };
                    if !is_ours || is_answered {
                        tracing::debug!("An answer to another request was passed over.");
                        continue;
                    }
                    if self.era == Era::Beginning
                        && let Ok(result) = &response.result
                    {
                        self.server.session.agree(result);
                    }
                    is_answered = true;
                    response.id = Some(self.request.id.clone());
                    self.arrive(Event::Message(Message::Response(response))).await;
                }
                Ok(message) => self.arrive(Event::Message(message)).await,
                Err(problem)
                    if is_answered || problem.id.as_ref().is_some_and(|id| *id != self.request.id) =>
                {
                    tracing::debug!(%problem, "Something that is no message was passed over.");
                }
                Err(problem) => return Err(TransportError::protocol(problem)),
            }
        }
        Ok(is_answered)
    }

    async fn arrive(&self, event: Event) {
        self.server.arrive(Arrival::new(event).about(Some(self.request.id.clone()))).await;
    }
}
