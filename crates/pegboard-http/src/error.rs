//! Errors of requests to web services.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use pegboard_core::error::{CallError, ToolError};
use pegboard_wire::transport::TransportError;
use reqwest::Url;

use crate::address::AddressPolicyError;
use crate::origin;

/// A failed request to a web service. Messages show only the origin of a URL, since paths and queries may
/// contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// The URL scheme is not supported.
    #[error("unsupported URL scheme '{scheme}': use https:// or http://")]
    UnsupportedScheme {
        /// Scheme of the URL.
        scheme: String,
    },
    /// The URL is invalid.
    #[error("invalid URL: check its host and port")]
    InvalidUrl,
    /// A header cannot be sent.
    #[error("cannot send header '{name}': {problem}")]
    InvalidHeader {
        /// Name of the header.
        name: String,
        /// Problem with the header.
        problem: &'static str,
    },
    /// The request targets another origin.
    #[error("request to {to} refused: only {base} is configured")]
    ForeignOrigin {
        /// Origin of the request.
        to: String,
        /// Configured origin.
        base: String,
    },
    /// The host resolves to an address that is not allowed.
    #[error("{host} resolves to {address}, {what}: request not sent. To allow it, {fix}")]
    AddressNotAllowed {
        /// Host name.
        host: String,
        /// Resolved address.
        address: IpAddr,
        /// Class of the address.
        what: &'static str,
        /// Setting that allows it.
        fix: &'static str,
    },
    /// The host is on this machine or in a private network, and a document names it.
    #[error("{host} is not a public host: request not sent. To allow it, name the host in the configuration")]
    HostNotAllowed {
        /// Host name.
        host: String,
    },
    /// The host name cannot be resolved.
    #[error("cannot resolve {host}: {problem}. Check the name and the network")]
    NotFound {
        /// Host name.
        host: String,
        /// Error of the resolver.
        problem: String,
    },
    /// The connection failed before the request was sent.
    #[error("cannot connect to {origin}: {problem}")]
    Unreachable {
        /// Origin of the service.
        origin: String,
        /// Error of the network.
        problem: String,
    },
    /// The service redirects to another origin.
    #[error(
        "{from} redirects to {to}: a redirect to another origin is not followed, since it would receive the \
         credentials of the first. If this is intended, configure {to}"
    )]
    CrossOriginRedirect {
        /// Origin that redirects.
        from: String,
        /// Target origin.
        to: String,
    },
    /// The service redirects to an invalid URL.
    #[error("the service redirects to an invalid URL")]
    InvalidRedirect,
    /// The service redirects too often.
    #[error("the service redirects more than {limit} times")]
    TooManyRedirects {
        /// Maximum number of redirects.
        limit: usize,
    },
    /// The response is larger than allowed.
    #[error("the response exceeds {max_bytes} bytes: request less, or raise maxBytes")]
    TooLarge {
        /// Maximum size in bytes.
        max_bytes: usize,
    },
    /// The service did not respond in time.
    #[error("{what} within {limit:?}")]
    TimedOut {
        /// Missing event.
        what: &'static str,
        /// Timeout.
        limit: Duration,
    },
    /// The response has a content encoding that was not requested.
    #[error("unsupported content encoding '{encoding}'")]
    UnsupportedEncoding {
        /// Content encoding.
        encoding: String,
    },
    /// The connection failed after the request may have been sent.
    #[error("connection to {origin} lost: {problem}")]
    ConnectionLost {
        /// Origin of the service.
        origin: String,
        /// Error of the network.
        problem: String,
    },
}

impl From<WebError> for CallError {
    fn from(error: WebError) -> Self {
        let reason = error.to_string();
        match error {
            WebError::UnsupportedScheme { .. }
            | WebError::InvalidUrl
            | WebError::ForeignOrigin { .. }
            | WebError::AddressNotAllowed { .. }
            | WebError::HostNotAllowed { .. }
            | WebError::NotFound { .. }
            | WebError::Unreachable { .. } => Self::ServerUnavailable { reason },
            WebError::TimedOut { .. } | WebError::ConnectionLost { .. } => Self::Transport { reason },
            WebError::InvalidHeader { .. }
            | WebError::CrossOriginRedirect { .. }
            | WebError::InvalidRedirect
            | WebError::TooManyRedirects { .. }
            | WebError::TooLarge { .. }
            | WebError::UnsupportedEncoding { .. } => Self::Failed(ToolError::new(reason)),
        }
    }
}

/// Maps an error of the HTTP client.
pub(crate) fn network_error(base: &Url, error: reqwest::Error) -> WebError {
    let is_unsent = error.is_connect() || error.is_builder();
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    loop {
        if let Some(AddressPolicyError(refused)) = cause.downcast_ref() {
            return refused.clone();
        }
        let Some(deeper) = cause.source() else { break };
        cause = deeper;
    }
    let untrusted = TransportError::untrusted(&error).map(|error| error.to_string());
    let (origin, problem) = (origin(base), untrusted.unwrap_or_else(|| cause.to_string()));
    if is_unsent {
        WebError::Unreachable { origin, problem }
    } else {
        WebError::ConnectionLost { origin, problem }
    }
}
