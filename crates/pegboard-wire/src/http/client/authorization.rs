//! Authorization of requests to a server: where their `Authorization` header comes from, and what a rejection leads to.

use std::fmt;

use futures_util::future::BoxFuture;
use http::HeaderValue;

/// Source of the `Authorization` header of all requests to one server.
pub trait RequestAuthorizer: Send + Sync + 'static {
    /// Forgets what is in memory, before a connection is made: another process may have logged in or out.
    fn forget(&self);

    /// Returns `true` if requests are known to be sent without the header. Called for every request.
    fn is_anonymous(&self) -> bool;

    /// Returns the header of the next request, after a refresh if it is about to expire; `None` to send it without.
    fn authorize(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, AuthorizationError>>;

    /// Returns another header, with which a rejected request is repeated once: its server has not processed it.
    fn replace_rejected(
        &self,
        rejection: AuthorizationRejection,
    ) -> BoxFuture<'_, Result<HeaderValue, AuthorizationError>>;
}

impl fmt::Debug for dyn RequestAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestAuthorizer")
    }
}

/// A response that rejects a request for its credentials, or for the lack of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationRejection {
    /// Header of the request, if it had one.
    pub authorization: Option<HeaderValue>,
    /// Reason of the rejection.
    pub reason: RejectionReason,
    /// The `WWW-Authenticate` header of the response.
    pub challenge: Option<String>,
}

/// Reason why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    /// Status 401.
    Unauthorized,
    /// Status 401 again, after the header was replaced.
    UnauthorizedAgain,
    /// Status 403 with the error `insufficient_scope`: the credentials are valid, but not for this request.
    InsufficientScope,
}

/// Reason why a request cannot be authorized. It has not been processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    /// The user must log in.
    #[error("{reason}")]
    LoginRequired {
        /// Reason and remedy.
        reason: String,
    },
    /// The user must log in again with further permissions; other requests may be authorized.
    #[error("{reason}")]
    InsufficientScope {
        /// Missing permissions and remedy.
        reason: String,
    },
    /// The credentials cannot be read or refreshed right now.
    #[error("{reason}")]
    Unavailable {
        /// The reason.
        reason: String,
    },
}
