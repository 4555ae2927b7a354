//! Finding out which era a server speaks.
//!
//! The server is first asked in the stateless era. A server of the session era answers with some error, or not at
//! all; a slow one answers late. So after a while it is asked in the session era as well, without taking the first
//! question back, and whichever is answered well decides.

use std::time::Duration;

use tokio::time;

use super::{ClientOptions, Era, ServerDescription};
use crate::connection::Connection;
use crate::era::{Revision, meta};
use crate::exchange::{Exchange, Failure};
use crate::http::headers;
use crate::link::TransportError;
use crate::message::{Notification, RpcError, code};
use pegboard_json::RawJson;

/// Why there is no connection to a server.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConnectError {
    /// The server did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TooSlow(Duration),
    /// The server refused.
    #[error("the server refused to connect: {}", .0.message)]
    Refused(RpcError),
    /// The server speaks only revisions that are not known here.
    #[error("the server speaks only {0}, and none of that is known here")]
    NoCommonRevision(String),
    /// The server answered with something that is no answer.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => Self::Refused(error),
            Failure::Lost(error) => Self::Transport(error),
            Failure::Overloaded => Self::Transport(TransportError::failed("too many requests are under way")),
        }
    }
}

pub(super) async fn negotiate(
    connection: &Connection,
    options: &ClientOptions,
) -> Result<ServerDescription, ConnectError> {
    match options.era {
        Some(Era::Session) => initialize(connection, options).await,
        Some(Era::Stateless) => {
            let answer = discover(connection, options).await?.answer().await;
            discovered(connection, options, answer).await
        }
        None => probe(connection, options).await,
    }
}

async fn probe(connection: &Connection, options: &ClientOptions) -> Result<ServerDescription, ConnectError> {
    let mut discovering = Box::pin(discover(connection, options).await?.answer());
    match time::timeout(options.probe_time, &mut discovering).await {
        Ok(answer) if is_of_stateless_era(&answer) => discovered(connection, options, answer).await,
        Ok(_) => initialize(connection, options).await,
        // Slow, or silent: both questions stay open.
        Err(_elapsed) => {
            let mut initializing = Box::pin(initialize(connection, options));
            tokio::select! {
                session = &mut initializing => match session {
                    // What opens a connection is never cancelled: the first question is just not waited for.
                    Ok(server) => Ok(server),
                    Err(error) => match discovering.await {
                        answer @ Ok(_) => discovered(connection, options, answer).await,
                        Err(_) => Err(error),
                    },
                },
                answer = &mut discovering => {
                    if is_of_stateless_era(&answer) {
                        discovered(connection, options, answer).await
                    } else {
                        initializing.await
                    }
                }
            }
        }
    }
}

async fn discover(connection: &Connection, options: &ClientOptions) -> Result<Exchange, Failure> {
    let revision = Revision::NEWEST_STATELESS;
    let own = RawJson::empty_object()
        .with(meta::PROTOCOL_VERSION, &RawJson::of(&revision))
        .with(meta::CLIENT_INFO, &options.info)
        .with(meta::CLIENT_CAPABILITIES, &options.capabilities);
    let params = RawJson::empty_object().with("_meta", &own);
    let repeated = headers::for_request(revision, "server/discover", None, &[]);
    connection.request_with("server/discover", Some(params), None, repeated).await
}

/// Whether only a server of the stateless era answers like this.
fn is_of_stateless_era(answer: &Result<RawJson, Failure>) -> bool {
    match answer {
        Ok(result) => result.get("supportedVersions").is_some(),
        Err(Failure::Refused(error)) => {
            matches!(error.code, code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH | code::MISSING_CAPABILITY)
        }
        Err(Failure::Lost(_) | Failure::Overloaded) => false,
    }
}

/// What the server said of itself. One that refused the revision is asked once more if it names one that is known.
async fn discovered(
    connection: &Connection,
    options: &ClientOptions,
    answer: Result<RawJson, Failure>,
) -> Result<ServerDescription, ConnectError> {
    match answer {
        Err(Failure::Refused(error)) if error.code == code::UNSUPPORTED_VERSION => {
            let supported = error.data.as_ref().and_then(|data| data.get("supported"));
            let supported = supported.unwrap_or_else(|| RawJson::of(&[""; 0]));
            if newest_stateless(&supported).is_none() {
                return Err(ConnectError::NoCommonRevision(supported.as_str().to_owned()));
            }
            description(&discover(connection, options).await?.answer().await?)
        }
        answer => description(&answer?),
    }
}

fn newest_stateless(versions: &RawJson) -> Option<Revision> {
    let known = versions.items().filter_map(|version| version.text()?.parse::<Revision>().ok());
    known.filter(|revision| revision.is_stateless()).max()
}

fn description(result: &RawJson) -> Result<ServerDescription, ConnectError> {
    let supported =
        result.get("supportedVersions").ok_or_else(|| nonsense("supportedVersions is missing"))?;
    let revision = newest_stateless(&supported);
    let revision = revision.ok_or_else(|| ConnectError::NoCommonRevision(supported.as_str().to_owned()))?;
    Ok(ServerDescription { info: result.at(&["_meta", meta::SERVER_INFO]), ..described(result, revision) })
}

async fn initialize(
    connection: &Connection,
    options: &ClientOptions,
) -> Result<ServerDescription, ConnectError> {
    let params = RawJson::empty_object()
        .with("protocolVersion", &RawJson::of(&Revision::NEWEST_WITH_SESSIONS))
        .with("capabilities", &options.capabilities)
        .with("clientInfo", &options.info);
    let result = connection.request("initialize", Some(params)).await?.answer().await?;
    let version = result.get("protocolVersion").ok_or_else(|| nonsense("protocolVersion is missing"))?;
    let revision = version.text().and_then(|version| version.parse::<Revision>().ok());
    let revision = revision.filter(|revision| !revision.is_stateless());
    let revision = revision.ok_or_else(|| ConnectError::NoCommonRevision(version.as_str().to_owned()))?;
    connection.notify(Notification::new("notifications/initialized", None), None).await?;
    Ok(ServerDescription { info: result.get("serverInfo"), ..described(&result, revision) })
}

fn described(result: &RawJson, revision: Revision) -> ServerDescription {
    ServerDescription {
        revision,
        info: None,
        capabilities: result.get("capabilities").unwrap_or_else(RawJson::empty_object),
        instructions: result.get("instructions").and_then(|text| text.read().ok()),
    }
}

fn nonsense(what: &str) -> ConnectError {
    ConnectError::Nonsense(what.to_owned())
}
