//! The server role: one service, served to clients of both eras.
//!
//! A [`Service`] answers requests and knows nothing of eras. `session` serves it to clients that open with
//! `initialize`, `stateless` to those whose every request stands alone; both may come over one connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use http::HeaderMap;
use tokio::sync::broadcast;

use crate::client::Era;
use crate::connection::{Connection, Limits};
use crate::era::{LogLevel, Revision};
use crate::http::headers::HeaderParameter;
use crate::link::{Link, TransportError};
use crate::message::{Notification, RpcError};
use crate::seal::Seal;
use pegboard_json::RawJson;

mod peer;
mod round;
pub(crate) mod session;
pub(crate) mod stateless;
mod subscription;

pub use peer::Peer;
pub use round::Capability;

/// What answers requests, whatever the era and the transport.
pub trait Service: Send + Sync + 'static {
    /// Who it is and what it can do, in the words of a revision.
    fn describe(&self, revision: Revision) -> Description;

    /// Who it is alone, which every answer of the stateless era says.
    fn info(&self) -> RawJson {
        self.describe(Revision::NEWEST_STATELESS).info
    }

    /// Who it is and what it can do, to one client; for services that are not the same to all.
    fn describe_to(&self, revision: Revision, _client: &ClientDescription) -> Description {
        self.describe(revision)
    }

    /// What else a client is told in the `_meta` of the answer that introduces the service.
    fn remarks(&self, _client: &ClientDescription) -> Option<RawJson> {
        None
    }

    /// Answers a request. Dropping the future cancels the work.
    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>>;

    /// Hears a notification of a client with a session.
    fn notified(&self, _session: &SessionId, _notification: Notification) {}

    /// Hears that a client without a session wants to know when these resources change. Its stream of changes counts
    /// as a session of its own, which ends with it.
    fn watched(&self, _stream: &SessionId, _resources: &[String]) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    /// Hears that a session is over: its connection has ended, and no request of it is under way.
    fn ended(&self, _session: &SessionId) {}

    /// What changes, for those who listen.
    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        None
    }

    /// The arguments of a tool that must stand in headers as well.
    fn header_parameters(&self, _tool: &str) -> Vec<HeaderParameter> {
        Vec::new()
    }
}

/// Who a service is and what it can do.
#[derive(Clone, Debug)]
pub struct Description {
    /// Name, version and what else there is: an `Implementation`.
    pub info: RawJson,
    /// The capabilities, as the revision spells them.
    pub capabilities: RawJson,
    /// What a model should know.
    pub instructions: Option<String>,
}

/// A request to a service.
#[derive(Debug)]
pub struct ServerRequest {
    /// What is asked for.
    pub method: Arc<str>,
    /// With what; `{}` if nothing was given.
    pub params: RawJson,
    /// The revision that the client speaks.
    pub revision: Revision,
    /// The session it belongs to; none in the stateless era.
    pub session: Option<SessionId>,
    /// Who asks.
    pub client: ClientDescription,
    /// What the client answered to an earlier [`Reply::InputRequired`], by name.
    pub answers: Option<RawJson>,
    /// The state that went out with an earlier [`Reply::InputRequired`].
    pub state: Option<Bytes>,
    /// The headers it came with, where the transport has them.
    pub headers: HeaderMap,
    /// The way back to the client while the request is under way.
    pub peer: Peer,
}

/// One session of one client. It names, and never authenticates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    pub(crate) fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct ClientDescription {
    /// Name, version and what else there is, if the client said so.
    pub info: Option<RawJson>,
    /// What it can do.
    pub capabilities: RawJson,
}

/// What a service answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The result.
    Result(RawJson),
    /// Questions for the client, by name, after which the request is made again with the answers.
    InputRequired {
        /// The questions: requests like `elicitation/create`, as `{"name": {"method": …, "params": …}}`.
        questions: RawJson,
        /// What the service wants back with the answers. No client can forge it unnoticed, but it can be read: put no
        /// secret in it.
        state: Option<Bytes>,
    },
}

impl From<RawJson> for Reply {
    fn from(result: RawJson) -> Self {
        Self::Result(result)
    }
}

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// The content of one resource.
    Resource {
        /// Its address.
        uri: String,
    },
    /// A line of a log that belongs to no request, as the protocol has it. Only clients with a session hear it.
    Log(RawJson),
    /// Somebody has been at the address that they were sent to, as the protocol has it. Only clients with a session
    /// that can be sent to addresses hear it.
    BeenThere(RawJson),
    /// The status of one task.
    Task {
        /// Its id.
        id: String,
        /// The task as it is now, in the words of the client that it was made for.
        state: RawJson,
    },
}

/// A service, ready to be served.
#[derive(Clone)]
pub struct Server {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) seal: Seal,
    pub(crate) limits: Limits,
    /// The one era that is served; `None` for both.
    only: Option<Era>,
}

impl Server {
    /// How long a client may take to answer questions in the stateless era.
    const STATE_LIFETIME: Duration = Duration::from_hours(1);

    /// Serves `service`, with a seal of its own.
    pub fn new(service: Arc<dyn Service>) -> Self {
        let limits = Limits { linger: Duration::from_secs(5), ..Limits::default() };
        Self { service, seal: Seal::random(Self::STATE_LIFETIME), limits, only: None }
    }

    /// Serves with a seal that other processes share.
    #[must_use]
    pub fn with_seal(mut self, seal: Seal) -> Self {
        self.seal = seal;
        self
    }

    /// Serves clients of one era alone, as a server that knows no other.
    #[must_use]
    pub fn speaking(mut self, era: Era) -> Self {
        self.only = Some(era);
        self
    }

    /// The era in which a request is served, by the one that it claims.
    pub(crate) fn era(&self, claimed: Era) -> Era {
        self.only.unwrap_or(claimed)
    }

    /// Serves one client until the connection ends.
    pub async fn serve(&self, link: Link) -> TransportError {
        session::open(self, link).closed().await
    }

    /// A connection that serves one client for as long as it lives.
    pub fn open(&self, link: Link) -> Connection {
        session::open(self, link)
    }
}

/// The default level below which logs are not sent to a client with a session that has set none.
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;
