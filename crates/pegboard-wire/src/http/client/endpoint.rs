//! An HTTP endpoint: sending requests, and reading responses within limits.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
    WWW_AUTHENTICATE,
};
use http::{Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use reqwest::{Client, Url};
use tokio::time;

use crate::http::body::{BodyBuffer, BodyTooLarge};
use crate::http::client::HttpOptions;
use crate::http::client::authorization::{AuthorizationRejection, RejectionReason, RequestAuthorizer};
use crate::http::client::general::{AGENT, direct_origin, request_error};
use crate::http::client::http1::RequestBytes;
use crate::http::client::pool::ConnectionPool;
use crate::http::client::request_headers::{RequestHeaders, SharedHeaders};
use crate::http::client::response::HttpResponse;
use crate::http::headers::LAST_EVENT_ID;
use crate::http::resend::ResendSafety;
use crate::http::sse::{EventTooLarge, SseDecoder, SseEvent};
use crate::message::{Frame, InvalidMessage, Message};
use crate::transport::{InputLimits, TransportError, too_large};

/// Time limit for the server to accept a message that has no response.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for draining a body, so that its connection can be reused.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of body bytes discarded to reuse a connection.
pub(super) const MAX_DRAINED_BYTES: usize = 64 * 1024;

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
    sender: RequestSender,
    url: Url,
    /// Headers of every request.
    headers: HeaderMap,
    authorizer: Option<Arc<dyn RequestAuthorizer>>,
    /// Headers of every message.
    post_headers: Arc<SharedHeaders>,
    pub(crate) max_body: usize,
    pub(crate) max_depth: usize,
    pub(crate) connect_timeout: Duration,
}

/// The way requests reach an endpoint.
#[derive(Clone, Debug)]
enum RequestSender {
    /// Plain HTTP/1.1, directly.
    Pooled {
        pool: Arc<ConnectionPool>,
        /// Path and query of the endpoint.
        target: Arc<str>,
    },
    /// TLS, HTTP/2, proxies.
    General(Client),
}

impl HttpEndpoint {
    pub(crate) fn new(options: HttpOptions) -> Result<Self, TransportError> {
        let HttpOptions { url, headers: given, authorizer, max_body, max_depth, connect_timeout, client } =
            options;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(TransportError::failed("invalid server URL: it must start with http:// or https://"));
        }
        let mut headers = HeaderMap::new();
        let sender = if let Some(origin) = direct_origin(&url) {
            let host = origin.authority().map_or("", |authority| authority.as_str());
            headers.extend(HeaderValue::from_str(host).ok().map(|host| (HOST, host)));
            headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            headers.extend(basic_credentials(&url).map(|value| (AUTHORIZATION, value)));
            let pool = Arc::new(ConnectionPool::new(origin, connect_timeout));
            RequestSender::Pooled { pool, target: origin_form(&url)? }
        } else {
            RequestSender::General(client.get(&url, connect_timeout)?)
        };
        let mut post_headers = headers.clone();
        post_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        post_headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.extend(given.clone());
        post_headers.extend(given);
        let has_user = basic_credentials(&url).is_some();
        let authorizer = authorizer.filter(|_| !has_user && !headers.contains_key(AUTHORIZATION));
        let post_headers = SharedHeaders::new(post_headers);
        Ok(Self { sender, url, headers, authorizer, post_headers, max_body, max_depth, connect_timeout })
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
        let mut endpoint = self.clone();
        if let RequestSender::Pooled { target, .. } = &mut endpoint.sender {
            *target = origin_form(&url)?;
        }
        endpoint.url = url;
        Ok(endpoint)
    }

    /// Returns the headers of every message.
    pub(crate) fn post_headers(&self) -> &Arc<SharedHeaders> {
        &self.post_headers
    }

    /// Returns the headers of a message with headers of its own.
    pub(crate) fn message_headers<'h>(&self, own: &'h HeaderMap) -> RequestHeaders<'h> {
        RequestHeaders::new(Arc::clone(&self.post_headers), Cow::Borrowed(own))
    }

    /// Sends a message with all its headers.
    pub(crate) async fn post(
        &self,
        headers: &RequestHeaders<'_>,
        body: Bytes,
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        self.send(Method::POST, headers, body, resend).await
    }

    /// Sends a message that has no response; `None` if the server did not accept it.
    pub(crate) async fn send_oneway(
        &self,
        headers: &RequestHeaders<'_>,
        body: Bytes,
    ) -> Option<HttpResponse> {
        let sending = async {
            // A peer ignores the second of two equal notifications or responses.
            let response = self.post(headers, body, ResendSafety::Safe).await?;
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
        own: &HeaderMap,
        after: Option<&HeaderValue>,
    ) -> Result<HttpResponse, TransportError> {
        let mut headers = self.headers.clone();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("text/event-stream"));
        if let Some(id) = after {
            headers.insert(LAST_EVENT_ID, id.clone());
        }
        headers.extend(own.clone());
        self.send(Method::GET, &headers.into(), Bytes::new(), ResendSafety::Safe).await
    }

    /// Deletes the session. Errors are only logged.
    pub(crate) async fn delete(&self, own: &HeaderMap) {
        let mut headers = self.headers.clone();
        headers.extend(own.clone());
        if let Err(error) = self.send(Method::DELETE, &headers.into(), Bytes::new(), ResendSafety::Safe).await
        {
            tracing::debug!(%error, "Cannot delete the session on the server.");
        }
    }

    async fn send(
        &self,
        method: Method,
        headers: &RequestHeaders<'_>,
        body: Bytes,
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        let Some(authorizer) = &self.authorizer else {
            return self.send_following(&method, (headers, &body), resend).await;
        };
        // Boxed, so that the future of a request without a login stays small.
        if !authorizer.is_anonymous() {
            return Box::pin(self.send_authorized(&**authorizer, &method, (headers, &body), resend)).await;
        }
        let response = self.send_following(&method, (headers, &body), resend).await?;
        match rejection(&response, None) {
            Some(rejection) => {
                let rejected = (response, rejection);
                Box::pin(self.send_again(rejected, &**authorizer, (&method, headers, &body), resend)).await
            }
            None => Ok(response),
        }
    }

    /// Sends a request with the header of the authorizer.
    async fn send_authorized(
        &self,
        authorizer: &dyn RequestAuthorizer,
        method: &Method,
        (headers, body): (&RequestHeaders<'_>, &Bytes),
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        let authorization = authorizer.authorize().await?;
        let sent_headers = headers.authorized(authorization.clone());
        let response = self.send_following(method, (&sent_headers, body), resend).await?;
        match rejection(&response, authorization) {
            Some(rejection) => {
                self.send_again((response, rejection), authorizer, (method, headers, body), resend).await
            }
            None => Ok(response),
        }
    }

    /// Sends a request again with another header, after the server has rejected it without processing it.
    async fn send_again(
        &self,
        (response, rejection): (HttpResponse, AuthorizationRejection),
        authorizer: &dyn RequestAuthorizer,
        (method, headers, body): (&Method, &RequestHeaders<'_>, &Bytes),
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        response.drain().await;
        let authorization = authorizer.replace_rejected(rejection).await?;
        let sent_headers = headers.authorized(Some(authorization.clone()));
        let response = self.send_following(method, (&sent_headers, body), resend).await?;
        let Some(mut rejection) = self::rejection(&response, Some(authorization)) else {
            return Ok(response);
        };
        if rejection.reason == RejectionReason::Unauthorized {
            rejection.reason = RejectionReason::UnauthorizedAgain;
        }
        match authorizer.replace_rejected(rejection).await {
            Ok(_) => Ok(response),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a request, and again after a redirect on this origin.
    async fn send_following(
        &self,
        method: &Method,
        (headers, body): (&RequestHeaders<'_>, &Bytes),
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        let response = self.send_to(None, method, (headers, body), resend).await?;
        match self.redirect_target(&response) {
            Some(url) => Box::pin(self.send_to(Some(url), method, (headers, body), resend)).await,
            None => Ok(response),
        }
    }

    /// Sends a request to a URL of this origin; `None` is the endpoint's own. If a reused connection breaks before the
    /// response, a request that is safe to send again is, at once.
    async fn send_to(
        &self,
        url: Option<Url>,
        method: &Method,
        (headers, body): (&RequestHeaders<'_>, &Bytes),
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        match &self.sender {
            RequestSender::Pooled { pool, target } => {
                let target = match url {
                    None => Cow::Borrowed(target),
                    Some(url) => Cow::Owned(origin_form(&url)?),
                };
                let request = RequestBytes::new(method, &target, headers, body.clone());
                let response = match pool.send(&request).await {
                    Err(failure) if failure.is_stale && resend == ResendSafety::Safe => {
                        // Boxed, so that the future of every other request stays small.
                        let sent = Box::pin(pool.send_on_new_connection(&request)).await;
                        sent.map_err(TransportError::after_sending)?
                    }
                    sent => sent.map_err(|failure| failure.error)?,
                };
                HttpResponse::pooled(response)
            }
            RequestSender::General(client) => {
                Box::pin(self.send_general(client, (url, method), (headers, body), resend)).await
            }
        }
    }

    async fn send_general(
        &self,
        client: &Client,
        (url, method): (Option<Url>, &Method),
        (headers, body): (&RequestHeaders<'_>, &Bytes),
        resend: ResendSafety,
    ) -> Result<HttpResponse, TransportError> {
        let url = url.unwrap_or_else(|| self.url.clone());
        let request = || {
            let request = client.request(method.clone(), url.clone()).headers(headers.to_map());
            if body.is_empty() { request } else { request.body(body.clone()) }
        };
        let response = match request().send().await {
            // The client does not tell whether the connection was reused.
            Err(error) if resend == ResendSafety::Safe && !error.is_connect() && !error.is_timeout() => {
                let sent = request().send().await;
                sent.map_err(|error| request_error(&url, error).after_sending())
            }
            sent => sent.map_err(|error| request_error(&url, error)),
        };
        HttpResponse::general(response?)
    }

    /// Closes idle connections after a violation of the protocol.
    pub(crate) fn close_idle(&self) {
        if let RequestSender::Pooled { pool, .. } = &self.sender {
            pool.clear();
        }
    }

    /// Returns the target of a 307 or 308 redirect, if its origin is the same.
    fn redirect_target(&self, response: &HttpResponse) -> Option<Url> {
        if !matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
            return None;
        }
        let location = std::str::from_utf8(response.header(&LOCATION)?).ok()?;
        self.resolve(location).ok().map(|endpoint| endpoint.url)
    }

    /// Reads the whole body of a response.
    pub(crate) async fn body(&self, mut response: HttpResponse) -> Result<Bytes, TransportError> {
        let promised = response.content_length().unwrap_or(0);
        let too_large = || TransportError::protocol(too_large(self.max_body));
        if promised > self.max_body as u64 {
            return Err(too_large());
        }
        let mut buffer = BodyBuffer::new(self.max_body, promised);
        while let Some(chunk) = response.chunk().await? {
            buffer.push(chunk).map_err(|BodyTooLarge| too_large())?;
        }
        Ok(buffer.finish())
    }

    /// Reads an error response.
    pub(crate) async fn error_response(&self, mut response: HttpResponse) -> ErrorResponse {
        let status = response.status();
        let authenticate = challenge(&response);
        let mut buffer = BodyBuffer::new(self.max_body, 0);
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                if buffer.push(chunk).is_err() {
                    break;
                }
            }
        };
        let _ = time::timeout(ERROR_BODY_TIMEOUT, reading).await;
        ErrorResponse { status, authenticate, body: buffer.finish() }
    }

    /// Returns the event stream of a response.
    pub(crate) fn events(&self, response: HttpResponse) -> SseStream {
        SseStream { response, decoder: SseDecoder::new(self.max_body) }
    }

    /// Returns the limits of a message.
    pub(crate) fn input_limits(&self) -> InputLimits {
        InputLimits { max_bytes: self.max_body, max_depth: self.max_depth, ..InputLimits::client() }
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
    response: HttpResponse,
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
                Err(error) => return Err(SseStreamError::Broken(error)),
            }
            if let Some(event) = self.decoder.next_event() {
                return event.map_err(SseStreamError::TooLarge);
            }
            // A stream of comments, or of very small chunks, must not keep the thread from other tasks.
            tokio::task::yield_now().await;
        }
    }

    /// Drains the stream, so that its connection can be reused.
    pub(crate) async fn drain(self) {
        self.response.drain().await;
    }
}

/// Returns the rejection of a request for its credentials, if the response is one.
fn rejection(response: &HttpResponse, authorization: Option<HeaderValue>) -> Option<AuthorizationRejection> {
    let (reason, challenge) = match response.status() {
        StatusCode::UNAUTHORIZED => (RejectionReason::Unauthorized, challenge(response)),
        StatusCode::FORBIDDEN => {
            let challenge = challenge(response)?;
            challenge.contains("insufficient_scope").then_some(())?;
            (RejectionReason::InsufficientScope, Some(challenge))
        }
        _ => return None,
    };
    Some(AuthorizationRejection { authorization, reason, challenge })
}

/// Returns the challenges of a response, if there are any.
fn challenge(response: &HttpResponse) -> Option<String> {
    let challenges = response.header_values(&WWW_AUTHENTICATE).into_iter().map(header_text);
    let challenges = challenges.collect::<Vec<_>>().join(", ");
    (!challenges.is_empty()).then_some(challenges)
}

/// Returns the content type of a successful response.
pub(crate) fn response_body_kind(response: &HttpResponse) -> Result<ResponseBodyKind, TransportError> {
    if response.is_plain_json() {
        return Ok(ResponseBodyKind::Json);
    }
    let Some(given) = response.header(&CONTENT_TYPE) else {
        return Err(TransportError::protocol("the response has no content type"));
    };
    let media_type = given.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media_type.eq_ignore_ascii_case(b"application/json") {
        Ok(ResponseBodyKind::Json)
    } else if media_type.eq_ignore_ascii_case(b"text/event-stream") {
        Ok(ResponseBodyKind::Events)
    } else {
        let given = header_text(given);
        Err(TransportError::protocol(format!("unexpected content type {given}")))
    }
}

fn header_text(header: &[u8]) -> String {
    String::from_utf8_lossy(header).into_owned()
}

/// Returns the path and query of a URL, as in the first line of a request.
fn origin_form(url: &Url) -> Result<Arc<str>, TransportError> {
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    let target = format!("{}{query}", url.path());
    match target.parse::<Uri>() {
        Ok(_) => Ok(target.into()),
        Err(_) => Err(TransportError::failed("invalid path in the server URL")),
    }
}

/// Returns the header for the user and password in a URL.
fn basic_credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = (decode(url.username()), decode(url.password().unwrap_or_default()));
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
