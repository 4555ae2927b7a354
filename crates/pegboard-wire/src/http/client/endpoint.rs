//! An HTTP endpoint: sending requests, and reading responses within limits.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use reqwest::{Client, Response, Url, redirect, retry};
use tokio::time;

use crate::http::body::{BodyBuffer, BodyTooLarge};
use crate::http::client::HttpOptions;
use crate::http::headers::LAST_EVENT_ID;
use crate::http::sse::{EventTooLarge, SseDecoder, SseEvent};
use crate::link::TransportError;
use crate::message::{Frame, InvalidMessage, Message};

/// Node and uvicorn close idle connections after 5 s; reusing one while it is being closed loses a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Interval of keep-alive probes on idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Time limit for the server to accept a message that has no response.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for draining a body, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of body bytes discarded to reuse a connection.
const MAX_DRAINED_BYTES: usize = 64 * 1024;

/// Time limit for reading the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of body bytes kept in an error.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Content type of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseBodyKind {
    Json,
    Events,
}

/// An HTTP client bound to a URL.
#[derive(Clone, Debug)]
pub(crate) struct HttpEndpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    pub(crate) max_body: usize,
    pub(crate) max_depth: usize,
    pub(crate) connect_timeout: Duration,
}

/// Creates an HTTP client that follows no redirects and retries no requests.
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
        .map_err(|error| network_error("cannot create an HTTP client", error))
}

impl HttpEndpoint {
    pub(crate) fn new(options: HttpOptions) -> Result<Self, TransportError> {
        let HttpOptions { url, headers, max_body, max_depth, connect_timeout, client: given } = options;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(TransportError::failed("invalid server URL: it must start with http:// or https://"));
        }
        let client = match given {
            Some(client) => client,
            None => client(connect_timeout)?,
        };
        Ok(Self { client, url, headers, max_body, max_depth, connect_timeout })
    }

    /// Resolves `reference` against this endpoint; an error if the origin differs.
    pub(crate) fn resolve(&self, reference: &str) -> Result<Self, TransportError> {
        let url = self
            .url
            .join(reference)
            .map_err(|_| TransportError::protocol("the server sent an invalid endpoint URL"))?;
        if url.origin() != self.url.origin() {
            return Err(TransportError::protocol("the server sent an endpoint on another origin"));
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

    /// Sends a message that has no response; `None` if the server did not accept it.
    pub(crate) async fn send_oneway(&self, own: HeaderMap, body: Bytes) -> Option<Response> {
        let sending = async {
            let response = self.post(own, body).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            Err(self.error_response(response).await.into_error())
        };
        match time::timeout(ACCEPT_TIMEOUT, sending).await {
            Ok(Ok(response)) => return Some(response),
            Ok(Err(error)) => tracing::warn!(%error, "The server rejected a message."),
            Err(_elapsed) => tracing::warn!("The server took too long to accept a message."),
        }
        None
    }

    /// Opens an event stream, resuming after the event with the id `after`.
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

    /// Deletes the session. Errors are only logged.
    pub(crate) async fn delete(&self, own: HeaderMap) {
        if let Err(error) = self.send(Method::DELETE, HeaderMap::new(), own, Bytes::new()).await {
            tracing::debug!(%error, "Cannot delete the session on the server.");
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
        let mut response = send(self.url.clone()).await.map_err(request_error)?;
        if let Some(url) = self.redirect_target(&response) {
            response = send(url).await.map_err(request_error)?;
        }
        Ok(response)
    }

    /// Returns the target of a 307 or 308 redirect, if its origin is the same.
    fn redirect_target(&self, response: &Response) -> Option<Url> {
        let is_redirect =
            matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        is_redirect.then(|| self.resolve(location).ok()).flatten().map(|endpoint| endpoint.url)
    }

    /// Reads the whole body of a response.
    pub(crate) async fn body(&self, mut response: Response) -> Result<Bytes, TransportError> {
        let promised = response.content_length().unwrap_or(0);
        let too_large = || TransportError::protocol(format!("the response exceeds {} bytes", self.max_body));
        if promised > self.max_body as u64 {
            return Err(too_large());
        }
        let mut buffer = BodyBuffer::new(self.max_body, promised);
        while let Some(chunk) = response.chunk().await.map_err(body_error)? {
            buffer.push(chunk).map_err(|BodyTooLarge| too_large())?;
        }
        Ok(buffer.finish())
    }

    /// Reads an error response.
    pub(crate) async fn error_response(&self, mut response: Response) -> ErrorResponse {
        let status = response.status();
        let authenticate =
            response.headers().get_all(WWW_AUTHENTICATE).iter().map(|value| header_text(value.as_bytes()));
        let authenticate = authenticate.collect::<Vec<_>>().join(", ");
        let mut buffer = BodyBuffer::new(self.max_body, 0);
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                if buffer.push(chunk).is_err() {
                    break;
                }
            }
        };
        let _ = time::timeout(ERROR_BODY_TIMEOUT, reading).await;
        let authenticate = (!authenticate.is_empty()).then_some(authenticate);
        ErrorResponse { status, authenticate, body: buffer.finish() }
    }

    /// Returns the event stream of a response.
    pub(crate) fn events(&self, response: Response) -> SseStream {
        SseStream { response, decoder: SseDecoder::new(self.max_body) }
    }

    /// Decodes the messages in a body or event.
    pub(crate) fn messages(&self, bytes: Bytes) -> Vec<Result<Message, InvalidMessage>> {
        match Message::decode(bytes, self.max_depth) {
            Ok(Frame::Single(message)) => vec![Ok(message)],
            Ok(Frame::Batch(messages)) => messages,
            Err(invalid) => vec![Err(invalid)],
        }
    }
}

/// A response with an error status.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    pub(crate) authenticate: Option<String>,
    pub(crate) body: Bytes,
}

impl ErrorResponse {
    /// Converts the response into an error, with the beginning of its body.
    pub(crate) fn into_error(self) -> TransportError {
        let beginning = &self.body[..self.body.len().min(MAX_ERROR_BODY_BYTES)];
        TransportError::Status {
            status: self.status.as_u16(),
            // A copy, so that a small error does not keep a large body alive.
            body: Bytes::copy_from_slice(beginning),
            authenticate: self.authenticate,
        }
    }
}

/// The events of a response stream.
#[derive(Debug)]
pub(crate) struct SseStream {
    response: Response,
    decoder: SseDecoder,
}

/// The reason why a stream has no next event.
#[derive(Debug)]
pub(crate) enum SseStreamError {
    /// The event exceeds the size limit; others may follow.
    TooLarge(EventTooLarge),
    /// The stream has ended.
    End,
    /// The connection broke.
    Broken(TransportError),
}

impl SseStream {
    pub(crate) async fn next(&mut self) -> Result<SseEvent, SseStreamError> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return event.map_err(SseStreamError::TooLarge);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.decoder.push(&chunk),
                Ok(None) => return Err(SseStreamError::End),
                Err(error) => return Err(SseStreamError::Broken(body_error(error))),
            }
        }
    }

    /// Drains the stream, so that its connection can be reused.
    pub(crate) async fn drain(self) {
        drain(self.response).await;
    }
}

/// Discards the rest of a response, so that its connection can be reused.
pub(crate) async fn drain(mut response: Response) {
    let reading = async {
        let mut n_read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            n_read += chunk.len();
            if n_read > MAX_DRAINED_BYTES {
                break;
            }
        }
    };
    let _ = time::timeout(DRAIN_TIMEOUT, reading).await;
}

/// Drains a response, if there is one.
pub(crate) async fn drain_if_any(response: Option<Response>) {
    if let Some(response) = response {
        drain(response).await;
    }
}

/// Returns the content type of a successful response.
pub(crate) fn response_body_kind(response: &Response) -> Result<ResponseBodyKind, TransportError> {
    let Some(given) = response.headers().get(CONTENT_TYPE) else {
        return Err(TransportError::protocol("the response has no content type"));
    };
    let given = header_text(given.as_bytes());
    match given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(ResponseBodyKind::Json),
        "text/event-stream" => Ok(ResponseBodyKind::Events),
        _ => Err(TransportError::protocol(format!("unexpected content type {given}"))),
    }
}

fn header_text(header: &[u8]) -> String {
    String::from_utf8_lossy(header).into_owned()
}

fn request_error(error: reqwest::Error) -> TransportError {
    let what = if error.is_connect() { "cannot reach the server" } else { "the server did not answer" };
    network_error(what, error)
}

fn body_error(error: reqwest::Error) -> TransportError {
    network_error("the response was cut off", error)
}

/// Formats a network error on one line, without the URL, which may contain a secret.
fn network_error(what: &str, error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    TransportError::failed(format!("{what}: {cause}"))
}
