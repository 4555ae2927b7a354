//! The client role: one server, whichever era it speaks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::HeaderMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time;

use crate::connection::{Connection, Inbound, Limits, Receiver};
use crate::era::{LogLevel, Revision, claimed_revision, meta};
use crate::exchange::{Exchange, Failure};
use crate::http;
use crate::http::client::HttpOptions;
use crate::http::headers::{self, HeaderParameter};
use crate::link::{Link, TransportError};
use crate::message::{Id, Notification, RpcError};
use pegboard_json::RawJson;

mod negotiation;
mod rounds;

pub use negotiation::ConnectError;

/// How a client introduces itself, and how long it waits.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Name, version and what else there is: an `Implementation`.
    pub info: RawJson,
    /// What it can do.
    pub capabilities: RawJson,
    /// The era that the server speaks, if that is known from an earlier connection.
    pub era: Option<Era>,
    /// How long the server is given to answer in the stateless era before it is asked in the session era as well.
    pub probe_time: Duration,
    /// How long the server is given to answer at all.
    pub start_time: Duration,
    /// What may grow.
    pub limits: Limits,
    /// What the server is called where everything that goes to and fro is written to the log. Without it nothing is.
    pub traced_as: Option<Arc<str>>,
}

impl ClientOptions {
    /// A client of this name that can do nothing but ask.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            info: RawJson::of(&serde_json::json!({"name": name, "version": version})),
            capabilities: RawJson::empty_object(),
            era: None,
            probe_time: Duration::from_secs(10),
            start_time: Duration::from_mins(1),
            limits: Limits::default(),
            traced_as: None,
        }
    }
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// It opens with `initialize` and keeps a session.
    Session,
    /// Every request stands alone.
    Stateless,
}

impl Era {
    /// The era that a request claims to be of.
    pub(crate) fn claimed(params: Option<&RawJson>) -> Self {
        if claimed_revision(params).is_some() { Self::Stateless } else { Self::Session }
    }
}

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct ServerDescription {
    /// The revision that is spoken with it.
    pub revision: Revision,
    /// Name, version and what else there is, if it says so.
    pub info: Option<RawJson>,
    /// What it can do.
    pub capabilities: RawJson,
    /// What a model should know.
    pub instructions: Option<String>,
}

/// What one request wants beyond its parameters.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// Headers, for transports that have them: credentials of one user, for example.
    pub headers: HeaderMap,
    /// What the client can do for this request, if that differs; stateless era only.
    pub capabilities: Option<RawJson>,
    /// The mildest log message that is wanted; stateless era only.
    pub log_level: Option<LogLevel>,
}

/// A connection to a server.
#[derive(Clone)]
pub struct Client {
    connection: Connection,
    receiver: Arc<dyn Receiver>,
    options: Arc<ClientOptions>,
    server: Arc<ServerDescription>,
    /// The arguments that headers repeat, by tool.
    header_parameters: Arc<Mutex<HashMap<String, Vec<HeaderParameter>>>>,
}

impl Client {
    /// Finds out how the server is spoken to, and introduces the client. What the server asks on its own account goes
    /// to `receiver`.
    pub async fn connect(
        link: Link,
        receiver: Arc<dyn Receiver>,
        options: ClientOptions,
    ) -> Result<Self, ConnectError> {
        let link = link.traced(options.traced_as.as_ref());
        let connection = Connection::open(link, Arc::new(Polite(Arc::clone(&receiver))), options.limits);
        let server = time::timeout(options.start_time, negotiation::negotiate(&connection, &options))
            .await
            .unwrap_or(Err(ConnectError::TooSlow(options.start_time)))?;
        Ok(Self {
            connection,
            receiver,
            options: Arc::new(options),
            server: Arc::new(server),
            header_parameters: Arc::default(),
        })
    }

    /// Connects to a server behind a URL: by streamable HTTP, or by HTTP+SSE if the server is that old.
    pub async fn connect_http(
        http: HttpOptions,
        receiver: Arc<dyn Receiver>,
        options: ClientOptions,
    ) -> Result<Self, ConnectError> {
        let link = http::client::connect(http.clone())?;
        match Self::connect(link, Arc::clone(&receiver), options.clone()).await {
            Err(ConnectError::Transport(TransportError::Status { status: 400 | 404 | 405, .. })) => {
                let options = ClientOptions { era: Some(Era::Session), ..options };
                Self::connect(http::legacy_client::connect(http)?, receiver, options).await
            }
            connected => connected,
        }
    }

    /// What the server says of itself.
    pub fn server(&self) -> &ServerDescription {
        &self.server
    }

    /// How the server is spoken to.
    pub fn era(&self) -> Era {
        if self.server.revision.is_stateless() { Era::Stateless } else { Era::Session }
    }

    /// The connection behind it.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends a request.
    pub async fn request(
        &self,
        method: &str,
        params: Option<RawJson>,
        options: RequestOptions,
    ) -> Result<Exchange, Failure> {
        match self.era() {
            Era::Session => {
                let params = params.map(|params| without_stateless_meta(&params));
                self.connection.request_with(method, params, None, options.headers).await
            }
            Era::Stateless => {
                let params = self.with_meta(params, &options);
                let repeated = self.repeated_parameters(method, &params);
                let mut all = headers::for_request(self.server.revision, method, Some(&params), &repeated);
                all.extend(options.headers);
                self.connection.request_with(method, Some(params), None, all).await
            }
        }
    }

    /// Sends a request and gives its result, answering the server's questions on the way.
    pub async fn call(&self, method: &str, params: Option<RawJson>) -> Result<RawJson, Failure> {
        rounds::call(self, method, params).await
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Option<RawJson>) -> Result<(), TransportError> {
        self.connection.notify(Notification::new(method, params), None).await
    }

    /// The tools of a `tools/list` result that can be called, with a word on each that cannot. Remembers which of
    /// their arguments are repeated in headers.
    pub fn take_tools(&self, list: &RawJson) -> (Vec<RawJson>, Vec<String>) {
        let (mut good, mut refused) = (Vec::new(), Vec::new());
        let tools = list.get("tools").map(|tools| tools.items().collect::<Vec<_>>()).unwrap_or_default();
        for tool in tools {
            let name = tool
                .get("name")
                .and_then(|name| name.text().map(std::borrow::Cow::into_owned))
                .unwrap_or_default();
            match headers::parameters_of(tool.get("inputSchema").as_ref()) {
                Ok(parameters) => {
                    let mut known = self.header_parameters.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert(name, parameters);
                    good.push(tool);
                }
                Err(problem) => refused.push(format!("tool '{name}' is left out: {problem}")),
            }
        }
        (good, refused)
    }

    fn with_meta(&self, params: Option<RawJson>, options: &RequestOptions) -> RawJson {
        let params = params.unwrap_or_else(RawJson::empty_object);
        let capabilities = options.capabilities.as_ref().unwrap_or(&self.options.capabilities);
        let mut own = params
            .get("_meta")
            .unwrap_or_else(RawJson::empty_object)
            .with(meta::PROTOCOL_VERSION, &RawJson::of(&self.server.revision))
            .with(meta::CLIENT_INFO, &self.options.info)
            .with(meta::CLIENT_CAPABILITIES, capabilities);
        if let Some(level) = options.log_level {
            own = own.with(meta::LOG_LEVEL, &RawJson::of(&level));
        }
        params.with("_meta", &own)
    }

    fn repeated_parameters(&self, method: &str, params: &RawJson) -> Vec<HeaderParameter> {
        let tool = if method == "tools/call" { params.get("name") } else { None };
        let known = self.header_parameters.lock().unwrap_or_else(PoisonError::into_inner);
        tool.as_ref().and_then(RawJson::text).and_then(|name| known.get(&*name).cloned()).unwrap_or_default()
    }
}

/// Parameters without what would make a server of both eras take the request for a stateless one.
fn without_stateless_meta(params: &RawJson) -> RawJson {
    let Some(own) = params.get("_meta") else { return params.clone() };
    let keys = [meta::PROTOCOL_VERSION, meta::CLIENT_INFO, meta::CLIENT_CAPABILITIES, meta::LOG_LEVEL];
    if keys.iter().all(|key| own.get(key).is_none()) {
        return params.clone();
    }
    params.with("_meta", &keys.iter().fold(own, |own, key| own.without(key)))
}

/// Answers pings, and leaves the rest to the receiver.
struct Polite(Arc<dyn Receiver>);

impl Receiver for Polite {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        if &*inbound.request.method == "ping" {
            return std::future::ready(Ok(RawJson::empty_object())).boxed();
        }
        self.0.request(inbound)
    }

    fn notification(&self, notification: Notification, about: Option<Id>) {
        self.0.notification(notification, about);
    }
}
