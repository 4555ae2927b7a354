//! The client's HTTP session, as headers of its requests.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::{Mutex, MutexGuard};

use crate::http::client::endpoint::HttpEndpoint;
use crate::http::client::request_headers::SharedHeaders;
use crate::http::headers::{METHOD, NAME, PARAMETER_PREFIX, PROTOCOL_VERSION, SESSION_ID};
use pegboard_json::RawJson;

/// The session of a transport; empty until the server has answered `initialize`.
#[derive(Debug, Default)]
pub(crate) struct HttpClientSession(Mutex<HttpClientSessionState>);

#[derive(Debug, Default)]
struct HttpClientSessionState {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// Headers of the `initialize` request, such as credentials.
    headers: HeaderMap,
    /// Headers of every message, once there was one.
    post_headers: Option<Arc<SharedHeaders>>,
}

impl HttpClientSession {
    /// Starts a session, with or without an id, in place of the previous one.
    pub(crate) fn begin(&self, id: Option<HeaderValue>, headers: &HeaderMap) {
        let mut headers = without_mirrored_headers(headers.clone());
        headers.remove(SESSION_ID);
        headers.remove(PROTOCOL_VERSION);
        *self.state() = HttpClientSessionState { id, version: None, headers, post_headers: None };
    }

    /// Records the protocol version from the `initialize` result.
    pub(crate) fn set_protocol_version(&self, result: &RawJson) {
        let version = result.get("protocolVersion");
        let version = version.as_ref().and_then(RawJson::text);
        let mut state = self.state();
        state.version = version.and_then(|version| HeaderValue::from_str(&version).ok());
        state.post_headers = None;
    }

    /// Returns `true` if the server has assigned an id.
    pub(crate) fn has_id(&self) -> bool {
        self.state().id.is_some()
    }

    /// Returns the headers of a message to an endpoint, which is always the same.
    pub(crate) fn post_headers(&self, endpoint: &HttpEndpoint) -> Arc<SharedHeaders> {
        let mut state = self.state();
        if let Some(headers) = &state.post_headers {
            return Arc::clone(headers);
        }
        let mut headers = endpoint.post_headers().map().clone();
        state.add_to(&mut headers);
        Arc::clone(state.post_headers.insert(SharedHeaders::new(headers)))
    }

    /// Adds the session headers to those of a request.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        self.state().add_to(headers);
    }

    /// Merges the session headers into those of a message, which take precedence.
    pub(crate) fn headers_with(&self, own: HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.add_to(&mut headers);
        headers.extend(own);
        headers
    }

    /// Returns the headers for a request that belongs to no message.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.state().headers.clone();
        self.add_to(&mut headers);
        headers
    }

    /// Ends the session; returns its headers if the server assigned an id.
    pub(crate) fn end(&self) -> Option<HeaderMap> {
        let headers = self.headers();
        let mut state = self.state();
        state.post_headers = None;
        state.id.take().map(|_| headers)
    }

    // A panic while the lock is held cannot leave the state inconsistent.
    fn state(&self) -> MutexGuard<'_, HttpClientSessionState> {
        self.0.lock()
    }
}

impl HttpClientSessionState {
    fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in [(SESSION_ID, &self.id), (PROTOCOL_VERSION, &self.version)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}

/// Removes the headers that mirror a request's own body, so that the rest can be reused for related requests.
pub(crate) fn without_mirrored_headers(mut headers: HeaderMap) -> HeaderMap {
    let is_own = |name: &&HeaderName| {
        **name == METHOD || **name == NAME || name.as_str().starts_with(PARAMETER_PREFIX)
    };
    let own: Vec<HeaderName> = headers.keys().filter(is_own).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers
}
