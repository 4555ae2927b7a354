//! The session that a server gave us, as the headers that every request of it carries.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};

use pegboard_json::RawJson;

/// The header that names the session.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The header that names the revision of the protocol.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The session of a link; there is none until the server has answered `initialize`.
#[derive(Debug, Default)]
pub(crate) struct Session(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// What the letter that began the session carried: the credentials, if there are any.
    headers: HeaderMap,
}

impl Session {
    /// Begins a session, or one without an id, in the place of the one before.
    pub(crate) fn begin(&self, id: Option<HeaderValue>, headers: &HeaderMap) {
        let mut headers = without_own_headers(headers.clone());
        headers.remove(SESSION_ID);
        headers.remove(PROTOCOL_VERSION);
        *self.state() = State { id, version: None, headers };
    }

    /// Takes note of the version that the server chose.
    pub(crate) fn agree(&self, result: &RawJson) {
        let version = result.get("protocolVersion");
        let version = version.as_ref().and_then(RawJson::text);
        self.state().version = version.and_then(|version| HeaderValue::from_str(&version).ok());
    }

    /// What a letter's headers are together with those of the session. The letter's own win.
    pub(crate) fn headers_with(&self, own: HeaderMap) -> HeaderMap {
        let mut headers = self.state().own_headers();
        headers.extend(own);
        headers
    }

    /// The headers of a request that no letter asked for.
    pub(crate) fn headers(&self) -> HeaderMap {
        let state = self.state();
        let mut headers = state.headers.clone();
        headers.extend(state.own_headers());
        headers
    }

    /// Forgets the session; its headers if the server knows it by an id.
    pub(crate) fn end(&self) -> Option<HeaderMap> {
        let headers = self.headers();
        self.state().id.take().map(|_| headers)
    }

    // No panic can happen while the lock is held that leaves the state half-changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn own_headers(&self) -> HeaderMap {
        let named = [(SESSION_ID, &self.id), (PROTOCOL_VERSION, &self.version)];
        named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

/// The headers that a request shares with others about it: without those that mirror its own body.
pub(crate) fn without_own_headers(mut headers: HeaderMap) -> HeaderMap {
    let is_own = |name: &str| matches!(name, "mcp-method" | "mcp-name") || name.starts_with("mcp-param-");
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_own(name.as_str())).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers
}
