//! The address of a provider, what is shown at its door, and how its answers are read within bounds.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use pegboard_core::model::{ModelError, ModelErrorKind, ModelName, ModelProviderName};
use pegboard_core::redact::Redactor;
use pegboard_core::settings::mcp::Secret;
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::text::clipped;
use pegboard_wire::http::client::shared_client;
use pegboard_wire::http::sse::{Decoder, SseEvent};
use reqwest::{Client, Response, Url};
use tokio::time;

use super::refusal;

/// How long it may take to reach a provider.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many bytes a reply may have in all.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// How many bytes one event of a stream may have: some servers write a whole call of a tool into one.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// How many bytes of a refusal are read, and for how long.
const REFUSAL_BYTES: usize = 64 * 1024;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What speaks HTTP for all providers, made at its first use: reading the system's certificates takes a while.
#[derive(Debug, Default)]
pub(super) struct Connections(OnceLock<Result<Client, String>>);

impl Connections {
    fn client(&self) -> Result<&Client, &String> {
        self.0.get_or_init(|| shared_client(CONNECT_TIMEOUT).map_err(|error| error.to_string())).as_ref()
    }
}

/// Where a provider takes requests.
pub(super) struct Site {
    connections: Arc<Connections>,
    url: Url,
    headers: HeaderMap,
    redactor: Redactor,
}

/// How a provider wants its key.
pub(super) enum KeyHeader {
    /// As the bearer of a token.
    Bearer,
    /// In a header of its own.
    Named(HeaderName),
}

impl Site {
    /// The site of a provider that takes requests at `url`.
    pub(super) fn new(
        provider: &ModelProviderName,
        settings: &ModelProviderSettings,
        url: Url,
        key_header: KeyHeader,
        connections: Arc<Connections>,
    ) -> Result<Self, InvalidModelProvider> {
        let mut headers = HeaderMap::new();
        let key = settings.api_key.as_ref().filter(|key| !key.reveal().trim().is_empty());
        if let Some(key) = key {
            let (name, value) = match key_header {
                KeyHeader::Bearer => (http::header::AUTHORIZATION, format!("Bearer {}", key.reveal().trim())),
                KeyHeader::Named(name) => (name, key.reveal().trim().to_owned()),
            };
            let bad = || InvalidModelProvider::BadKey { provider: provider.clone() };
            headers.insert(name, sensitive(&value).ok_or_else(bad)?);
        }
        for (name, value) in &settings.headers {
            let bad = || InvalidModelProvider::BadHeader {
                provider: provider.clone(),
                name: name.escape_debug().to_string(),
            };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            headers.insert(key, sensitive(value.reveal()).ok_or_else(bad)?);
        }
        let secrets = key.into_iter().chain(settings.headers.values()).map(Secret::reveal);
        let secrets = secrets.chain(url.password());
        // Of `Bearer …` the second word is the secret.
        let secrets = secrets.flat_map(|secret| secret.split_whitespace().chain([secret.trim()]));
        let redactor = Redactor::new(secrets);
        Ok(Self { connections, url, headers, redactor })
    }

    /// The site with one more header, unless somebody set it already.
    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.entry(name).or_insert(value);
        self
    }

    /// Whether the provider is at this host.
    pub(super) fn is_at(&self, host: &str) -> bool {
        let found = self.url.host_str().unwrap_or_default();
        found == host || found.strip_suffix(host).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Sends a request, and waits for the beginning of the answer.
    pub(super) async fn post<'s>(
        &'s self,
        model: &'s ModelName,
        body: Vec<u8>,
    ) -> Result<Answer<'s>, ModelError> {
        let answer = |kind, reason: String| ModelError::new(model.clone(), kind, reason);
        let client =
            self.connections.client().map_err(|error| answer(ModelErrorKind::Unreachable, error.clone()))?;
        let request = client
            .post(self.url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"))
            .headers(self.headers.clone())
            .body(body);
        let response = request
            .send()
            .await
            .map_err(|error| answer(ModelErrorKind::Unreachable, self.network("no connection", error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Answer { site: self, model, response, n_read: 0 });
        }
        if status.is_redirection() {
            let reason = format!("it sends elsewhere (status {}), and that is not followed", status.as_u16());
            return Err(answer(ModelErrorKind::Unreachable, reason));
        }
        let headers = response.headers().clone();
        let body = refusal_body(response).await;
        Err(refusal::of_status(model, status, &headers, &body, &self.redactor))
    }

    /// What a provider says, without secrets.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// An error of the network in one line, without the address, which may hold a secret.
    fn network(&self, what: &str, error: reqwest::Error) -> String {
        let error = error.without_url();
        let mut cause: &dyn Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        self.redactor.text(&format!("{what}: {cause}")).into_owned()
    }
}

/// Says where it is, and nothing of what is shown at the door.
impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Site({})", self.url.host_str().unwrap_or_default())
    }
}

/// An answer that has begun.
pub(super) struct Answer<'s> {
    site: &'s Site,
    model: &'s ModelName,
    response: Response,
    n_read: usize,
}

impl<'s> Answer<'s> {
    /// Whether it comes in events, which is for the provider to decide.
    pub(super) fn is_stream(&self) -> bool {
        self.content_type().starts_with("text/event-stream")
    }

    /// The whole of it.
    pub(super) async fn body(mut self) -> Result<Bytes, ModelError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// Its events.
    pub(super) fn events(self) -> Events<'s> {
        Events { answer: self, decoder: Decoder::new(MAX_EVENT_BYTES) }
    }

    /// The error that this is no reply.
    pub(super) fn garbage(&self, reason: &str) -> ModelError {
        ModelError::new(self.model.clone(), ModelErrorKind::Garbage, reason)
    }

    /// What it is written in, for a person.
    pub(super) fn content_type(&self) -> String {
        let given = self.response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        clipped(&String::from_utf8_lossy(given).to_ascii_lowercase(), 100).into_owned()
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        let chunk = self.response.chunk().await.map_err(|error| {
            let reason = self.site.network("the reply broke off", error);
            ModelError::new(self.model.clone(), ModelErrorKind::Unreachable, reason)
        })?;
        self.n_read += chunk.as_ref().map_or(0, Bytes::len);
        if self.n_read > MAX_REPLY_BYTES {
            return Err(self.garbage(&format!("it has more than {} MiB", MAX_REPLY_BYTES >> 20)));
        }
        Ok(chunk)
    }
}

/// The events of an answer, one after the other.
pub(super) struct Events<'s> {
    answer: Answer<'s>,
    decoder: Decoder,
}

impl Events<'_> {
    /// The next event; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<SseEvent>, ModelError> {
        loop {
            match self.decoder.next_event() {
                Some(Ok(event)) => return Ok(Some(event)),
                Some(Err(too_large)) => return Err(self.answer.garbage(&too_large.to_string())),
                None => {}
            }
            match self.answer.chunk().await? {
                Some(chunk) => self.decoder.push(&chunk),
                None => return Ok(None),
            }
        }
    }

    /// The error that this is no reply.
    pub(super) fn garbage(&self, reason: &str) -> ModelError {
        self.answer.garbage(reason)
    }

    /// The error that the stream ended before the reply did.
    pub(super) fn cut(&self) -> ModelError {
        let reason = "the reply broke off before its end";
        ModelError::new(self.answer.model.clone(), ModelErrorKind::Unreachable, reason)
    }
}

async fn refusal_body(mut response: Response) -> BytesMut {
    let mut whole = BytesMut::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = REFUSAL_BYTES - whole.len();
            whole.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if whole.len() == REFUSAL_BYTES {
                break;
            }
        }
    };
    let _ = time::timeout(REFUSAL_TIMEOUT, reading).await;
    whole
}

/// A value of a header, marked so that nobody prints it.
fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// An address under the base of a provider.
pub(super) fn address(
    provider: &ModelProviderName,
    base: &str,
    path: impl FnOnce(&str) -> &'static str,
) -> Result<Url, InvalidModelProvider> {
    let bad = || InvalidModelProvider::BadUrl { provider: provider.clone() };
    let mut url = Url::parse(base.trim()).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(bad());
    }
    let base = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{base}{}", path(&base)));
    Ok(url)
}

/// Why a provider cannot be described like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModelProvider {
    /// It has no address.
    #[error("the provider '{provider}' has no baseUrl. Give it one like https://api.openai.com/v1")]
    NoUrl {
        /// The provider.
        provider: ModelProviderName,
    },
    /// The address is none.
    #[error(
        "the baseUrl of the provider '{provider}' is no address. Write one that begins with http:// or https://"
    )]
    BadUrl {
        /// The provider.
        provider: ModelProviderName,
    },
    /// The key cannot be sent.
    #[error(
        "the apiKey of the provider '{provider}' has characters that no header may have. Check it for line breaks"
    )]
    BadKey {
        /// The provider.
        provider: ModelProviderName,
    },
    /// A header cannot be sent.
    #[error(
        "the header '{name}' of the provider '{provider}' has characters that no header may have. Check it for line \
         breaks"
    )]
    BadHeader {
        /// The provider.
        provider: ModelProviderName,
        /// The header.
        name: String,
    },
}
