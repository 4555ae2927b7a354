//! HTTP client for web services: address policy, requests, and bounded responses.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use http::{Method, StatusCode};
use reqwest::{Client, Request, Response, Url, redirect, retry};
use tokio::time::{self, Instant};

mod address;
mod error;
mod output;
mod response;

pub use address::{HostResolver, NetworkAccess};
pub use error::WebError;
pub use response::{StreamingResponse, WebResponse};

pub use address::{is_loopback, may_be_public, without_trailing_dot};
pub use output::json_output;
pub use response::retry_after;

use address::{CheckedResolver, HostPolicy};

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Many services close idle connections after 5 s; a connection that closes during use loses its request.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Upper bound of any timeout, so that deadlines do not overflow.
const MAX_WAIT: Duration = Duration::from_hours(24 * 365);

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

/// Maximum size of the response headers.
const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// Headers of the connection. Setting one would allow request smuggling.
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Policy for requests to one service.
#[derive(Clone)]
pub struct WebPolicy {
    /// URL of the service. Requests and redirects to other origins are refused.
    pub base: Url,
    /// Addresses that requests may reach.
    pub network: NetworkAccess,
    /// Resolver for host names.
    pub resolver: HostResolver,
}

impl WebPolicy {
    /// Returns the default policy for a service at `base`.
    pub fn new(base: Url) -> Self {
        Self { base, network: NetworkAccess::default(), resolver: HostResolver::system() }
    }
}

/// Timeouts and size limit of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Maximum size of the decompressed body.
    pub max_bytes: usize,
    /// Timeout until the response headers.
    pub start_timeout: Duration,
    /// Timeout between two chunks of the body.
    pub idle_timeout: Duration,
    /// Timeout of the whole exchange; `None` for no limit.
    pub total_timeout: Option<Duration>,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            max_bytes: 16 * 1024 * 1024,
            start_timeout: Duration::from_mins(5),
            idle_timeout: Duration::from_mins(1),
            total_timeout: None,
        }
    }
}

/// HTTP request. `Debug` shows only the method and the origin.
#[derive(Clone)]
pub struct WebRequest {
    /// HTTP method.
    pub method: Method,
    /// URL.
    pub url: Url,
    headers: HeaderMap,
    /// Body.
    pub body: Option<WebBody>,
    follows_redirects: bool,
}

/// Body of a request.
#[derive(Clone)]
pub struct WebBody {
    /// Content type, such as `application/json`. A `Content-Type` header takes precedence.
    pub content_type: String,
    /// Bytes of the body.
    pub bytes: Bytes,
}

impl WebRequest {
    /// Creates a request without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        Self { method, url, headers: HeaderMap::new(), body: None, follows_redirects: true }
    }

    /// Sets a header. Its value is never printed.
    pub fn set_header(&mut self, name: &str, value: &str) -> Result<(), WebError> {
        let (name, value) = header(name, value)?;
        self.headers.insert(name, value);
        Ok(())
    }

    /// Adds a body.
    #[must_use]
    pub fn with_body(mut self, body: WebBody) -> Self {
        self.body = Some(body);
        self
    }

    /// Returns the response to a redirect as it is, instead of following it.
    #[must_use]
    pub fn without_redirects(mut self) -> Self {
        self.follows_redirects = false;
        self
    }

    /// Converts the request to a `GET` without body, as some redirects require.
    fn convert_to_get(&mut self) {
        self.body = None;
        self.headers.remove(CONTENT_TYPE);
        if self.method != Method::HEAD {
            self.method = Method::GET;
        }
    }

    fn request(&self) -> Result<Request, WebError> {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        request.headers_mut().extend(self.headers.clone());
        if let Some(body) = &self.body {
            if !self.headers.contains_key(CONTENT_TYPE) {
                let (name, value) = header(CONTENT_TYPE.as_str(), &body.content_type)?;
                request.headers_mut().insert(name, value);
            }
            *request.body_mut() = Some(body.bytes.clone().into());
        }
        Ok(request)
    }
}

impl std::fmt::Debug for WebRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebRequest")
            .field("method", &self.method)
            .field("origin", &origin(&self.url))
            .finish_non_exhaustive()
    }
}

/// Creates a header with a value that is never printed.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), WebError> {
    let bad = |problem| WebError::InvalidHeader { name: name.escape_debug().to_string(), problem };
    let key =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("its name contains invalid characters"))?;
    if CONNECTION_HEADERS.contains(&key.as_str()) {
        return Err(bad("it belongs to the connection, and Pegboard sets it"));
    }
    let mut value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| bad("its value contains a line break or another control character"))?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// HTTP client for one service.
///
/// ```no_run
/// # async fn run() -> Result<(), pegboard_http::WebError> {
/// use http::Method;
/// use pegboard_http::{ResponseLimits, WebClient, WebPolicy, WebRequest};
///
/// let base: reqwest::Url = "https://api.example.org/".parse().unwrap();
/// let client = WebClient::new(WebPolicy::new(base.clone()))?;
/// let request = WebRequest::new(Method::GET, base.join("things").unwrap());
/// let response = client.send(request, ResponseLimits::default()).await?;
/// println!("{}", response.into_output().text());
/// # Ok(())
/// # }
/// ```
pub struct WebClient {
    base: Url,
    host_policy: Arc<HostPolicy>,
    resolver: HostResolver,
    /// Created on first use: loading the system certificates is slow.
    client: OnceLock<Client>,
}

impl WebClient {
    /// Creates a client for the service of `policy`. Connects on the first request.
    pub fn new(policy: WebPolicy) -> Result<Self, WebError> {
        let WebPolicy { base, network, resolver } = policy;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(WebError::UnsupportedScheme { scheme: base.scheme().to_owned() });
        }
        let host_policy = Arc::new(HostPolicy::new(&base, network)?);
        Ok(Self { base, host_policy, resolver, client: OnceLock::new() })
    }

    /// Sends a request and reads the whole response, whatever its status. Dropping the future cancels the
    /// request.
    pub async fn send(&self, request: WebRequest, limits: ResponseLimits) -> Result<WebResponse, WebError> {
        self.open(request, limits).await?.read().await
    }

    /// Sends a request and returns the response once its headers have arrived.
    pub async fn open(
        &self,
        mut request: WebRequest,
        limits: ResponseLimits,
    ) -> Result<StreamingResponse, WebError> {
        let deadline = limits.total_timeout.map(deadline_after);
        let begin =
            limits.total_timeout.map_or(limits.start_timeout, |total| total.min(limits.start_timeout));
        let begin = (deadline_after(begin), begin);
        for _ in 0..=MAX_REDIRECTS {
            if request.url.origin() != self.base.origin() {
                return Err(WebError::ForeignOrigin { to: origin(&request.url), base: origin(&self.base) });
            }
            let response = self.execute(&request, begin).await?;
            if !request.follows_redirects || !apply_redirect(&mut request, &response)? {
                return Ok(StreamingResponse::new(response, limits, deadline));
            }
        }
        Err(WebError::TooManyRedirects { limit: MAX_REDIRECTS })
    }

    async fn execute(
        &self,
        request: &WebRequest,
        (deadline, limit): (Instant, Duration),
    ) -> Result<Response, WebError> {
        let work = self.client()?.execute(request.request()?);
        let slow = || WebError::TimedOut { what: "no response", limit };
        let response = time::timeout_at(deadline, work).await.map_err(|_| slow())?;
        let response = response.map_err(|error| error::network_error(&self.base, error))?;
        // The client removes this header when it decompresses a requested encoding.
        match response.headers().get(CONTENT_ENCODING) {
            Some(encoding) if encoding != "identity" && response.content_length() != Some(0) => {
                let encoding = String::from_utf8_lossy(encoding.as_bytes()).escape_debug().take(40).collect();
                Err(WebError::UnsupportedEncoding { encoding })
            }
            _ => Ok(response),
        }
    }

    fn client(&self) -> Result<&Client, WebError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let resolver =
            CheckedResolver { host_policy: Arc::clone(&self.host_policy), resolver: self.resolver.clone() };
        let builder = Client::builder();
        // Plain HTTP works without trusted certificates.
        let builder = if self.base.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        let client = builder
            .user_agent(concat!("pegboard/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            // A proxy resolves names itself, which bypasses the address policy.
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .tcp_nodelay(true)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| error::network_error(&self.base, error))?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// HTTP clients by origin, so that the tools of one service share connections.
#[derive(Default)]
pub struct WebClients(HashMap<(String, NetworkAccess), Arc<WebClient>>);

impl WebClients {
    /// Returns the client for the service at `base`.
    pub fn get(&mut self, base: &Url, network: NetworkAccess) -> Result<Arc<WebClient>, WebError> {
        match self.0.entry((origin(base), network)) {
            Entry::Occupied(client) => Ok(Arc::clone(client.get())),
            Entry::Vacant(slot) => {
                let policy = WebPolicy { network, ..WebPolicy::new(base.clone()) };
                Ok(Arc::clone(slot.insert(Arc::new(WebClient::new(policy)?))))
            }
        }
    }
}

impl std::fmt::Debug for WebClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebClient").field("origin", &origin(&self.base)).finish_non_exhaustive()
    }
}

/// Rewrites a request for a redirect. Returns `false` if the response is not one.
fn apply_redirect(request: &mut WebRequest, response: &Response) -> Result<bool, WebError> {
    let status = response.status();
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(false) };
    let location = str::from_utf8(location.as_bytes()).ok();
    let target = location.and_then(|location| request.url.join(location).ok());
    let target = target.ok_or(WebError::InvalidRedirect)?;
    if target.origin() != request.url.origin() || has_credentials(&target) {
        return Err(WebError::CrossOriginRedirect { from: origin(&request.url), to: origin(&target) });
    }
    let is_post = request.method == Method::POST;
    if status == StatusCode::SEE_OTHER || (is_post && matches!(status.as_u16(), 301 | 302)) {
        request.convert_to_get();
    }
    request.url = target;
    Ok(true)
}

/// Returns the type and subtype of a content type, in lower case.
pub fn media_essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the deadline after a duration, capped at [`MAX_WAIT`].
fn deadline_after(time: Duration) -> Instant {
    Instant::now() + time.min(MAX_WAIT)
}

/// Returns `true` if a URL contains a user name or a password.
pub fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Returns the origin, the part of a URL that contains no secret.
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Returns the declared content length.
fn stated_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
