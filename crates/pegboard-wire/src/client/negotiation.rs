//! Negotiation of the protocol era.
//!
//! The handshake of the preferred era goes first: the stateless probe `server/discover`, or `initialize`. A server
//! that lacks the era answers it with an error or not at all; a slow server answers late. After the probe timeout
//! the handshake of the other era is sent as well, without cancelling the first, and the first successful answer
//! decides. Many servers of both eras keep that of the first message, so a connection is negotiated once.

use std::time::Duration;

use ::http::HeaderMap;
use tokio::time;

use super::{ClientOptions, ServerDescription};
use crate::connection::Connection;
use crate::era::{Era, Revision, meta};
use crate::http::headers::MirroredHeaders;
use crate::message::{Notification, RpcError, code};
use crate::pending_request::{PendingRequest, RequestError};
use crate::transport::TransportError;
use pegboard_json::RawJson;

/// An error that prevents a connection to a server.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HandshakeError {
    /// The handshake timed out.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The server answered the handshake with an error.
    #[error("the server rejected the connection: {}", .0.message)]
    Refused(RpcError),
    /// The server supports no revision known to this client.
    #[error("no common protocol version: the server supports only {0}")]
    NoCommonRevision(String),
    /// The server's handshake answer is malformed.
    #[error("invalid response from the server: {0}")]
    InvalidResponse(String),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl From<RequestError> for HandshakeError {
    fn from(failure: RequestError) -> Self {
        match failure {
            RequestError::Rpc(error) => Self::Refused(error),
            RequestError::Transport(error) => Self::Transport(error),
            RequestError::Overloaded => {
                Self::Transport(TransportError::failed("too many requests in flight"))
            }
        }
    }
}

impl HandshakeError {
    /// Returns `true` if the cause may be gone soon, so that it says nothing about the eras of the server.
    fn is_passing(&self) -> bool {
        match self {
            Self::Transport(TransportError::Status { status, .. }) => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=599)
            }
            Self::Transport(
                TransportError::Failed { .. } | TransportError::Unreachable { .. } | TransportError::Closed,
            ) => true,
            #[cfg(feature = "http-client")]
            Self::Transport(TransportError::Unauthorized(error)) => {
                matches!(error, crate::http::client::AuthorizationError::Unavailable { .. })
            }
            Self::Transport(TransportError::Untrusted { .. } | TransportError::Protocol { .. })
            | Self::TimedOut(_)
            | Self::Refused(_)
            | Self::NoCommonRevision(_)
            | Self::InvalidResponse(_) => false,
        }
    }
}

pub(super) async fn negotiate(
    connection: &Connection,
    options: &ClientOptions,
) -> Result<ServerDescription, HandshakeError> {
    match options.era {
        Some(Era::Session) => initialize(connection, options).await,
        Some(Era::Stateless) => {
            let answer = discover(connection, options).await?.response().await;
            describe_discovered(connection, options, answer).await
        }
        None => match options.preferred_era {
            Era::Session => prefer_session(connection, options).await,
            Era::Stateless => probe(connection, options).await,
        },
    }
}

/// Opens a session. A server that refuses, or takes long to answer, is asked for the stateless era.
async fn prefer_session(
    connection: &Connection,
    options: &ClientOptions,
) -> Result<ServerDescription, HandshakeError> {
    let discovering = async {
        let answer = discover(connection, options).await?.response().await;
        describe_discovered(connection, options, answer).await
    };
    let mut initializing = Box::pin(initialize(connection, options));
    match time::timeout(options.probe_timeout, &mut initializing).await {
        Ok(Ok(server)) => Ok(server),
        Ok(Err(error)) => match discovering.await {
            Ok(server) => Ok(ServerDescription { may_have_preferred_era: error.is_passing(), ..server }),
            Err(_) => Err(error),
        },
        Err(_elapsed) => {
            let mut discovering = Box::pin(discovering);
            tokio::select! {
                // Answers may arrive together.
                biased;
                session = &mut initializing => match session {
                    Ok(server) => Ok(server),
                    Err(error) => discovering.await.map_err(|_| error),
                },
                stateless = &mut discovering => match stateless {
                    Ok(server) => Ok(server),
                    Err(_) => initializing.await,
                },
            }
        }
    }
}

async fn probe(
    connection: &Connection,
    options: &ClientOptions,
) -> Result<ServerDescription, HandshakeError> {
    let mut probing = Box::pin(discover(connection, options).await?.response());
    match time::timeout(options.probe_timeout, &mut probing).await {
        Ok(answer) if is_stateless_response(&answer) => {
            describe_discovered(connection, options, answer).await
        }
        Ok(answer) => {
            let may_have_preferred_era =
                answer.is_err_and(|failure| HandshakeError::from(failure).is_passing());
            let server = initialize(connection, options).await?;
            Ok(ServerDescription { may_have_preferred_era, ..server })
        }
        // The server is slow or silent: both requests stay pending.
        Err(_elapsed) => {
            let mut initializing = Box::pin(initialize(connection, options));
            tokio::select! {
                // Answers may arrive together.
                biased;
                answer = &mut probing => {
                    if is_stateless_response(&answer) {
                        describe_discovered(connection, options, answer).await
                    } else {
                        initializing.await
                    }
                }
                session = &mut initializing => match session {
                    // No message cancels the probe. Over HTTP its connection is closed.
                    Ok(server) => Ok(server),
                    Err(error) => match probing.await {
                        answer @ Ok(_) => describe_discovered(connection, options, answer).await,
                        Err(_) => Err(error),
                    },
                },
            }
        }
    }
}

async fn discover(connection: &Connection, options: &ClientOptions) -> Result<PendingRequest, RequestError> {
    let revision = Revision::NEWEST_STATELESS;
    let own = RawJson::empty_object()
        .with(meta::PROTOCOL_VERSION, &RawJson::of(&revision))
        .with(meta::CLIENT_INFO, &options.info)
        .with(meta::CLIENT_CAPABILITIES, &options.capabilities);
    let params = RawJson::empty_object().with("_meta", &own);
    let mut mirrored = HeaderMap::new();
    MirroredHeaders::of(revision, "server/discover", None, None).set_common(&mut mirrored);
    connection.request_with("server/discover", Some(params), None, mirrored).await
}

/// Returns `true` if only a server of the stateless era answers like this.
fn is_stateless_response(answer: &Result<RawJson, RequestError>) -> bool {
    match answer {
        Ok(result) => result.get("supportedVersions").is_some(),
        Err(RequestError::Rpc(error)) => {
            matches!(error.code, code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH | code::MISSING_CAPABILITY)
        }
        Err(RequestError::Transport(_) | RequestError::Overloaded) => false,
    }
}

/// Turns the answer to `server/discover` into a server description. A server that rejects the revision but
/// supports another known one is asked once more.
async fn describe_discovered(
    connection: &Connection,
    options: &ClientOptions,
    answer: Result<RawJson, RequestError>,
) -> Result<ServerDescription, HandshakeError> {
    match answer {
        Err(RequestError::Rpc(error)) if error.code == code::UNSUPPORTED_VERSION => {
            let supported = error.data.as_ref().and_then(|data| data.get("supported"));
            let supported = supported.unwrap_or_else(|| RawJson::of(&[""; 0]));
            if newest_stateless(&supported).is_none() {
                return Err(HandshakeError::NoCommonRevision(supported.as_str().to_owned()));
            }
            parse_discovery(&discover(connection, options).await?.response().await?)
        }
        answer => parse_discovery(&answer?),
    }
}

fn newest_stateless(versions: &RawJson) -> Option<Revision> {
    let known = versions.items().filter_map(|version| version.text()?.parse::<Revision>().ok());
    known.filter(|revision| revision.is_stateless()).max()
}

fn parse_discovery(result: &RawJson) -> Result<ServerDescription, HandshakeError> {
    let supported =
        result.get("supportedVersions").ok_or_else(|| invalid_response("supportedVersions is missing"))?;
    let revision = newest_stateless(&supported);
    let revision = revision.ok_or_else(|| HandshakeError::NoCommonRevision(supported.as_str().to_owned()))?;
    Ok(ServerDescription {
        info: result.at(&["_meta", meta::SERVER_INFO]),
        ..base_description(result, revision)
    })
}

async fn initialize(
    connection: &Connection,
    options: &ClientOptions,
) -> Result<ServerDescription, HandshakeError> {
    let params = RawJson::empty_object()
        .with("protocolVersion", &RawJson::of(&Revision::NEWEST_WITH_SESSIONS))
        .with("capabilities", &options.capabilities)
        .with("clientInfo", &options.info);
    let result = connection.request("initialize", Some(params)).await?.response().await?;
    let version =
        result.get("protocolVersion").ok_or_else(|| invalid_response("protocolVersion is missing"))?;
    let revision = version.text().and_then(|version| version.parse::<Revision>().ok());
    let revision = revision.filter(|revision| !revision.is_stateless());
    let revision = revision.ok_or_else(|| HandshakeError::NoCommonRevision(version.as_str().to_owned()))?;
    connection.notify(Notification::new("notifications/initialized", None), None).await?;
    Ok(ServerDescription { info: result.get("serverInfo"), ..base_description(&result, revision) })
}

fn base_description(result: &RawJson, revision: Revision) -> ServerDescription {
    ServerDescription {
        revision,
        info: None,
        capabilities: result.get("capabilities").unwrap_or_else(RawJson::empty_object),
        instructions: result.get("instructions").and_then(|text| text.read().ok()),
        may_have_preferred_era: false,
    }
}

fn invalid_response(what: &str) -> HandshakeError {
    HandshakeError::InvalidResponse(what.to_owned())
}
