//! The one way out to web services: which addresses may be reached, what is sent, and how much is read.

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
mod answer;
mod error;
mod output;

pub use address::{Lookup, Network};
pub use answer::{Answer, Incoming};
pub use error::WebError;

pub(crate) use answer::retry_after;
pub(crate) use output::json_output;

use address::{Destination, Guide};

/// How long it may take to reach a service.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Many services close idle connections after 5 s; one that they close while it is used loses a request.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// Nobody waits longer, and clocks do not go much further.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;

/// How many bytes the headers of an answer may have.
const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// Headers that belong to the connection. Whoever could set one could make one request look like two.
const OWN_HEADERS: [&str; 9] = [
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

/// Where requests of one service may go.
#[derive(Clone)]
pub struct Policy {
    /// An address of the service. No request goes to another origin, nor follows a redirect there.
    pub base: Url,
    /// Whether the service may be in a private network although its name does not say so.
    pub network: Network,
    /// How the addresses of a host are found.
    pub lookup: Lookup,
}

impl Policy {
    /// The usual policy for a service at `base`.
    pub fn new(base: Url) -> Self {
        Self { base, network: Network::default(), lookup: Lookup::system() }
    }
}

/// How long an answer is waited for, and how much of it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes a body may have, unpacked.
    pub max_bytes: usize,
    /// How long it may take until an answer begins.
    pub begin: Duration,
    /// How long it may take from one piece of a body to the next.
    pub idle: Duration,
    /// How long all of it may take; without it, as long as whoever waits.
    pub total: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 16 * 1024 * 1024,
            begin: Duration::from_mins(5),
            idle: Duration::from_mins(1),
            total: None,
        }
    }
}

/// One request. `Debug` shows neither what is sent nor the address behind the host.
#[derive(Clone)]
pub struct Outgoing {
    /// What is wanted.
    pub method: Method,
    /// Where.
    pub url: Url,
    headers: HeaderMap,
    /// What is sent with it.
    pub body: Option<Body>,
}

/// What is sent with a request.
#[derive(Clone)]
pub struct Body {
    /// What it is, such as `application/json`. A `Content-Type` among the headers counts instead.
    pub content_type: String,
    /// The bytes.
    pub bytes: Bytes,
}

impl Outgoing {
    /// A request without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        Self { method, url, headers: HeaderMap::new(), body: None }
    }

    /// Sets a header. Its value is never printed.
    pub fn set_header(&mut self, name: &str, value: &str) -> Result<(), WebError> {
        let (name, value) = header(name, value)?;
        self.headers.insert(name, value);
        Ok(())
    }

    /// The request with a body.
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    /// The same request as a plain question, as a redirect may want it.
    fn as_question(&mut self) {
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

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing")
            .field("method", &self.method)
            .field("origin", &origin(&self.url))
            .finish_non_exhaustive()
    }
}

/// A header that can be sent, marked so that nobody prints its value.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), WebError> {
    let bad = |problem| WebError::BadHeader { name: name.escape_debug().to_string(), problem };
    let key = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| bad("its name has characters that no header may have"))?;
    if OWN_HEADERS.contains(&key.as_str()) {
        return Err(bad("it belongs to the connection and is set by Pegboard"));
    }
    let mut value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| bad("its value has a line break or another control character"))?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// The way to one service.
///
/// ```no_run
/// # async fn ask() -> Result<(), pegboard_providers::web::WebError> {
/// use http::Method;
/// use pegboard_providers::web::{Limits, Outgoing, Policy, Web};
///
/// let base: reqwest::Url = "https://api.example.org/".parse().unwrap();
/// let web = Web::new(Policy::new(base.clone()))?;
/// let answer = web.send(Outgoing::new(Method::GET, base.join("things").unwrap()), Limits::default()).await?;
/// println!("{}", answer.into_output().text());
/// # Ok(())
/// # }
/// ```
pub struct Web {
    base: Url,
    destination: Arc<Destination>,
    lookup: Lookup,
    /// Made at its first use: reading the system's certificates takes a while.
    client: OnceLock<Client>,
}

impl Web {
    /// The way to the service that `policy` is about. Nothing is reached before the first request.
    pub fn new(policy: Policy) -> Result<Self, WebError> {
        let Policy { base, network, lookup } = policy;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(WebError::NotWeb { scheme: base.scheme().to_owned() });
        }
        let destination = Arc::new(Destination::new(&base, network)?);
        Ok(Self { base, destination, lookup, client: OnceLock::new() })
    }

    /// Sends a request and reads the whole answer, whatever its status. Dropping the future gives the request up.
    pub async fn send(&self, outgoing: Outgoing, limits: Limits) -> Result<Answer, WebError> {
        self.open(outgoing, limits).await?.read().await
    }

    /// Sends a request and gives the answer when it begins, to be read piece by piece.
    pub async fn open(&self, mut outgoing: Outgoing, limits: Limits) -> Result<Incoming, WebError> {
        let until = limits.total.map(after);
        let begin = limits.total.map_or(limits.begin, |total| total.min(limits.begin));
        let begin = (after(begin), begin);
        for _ in 0..=MAX_REDIRECTS {
            if outgoing.url.origin() != self.base.origin() {
                return Err(WebError::Elsewhere { to: origin(&outgoing.url), base: origin(&self.base) });
            }
            let response = self.execute(&outgoing, begin).await?;
            if !follow(&mut outgoing, &response)? {
                return Ok(Incoming::new(response, limits, until));
            }
        }
        Err(WebError::TooManyRedirects { limit: MAX_REDIRECTS })
    }

    async fn execute(
        &self,
        outgoing: &Outgoing,
        (until, limit): (Instant, Duration),
    ) -> Result<Response, WebError> {
        let work = self.client()?.execute(outgoing.request()?);
        let slow = || WebError::TooSlow { what: "the answer did not begin", limit };
        let response = time::timeout_at(until, work).await.map_err(|_| slow())?;
        let response = response.map_err(|error| error::network(&self.base, error))?;
        // What was packed as asked for has lost this header on the way.
        match response.headers().get(CONTENT_ENCODING) {
            Some(encoding) if encoding != "identity" && response.content_length() != Some(0) => {
                let encoding = String::from_utf8_lossy(encoding.as_bytes()).escape_debug().take(40).collect();
                Err(WebError::Packed { encoding })
            }
            _ => Ok(response),
        }
    }

    fn client(&self) -> Result<&Client, WebError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let guide = Guide { destination: Arc::clone(&self.destination), lookup: self.lookup.clone() };
        let client = Client::builder()
            .user_agent(concat!("pegboard/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            // A proxy would find the address by itself, and nobody could tell where a request goes.
            .no_proxy()
            .dns_resolver(Arc::new(guide))
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_CONNECTION)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| error::network(&self.base, error))?;
        Ok(self.client.get_or_init(|| client))
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web").field("origin", &origin(&self.base)).finish_non_exhaustive()
    }
}

/// Makes a request the one that a redirect asks for; whether there was one.
fn follow(outgoing: &mut Outgoing, response: &Response) -> Result<bool, WebError> {
    let status = response.status();
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(false) };
    let location = str::from_utf8(location.as_bytes()).ok();
    let target = location.and_then(|location| outgoing.url.join(location).ok());
    let target = target.ok_or(WebError::BadRedirect)?;
    if target.origin() != outgoing.url.origin() || has_credentials(&target) {
        return Err(WebError::RedirectElsewhere { from: origin(&outgoing.url), to: origin(&target) });
    }
    let is_post = outgoing.method == Method::POST;
    if status == StatusCode::SEE_OTHER || (is_post && matches!(status.as_u16(), 301 | 302)) {
        outgoing.as_question();
    }
    outgoing.url = target;
    Ok(true)
}

/// When a time from now has passed, however long somebody made it.
fn after(time: Duration) -> Instant {
    Instant::now() + time.min(FOR_EVER)
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The part of an address that holds no secret.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// What a service says about the length of a body, as far as it is believed.
fn stated_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
