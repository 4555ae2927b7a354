//! HTTP endpoint of a model provider: URL, credentials, and bounded reading of its responses.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use pegboard_core::model::{
    ModelError, ModelErrorKind, ModelName, ModelProviderName, ModelReply, ReplyListener,
};
use pegboard_core::redact::Redactor;
use pegboard_core::secret::Secret;
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::text::clipped;
use pegboard_wire::http::client::LazyHttpClient;
use pegboard_wire::http::sse::{SseDecoder, SseEvent};
use pegboard_wire::transport::TransportError;
use reqwest::{Response, Url};
use tokio::time;

use super::api_error;

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a reply.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of one event: some servers send a whole tool call in one.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of an error body, and the timeout for reading it.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for token usage after the reply is complete.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Version of the Messages API, sent with every request.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Endpoint of a provider.
pub(super) struct ModelEndpoint {
    api: ProviderApi,
    http: LazyHttpClient,
    url: Url,
    headers: HeaderMap,
    redactor: Redactor,
}

/// API that an endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProviderApi {
    /// Chat completions of OpenAI.
    ChatCompletions,
    /// Messages of Anthropic.
    Messages,
}

/// A reply under construction.
pub(super) trait ReplyBuilder {
    /// Applies a reply that was not streamed.
    fn apply_whole(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError>;

    /// Applies an event of a stream.
    fn apply_event(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError>;

    /// Returns `true` if the stream may end here, although further events may follow.
    fn is_complete(&self) -> bool;

    /// Returns the finished reply.
    fn finish(self) -> Result<ModelReply, ModelError>;
}

/// Result of applying an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventOutcome {
    /// Further events follow.
    Accepted,
    /// The reply is complete.
    Complete,
    /// The reply ended early.
    Truncated,
    /// The event is not part of a reply.
    Malformed,
}

impl ModelEndpoint {
    /// Creates the endpoint of a provider.
    pub(super) fn new(
        provider: &ModelProviderName,
        settings: &ModelProviderSettings,
        api: ProviderApi,
        http: LazyHttpClient,
    ) -> Result<Self, InvalidModelProvider> {
        let url = endpoint_url(provider, settings, api)?;
        let mut headers = HeaderMap::new();
        let key = settings.api_key.as_ref().filter(|key| !key.reveal().trim().is_empty());
        if let Some(key) = key {
            let (name, value) = match api {
                ProviderApi::ChatCompletions => (AUTHORIZATION, format!("Bearer {}", key.reveal().trim())),
                ProviderApi::Messages => {
                    (HeaderName::from_static("x-api-key"), key.reveal().trim().to_owned())
                }
            };
            let bad = || InvalidModelProvider::InvalidKey { provider: provider.clone() };
            headers.insert(name, sensitive(&value).ok_or_else(bad)?);
        }
        for (name, value) in &settings.headers {
            let bad = || InvalidModelProvider::InvalidHeader {
                provider: provider.clone(),
                name: name.escape_debug().to_string(),
            };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            headers.insert(key, sensitive(value.reveal()).ok_or_else(bad)?);
        }
        if api == ProviderApi::Messages {
            headers.entry(HeaderName::from_static("anthropic-version")).or_insert(ANTHROPIC_VERSION);
        }
        let secrets = key.into_iter().chain(settings.headers.values()).map(Secret::reveal);
        let secrets = secrets.chain(url.password());
        // In `Bearer …` the second word is the secret.
        let secrets = secrets.flat_map(|secret| secret.split_whitespace().chain([secret.trim()]));
        let redactor = Redactor::with_escapes(secrets);
        Ok(Self { api, http, url, headers, redactor })
    }

    /// Returns the API of the endpoint.
    pub(super) fn api(&self) -> ProviderApi {
        self.api
    }

    /// Returns `true` if the endpoint is at this host or a subdomain of it.
    pub(super) fn is_hosted_at(&self, host: &str) -> bool {
        let found = self.url.host_str().unwrap_or_default();
        found == host || found.strip_suffix(host).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Sends a request and waits for the response headers.
    pub(super) async fn post<'s>(
        &'s self,
        model: &'s ModelName,
        body: Vec<u8>,
    ) -> Result<ModelResponse<'s>, ModelError> {
        let model_error = |kind, reason: String| ModelError::new(model.clone(), kind, reason);
        let client = self
            .http
            .get(&self.url, CONNECT_TIMEOUT)
            .map_err(|error| model_error(ModelErrorKind::Unreachable, error.to_string()))?;
        let request = client
            .post(self.url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"))
            .headers(self.headers.clone())
            .body(body);
        let response = request.send().await.map_err(|error| {
            let kind =
                if is_refused(&error) { ModelErrorKind::NotListening } else { ModelErrorKind::Unreachable };
            model_error(kind, self.network_error("cannot connect", error))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(ModelResponse { endpoint: self, model, response, n_read: 0 });
        }
        if status.is_redirection() {
            let reason = format!("redirects are not followed (status {})", status.as_u16());
            return Err(model_error(ModelErrorKind::Unreachable, reason));
        }
        let headers = response.headers().clone();
        let body = read_error_body(response).await;
        Err(api_error::from_status(model, status, &headers, &body, &self.redactor))
    }

    /// Returns the redactor for the provider's messages.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Formats a network error in one line, without the URL, which may contain a secret.
    fn network_error(&self, what: &str, error: reqwest::Error) -> String {
        let error = error.without_url();
        if let Some(untrusted) = TransportError::untrusted(&error) {
            return format!("{what}: {untrusted}");
        }
        let mut cause: &dyn Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        self.redactor.text(&format!("{what}: {cause}")).into_owned()
    }
}

/// Returns `true` if nothing accepts connections at the address.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Shows the host only, no credentials.
impl fmt::Debug for ModelEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelEndpoint({})", self.url.host_str().unwrap_or_default())
    }
}

/// Response with a body that has not been read.
pub(super) struct ModelResponse<'s> {
    endpoint: &'s ModelEndpoint,
    model: &'s ModelName,
    response: Response,
    n_read: usize,
}

impl ModelResponse<'_> {
    /// Reads the reply: an event stream or a whole one, which the provider decides.
    pub(super) async fn read(
        self,
        mut builder: impl ReplyBuilder,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let content_type = self.content_type();
        if content_type.starts_with("text/event-stream") {
            let events = ModelEventStream { answer: self, decoder: SseDecoder::new(MAX_EVENT_BYTES) };
            return events.read(builder, listener).await;
        }
        let malformed = self.malformed(&format!("not a JSON reply (content type '{content_type}')"));
        match builder.apply_whole(&self.body().await?, listener)? {
            EventOutcome::Complete => builder.finish(),
            EventOutcome::Accepted | EventOutcome::Truncated | EventOutcome::Malformed => Err(malformed),
        }
    }

    /// Reads the whole body.
    async fn body(mut self) -> Result<Bytes, ModelError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// Creates the error for a malformed reply.
    fn malformed(&self, reason: &str) -> ModelError {
        ModelError::new(self.model.clone(), ModelErrorKind::MalformedReply, reason)
    }

    /// Returns the content type, for error messages.
    fn content_type(&self) -> String {
        let given = self.response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        clipped(&String::from_utf8_lossy(given).to_ascii_lowercase(), 100).into_owned()
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        let chunk = self.response.chunk().await.map_err(|error| {
            let reason = self.endpoint.network_error("connection lost during the reply", error);
            ModelError::new(self.model.clone(), ModelErrorKind::Unreachable, reason)
        })?;
        self.n_read += chunk.as_ref().map_or(0, Bytes::len);
        if self.n_read > MAX_REPLY_BYTES {
            return Err(self.malformed(&format!("the reply exceeds {} MiB", MAX_REPLY_BYTES >> 20)));
        }
        Ok(chunk)
    }
}

/// Stream of server-sent events.
struct ModelEventStream<'s> {
    answer: ModelResponse<'s>,
    decoder: SseDecoder,
}

impl ModelEventStream<'_> {
    async fn read(
        mut self,
        mut builder: impl ReplyBuilder,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        loop {
            let next = self.next();
            let event = if builder.is_complete() {
                // A server that keeps the connection open or drops it does not matter any more.
                time::timeout(USAGE_TIMEOUT, next).await.ok().and_then(Result::ok).flatten()
            } else {
                next.await?
            };
            let outcome = match event {
                Some(event) if event.data.is_empty() => continue,
                Some(event) => builder.apply_event(&event.data, listener)?,
                None if builder.is_complete() => EventOutcome::Complete,
                None => EventOutcome::Truncated,
            };
            match outcome {
                EventOutcome::Accepted => {}
                EventOutcome::Complete => return builder.finish(),
                EventOutcome::Malformed => return Err(self.answer.malformed("a stream event is malformed")),
                EventOutcome::Truncated => {
                    let (model, kind) = (self.answer.model.clone(), ModelErrorKind::Unreachable);
                    return Err(ModelError::new(model, kind, "the reply ended early"));
                }
            }
        }
    }

    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<SseEvent>, ModelError> {
        loop {
            match self.decoder.next_event() {
                Some(Ok(event)) => return Ok(Some(event)),
                Some(Err(too_large)) => return Err(self.answer.malformed(&too_large.to_string())),
                None => {}
            }
            match self.answer.chunk().await? {
                Some(chunk) => self.decoder.push(&chunk),
                None => return Ok(None),
            }
        }
    }
}

async fn read_error_body(mut response: Response) -> BytesMut {
    let mut whole = BytesMut::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = MAX_ERROR_BODY_BYTES - whole.len();
            whole.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if whole.len() == MAX_ERROR_BODY_BYTES {
                break;
            }
        }
    };
    let _ = time::timeout(ERROR_BODY_TIMEOUT, reading).await;
    whole
}

/// Creates a header value that is never printed.
fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the URL that the API of a provider accepts requests at.
fn endpoint_url(
    provider: &ModelProviderName,
    settings: &ModelProviderSettings,
    api: ProviderApi,
) -> Result<Url, InvalidModelProvider> {
    let base = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    let base = match api {
        ProviderApi::ChatCompletions => {
            base.ok_or_else(|| InvalidModelProvider::MissingUrl { provider: provider.clone() })?
        }
        ProviderApi::Messages => base.unwrap_or(ModelProviderSettings::ANTHROPIC_URL),
    };
    let bad = || InvalidModelProvider::InvalidUrl { provider: provider.clone() };
    let mut url = Url::parse(base).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(bad());
    }
    let base = url.path().trim_end_matches('/').to_owned();
    let path = match api {
        ProviderApi::ChatCompletions if base.ends_with("/chat/completions") => "",
        ProviderApi::ChatCompletions => "/chat/completions",
        ProviderApi::Messages if base.ends_with("/v1/messages") => "",
        ProviderApi::Messages if base.ends_with("/v1") => "/messages",
        ProviderApi::Messages => "/v1/messages",
    };
    url.set_path(&format!("{base}{path}"));
    Ok(url)
}

/// Invalid settings of a model provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModelProvider {
    /// The base URL is missing.
    #[error("provider '{provider}' has no baseUrl: set one such as https://api.openai.com/v1")]
    MissingUrl {
        /// The provider.
        provider: ModelProviderName,
    },
    /// The base URL is invalid.
    #[error("invalid baseUrl of provider '{provider}': expected a URL that starts with http:// or https://")]
    InvalidUrl {
        /// The provider.
        provider: ModelProviderName,
    },
    /// The key contains characters that are not allowed in a header.
    #[error(
        "apiKey of provider '{provider}' contains characters that are not allowed in a header: check for line breaks"
    )]
    InvalidKey {
        /// The provider.
        provider: ModelProviderName,
    },
    /// A header contains characters that are not allowed.
    #[error(
        "header '{name}' of provider '{provider}' contains characters that are not allowed in a header: check for \
         line breaks"
    )]
    InvalidHeader {
        /// The provider.
        provider: ModelProviderName,
        /// The header.
        name: String,
    },
}
