//! One HTTP endpoint: how it is reached, and how what it answers is read within bounds.

use std::error::Error;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use reqwest::{Client, Response, Url, redirect, retry};
use tokio::time;

use crate::http::client::HttpOptions;
use crate::http::sse::{Decoder, SseEvent, TooLarge};
use crate::link::TransportError;
use crate::message::{Frame, Message, Unreadable};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Node and uvicorn close idle connections after 5 s; one that they close while we use it loses a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// How often a silent connection is asked whether the other side still lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long a server has to take what it does not answer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long what is left of a body is waited for, so that its connection can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How much of a body is thrown away for the sake of its connection.
const DRAIN_BYTES: usize = 64 * 1024;

/// How long the body of a refusal may take.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of the body of a refusal is kept.
const REFUSAL_BYTES: usize = 64 * 1024;

/// How much is set aside on the word of a server before it sends anything.
const TRUSTED_BYTES: usize = 256 * 1024;

/// What a server's answer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Events,
}

/// An address, and the way to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    pub(crate) max_body: usize,
    pub(crate) max_depth: usize,
    pub(crate) connect_timeout: Duration,
}

/// A client that follows no redirect and repeats no request.
pub(crate) fn client(connect_timeout: Duration) -> Result<Client, TransportError> {
    Client::builder()
        .user_agent(concat!("pegboard/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .connect_timeout(connect_timeout)
        .build()
        .map_err(|error| network("HTTP cannot be set up", error))
}

impl Endpoint {
    pub(crate) fn new(options: HttpOptions) -> Result<Self, TransportError> {
        let HttpOptions { url, headers, max_body, max_depth, connect_timeout, client: given } = options;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(TransportError::failed(
                "the address of a server must begin with http:// or https://",
            ));
        }
        let client = match given {
            Some(client) => client,
            None => client(connect_timeout)?,
        };
        Ok(Self { client, url, headers, max_body, max_depth, connect_timeout })
    }

    /// The endpoint that `reference` names, as seen from this one; only on the same origin.
    pub(crate) fn resolve(&self, reference: &str) -> Result<Self, TransportError> {
        let url =
            self.url.join(reference).map_err(|_| TransportError::protocol("an endpoint is no address"))?;
        if url.origin() != self.url.origin() {
            return Err(TransportError::protocol(
                "an endpoint is on another server than the one that names it",
            ));
        }
        Ok(Self { url, ..self.clone() })
    }

    /// Sends a message.
    pub(crate) async fn post(&self, own: HeaderMap, body: Bytes) -> Result<Response, TransportError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        self.send(Method::POST, headers, own, body).await
    }

    /// Sends a message that has no answer; `None` if the server did not take it.
    pub(crate) async fn tell(&self, own: HeaderMap, body: Bytes) -> Option<Response> {
        let sending = async {
            let response = self.post(own, body).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            Err(self.refusal(response).await.into_error())
        };
        match time::timeout(ACCEPT_TIMEOUT, sending).await {
            Ok(Ok(response)) => return Some(response),
            Ok(Err(error)) => tracing::warn!(%error, "The server did not take what it was told."),
            Err(_elapsed) => tracing::warn!("The server took too long to take what it was told."),
        }
        None
    }

    /// Asks for a stream, after the event with the id `after`.
    pub(crate) async fn get(
        &self,
        own: HeaderMap,
        after: Option<&HeaderValue>,
    ) -> Result<Response, TransportError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = after {
            headers.insert(LAST_EVENT_ID, id.clone());
        }
        self.send(Method::GET, headers, own, Bytes::new()).await
    }

    /// Ends a session; whether the server cares or not.
    pub(crate) async fn delete(&self, own: HeaderMap) {
        if let Err(error) = self.send(Method::DELETE, HeaderMap::new(), own, Bytes::new()).await {
            tracing::debug!(%error, "The server could not be told that the session is over.");
        }
    }

    async fn send(
        &self,
        method: Method,
        mut headers: HeaderMap,
        own: HeaderMap,
        body: Bytes,
    ) -> Result<Response, TransportError> {
        headers.extend(self.headers.clone());
        headers.extend(own);
        let send = |url: Url| {
            let request = self.client.request(method.clone(), url).headers(headers.clone());
            let request = if body.is_empty() { request } else { request.body(body.clone()) };
            request.send()
        };
        let mut response = send(self.url.clone()).await.map_err(unanswered)?;
        if let Some(url) = self.moved(&response) {
            response = send(url).await.map_err(unanswered)?;
        }
        Ok(response)
    }

    /// Where the server wants the same request again, if that is still the same server.
    fn moved(&self, response: &Response) -> Option<Url> {
        let is_moved =
            matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        is_moved.then(|| self.resolve(location).ok()).flatten().map(|endpoint| endpoint.url)
    }

    /// The whole body of an answer.
    pub(crate) async fn body(&self, mut response: Response) -> Result<Bytes, TransportError> {
        let promised = response.content_length().unwrap_or(0);
        let too_large =
            || TransportError::protocol(format!("an answer is larger than {} bytes", self.max_body));
        if promised > self.max_body as u64 {
            return Err(too_large());
        }
        let mut whole = Whole::default();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if whole.len() + chunk.len() > self.max_body {
                return Err(too_large());
            }
            whole.add(chunk, promised);
        }
        Ok(whole.finish())
    }

    /// What a server said with a status that is no success.
    pub(crate) async fn refusal(&self, mut response: Response) -> Refusal {
        let status = response.status();
        let authenticate =
            response.headers().get_all(WWW_AUTHENTICATE).iter().map(|value| text_of(value.as_bytes()));
        let authenticate = authenticate.collect::<Vec<_>>().join(", ");
        let mut whole = Whole::default();
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                if whole.len() + chunk.len() > self.max_body {
                    break;
                }
                whole.add(chunk, 0);
            }
        };
        let _ = time::timeout(REFUSAL_TIMEOUT, reading).await;
        let authenticate = (!authenticate.is_empty()).then_some(authenticate);
        Refusal { status, authenticate, body: whole.finish() }
    }

    /// The events of an answer.
    pub(crate) fn events(&self, response: Response) -> Events {
        Events { response, decoder: Decoder::new(self.max_body) }
    }

    /// The messages that bytes hold.
    pub(crate) fn messages(&self, bytes: Bytes) -> Vec<Result<Message, Unreadable>> {
        match Message::decode(bytes, self.max_depth) {
            Ok(Frame::One(message)) => vec![Ok(message)],
            Ok(Frame::Batch(messages)) => messages,
            Err(garbage) => vec![Err(garbage)],
        }
    }
}

/// A body as it comes in: not copied if it comes in one piece.
#[derive(Default)]
struct Whole {
    first: Bytes,
    rest: BytesMut,
}

impl Whole {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn add(&mut self, chunk: Bytes, promised: u64) {
        if self.len() == 0 {
            self.first = chunk;
            return;
        }
        if self.rest.is_empty() {
            let promised = usize::try_from(promised).unwrap_or(usize::MAX).min(TRUSTED_BYTES);
            self.rest.reserve(promised.max(self.first.len() + chunk.len()));
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&chunk);
    }

    fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// What a server said with a status that is no success.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) authenticate: Option<String>,
    pub(crate) body: Bytes,
}

impl Refusal {
    /// The refusal as an error, with the beginning of its body.
    pub(crate) fn into_error(self) -> TransportError {
        let beginning = &self.body[..self.body.len().min(REFUSAL_BYTES)];
        TransportError::Status {
            status: self.status.as_u16(),
            // A copy, so that a small error does not hold on to a large body.
            body: Bytes::copy_from_slice(beginning),
            authenticate: self.authenticate,
        }
    }
}

/// The events of a stream, one after the other.
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    decoder: Decoder,
}

/// Why there is no next event.
#[derive(Debug)]
pub(crate) enum NoEvent {
    /// It is too large; others may follow.
    TooLarge(TooLarge),
    /// The stream is over.
    End,
    /// The stream broke off.
    Broken(TransportError),
}

impl Events {
    pub(crate) async fn next(&mut self) -> Result<SseEvent, NoEvent> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return event.map_err(NoEvent::TooLarge);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.decoder.push(&chunk),
                Ok(None) => return Err(NoEvent::End),
                Err(error) => return Err(NoEvent::Broken(broken(error))),
            }
        }
    }

    /// Lets the stream end, so that its connection can be used again.
    pub(crate) async fn drain(self) {
        drain(self.response).await;
    }
}

/// Reads what is left of an answer that nobody needs, so that its connection can be used again.
pub(crate) async fn drain(mut response: Response) {
    let reading = async {
        let mut n_read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            n_read += chunk.len();
            if n_read > DRAIN_BYTES {
                break;
            }
        }
    };
    let _ = time::timeout(DRAIN_TIMEOUT, reading).await;
}

/// Drains an answer, if there is one.
pub(crate) async fn drain_if_any(response: Option<Response>) {
    if let Some(response) = response {
        drain(response).await;
    }
}

/// What a successful answer is written in.
pub(crate) fn format(response: &Response) -> Result<Format, TransportError> {
    let Some(given) = response.headers().get(CONTENT_TYPE) else {
        return Err(TransportError::protocol("an answer has no content type"));
    };
    let given = text_of(given.as_bytes());
    match given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Format::Json),
        "text/event-stream" => Ok(Format::Events),
        _ => Err(TransportError::protocol(format!("an answer has the content type {given}"))),
    }
}

fn text_of(header: &[u8]) -> String {
    String::from_utf8_lossy(header).into_owned()
}

fn unanswered(error: reqwest::Error) -> TransportError {
    let what = if error.is_connect() { "the server cannot be reached" } else { "the server did not answer" };
    network(what, error)
}

fn broken(error: reqwest::Error) -> TransportError {
    network("the answer broke off", error)
}

/// An error of the network in one line, without the address, which may hold a secret.
fn network(what: &str, error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    TransportError::failed(format!("{what}: {cause}"))
}
