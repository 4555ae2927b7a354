//! Why a web service gave no answer.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use pegboard_core::error::{CallError, ToolError};
use reqwest::Url;

use super::address::Refused;
use super::origin;

/// Why a web service gave no answer. No text of it shows more of an address than its origin, since paths and queries
/// may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// The address is not one of a web service.
    #[error("the address begins with {scheme}:. Write one that begins with https:// or http://")]
    NotWeb {
        /// How it begins.
        scheme: String,
    },
    /// The address is none.
    #[error("the address is none: check its host and its port")]
    BadAddress,
    /// A header cannot be sent.
    #[error("the header '{name}' cannot be sent: {problem}")]
    BadHeader {
        /// The header.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A request was to go to another service.
    #[error("a request to {to} was not sent: only {base} is configured")]
    Elsewhere {
        /// Where it was to go.
        to: String,
        /// Where it may go.
        base: String,
    },
    /// The name of the service leads to an address that it must not lead to.
    #[error("{host} leads to {address}, which is {what}, so nothing was sent. If that is meant, {fix}")]
    Forbidden {
        /// The name.
        host: String,
        /// Where it leads.
        address: IpAddr,
        /// What sort of address that is.
        what: &'static str,
        /// What to do if it should.
        fix: &'static str,
    },
    /// The name of the service is not known.
    #[error("{host} was not found: {problem}. Check the name, and the network")]
    NotFound {
        /// The name.
        host: String,
        /// What the system says.
        problem: String,
    },
    /// The service cannot be reached; it has seen nothing of the request.
    #[error("{origin} cannot be reached: {problem}")]
    Unreachable {
        /// The service.
        origin: String,
        /// Why.
        problem: String,
    },
    /// The service sends the request to somebody else.
    #[error(
        "{from} redirects to {to}. A redirect to another origin is not followed, since it would be given what is \
         meant for the first. If that is right, configure {to}"
    )]
    RedirectElsewhere {
        /// Who redirects.
        from: String,
        /// Where to.
        to: String,
    },
    /// The service redirects to what is no address.
    #[error("the service redirects to something that is no address")]
    BadRedirect,
    /// The service redirects on and on.
    #[error("the service redirects more than {limit} times")]
    TooManyRedirects {
        /// How many are followed.
        limit: usize,
    },
    /// The answer is larger than it may be.
    #[error("the answer has more than {max_bytes} bytes. Ask for less, or raise maxBytes")]
    TooLarge {
        /// How many it may have.
        max_bytes: usize,
    },
    /// The service takes too long.
    #[error("{what} within {limit:?}")]
    TooSlow {
        /// What did not happen.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The answer is packed in a way that nobody asked for.
    #[error("the answer is packed as '{encoding}', which was not asked for and cannot be read")]
    Packed {
        /// How.
        encoding: String,
    },
    /// The connection broke, and the service may have seen the request.
    #[error("the connection to {origin} broke: {problem}")]
    Broken {
        /// The service.
        origin: String,
        /// What happened.
        problem: String,
    },
}

impl From<WebError> for CallError {
    fn from(error: WebError) -> Self {
        let reason = error.to_string();
        match error {
            WebError::NotWeb { .. }
            | WebError::BadAddress
            | WebError::Elsewhere { .. }
            | WebError::Forbidden { .. }
            | WebError::NotFound { .. }
            | WebError::Unreachable { .. } => Self::ServerUnavailable { reason },
            WebError::TooSlow { .. } | WebError::Broken { .. } => Self::Transport { reason },
            WebError::BadHeader { .. }
            | WebError::RedirectElsewhere { .. }
            | WebError::BadRedirect
            | WebError::TooManyRedirects { .. }
            | WebError::TooLarge { .. }
            | WebError::Packed { .. } => Self::Failed(ToolError::new(reason)),
        }
    }
}

/// What the network said.
pub(super) fn network(base: &Url, error: reqwest::Error) -> WebError {
    let is_unsent = error.is_connect() || error.is_builder();
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    loop {
        if let Some(Refused(refused)) = cause.downcast_ref() {
            return refused.clone();
        }
        let Some(deeper) = cause.source() else { break };
        cause = deeper;
    }
    let (origin, problem) = (origin(base), cause.to_string());
    if is_unsent { WebError::Unreachable { origin, problem } } else { WebError::Broken { origin, problem } }
}
